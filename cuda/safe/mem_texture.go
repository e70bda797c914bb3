package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Texture is a texture object: kernels read an [Array] or linear memory through it by
// coordinates, with interpolation and rules for coordinates outside. A kernel takes it as
// a 64-bit argument, see [Texture.Arg]. It keeps the memory alive even if that is closed
// first. Any number of goroutines may use it at once.
type Texture struct {
	memory *memory
	raw    driver.CUtexObject
}

// TextureOptions are the options of [NewTexture], [NewLinearTexture] and
// [NewPitchedTexture]. The zero value is CUDA's default: it reads the nearest value,
// coordinates count values, and integers of 8 and 16 bits are normalized to fractions.
type TextureOptions struct {
	// Address is how x, y and z outside of the texture are treated. It counts only with
	// Normalized coordinates; others are always clamped
	// (driver.CU_TR_ADDRESS_MODE_CLAMP).
	Address [3]driver.CUaddress_mode
	// Filter driver.CU_TR_FILTER_MODE_LINEAR interpolates between values, if kernels read
	// them as floating-point numbers.
	Filter driver.CUfilter_mode
	// Normalized coordinates range from 0 to 1 over the whole texture.
	Normalized bool
	// ReadIntegers reads integers of 8 and 16 bits as integers, and not as fractions.
	// Integers of 32 bits are always read so.
	ReadIntegers bool
	// SRGB converts 8-bit values from sRGB to linear.
	SRGB bool
	// Border is the value outside of the texture with driver.CU_TR_ADDRESS_MODE_BORDER.
	Border [4]float32
	// MaxAnisotropy is the maximum ratio of anisotropic filtering, 1 to 16; 0 counts as
	// 1.
	MaxAnisotropy uint32
	// Format of a channel of linear or pitched memory; 0 takes the format of T. See
	// [ArrayOptions].
	Format driver.CUarray_format
}

func (o *TextureOptions) raw() driver.CUDA_TEXTURE_DESC {
	d := driver.CUDA_TEXTURE_DESC{AddressMode: o.Address, FilterMode: o.Filter, MaxAnisotropy: o.MaxAnisotropy, BorderColor: o.Border}
	for _, f := range []struct {
		set bool
		bit uint32
	}{
		{o.Normalized, driver.CU_TRSF_NORMALIZED_COORDINATES},
		{o.ReadIntegers, driver.CU_TRSF_READ_AS_INTEGER},
		{o.SRGB, driver.CU_TRSF_SRGB},
	} {
		if f.set {
			d.Flags |= f.bit
		}
	}
	return d
}

// NewTexture creates a texture of a whole array. It returns [ErrInvalidArgument] if the
// options set a Format: the array has one.
// Source: cuTexObjectCreate, and cuTexObjectDestroy when closed.
func NewTexture[T any](a *Array[T], o TextureOptions) (*Texture, error) {
	const op = "NewTexture"
	m, err := a.acquire(op)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	if o.Format != 0 {
		return nil, refuse(op, ErrInvalidArgument, "the array sets the format: leave TextureOptions.Format 0")
	}
	r := driver.CUDA_RESOURCE_DESC{ResType: driver.CU_RESOURCE_TYPE_ARRAY}
	r.Res.Array().HArray = a.raw
	return newTexture(op, m, &r, o)
}

// NewLinearTexture creates a one-dimensional texture of a Buffer. Kernels read it by
// index, without interpolation. It returns [ErrInvalidArgument] if T does not suit a
// texture, if the Buffer is empty, or if the Buffer's address is not a multiple of the device's texture
// alignment; a Buffer that is not a slice is aligned.
// Source: cuTexObjectCreate, and cuTexObjectDestroy when closed.
func NewLinearTexture[T any](b *Buffer[T], o TextureOptions) (*Texture, error) {
	const op = "NewLinearTexture"
	m, err := b.acquire(op)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	if err := b.some(op); err != nil {
		return nil, err
	}
	f, err := formatOf[T](op, o.Format)
	if err != nil {
		return nil, err
	}
	if err := m.aligned(op, uint64(b.address), driver.CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT); err != nil {
		return nil, err
	}
	r := driver.CUDA_RESOURCE_DESC{ResType: driver.CU_RESOURCE_TYPE_LINEAR}
	*r.Res.Linear() = driver.CUDA_RESOURCE_DESC_res_linear{
		DevPtr: b.address, Format: f.of, NumChannels: f.channels, SizeInBytes: b.Size(),
	}
	return newTexture(op, m, &r, o)
}

// NewPitchedTexture creates a two-dimensional texture of pitched device memory. It
// returns [ErrInvalidArgument] if b is not device memory or has more than one slice, if T
// does not suit a texture, or if the address or the pitch is not a multiple of the
// device's texture alignment or texture pitch alignment. Memory of [NewPitched] is
// aligned.
// Source: cuTexObjectCreate, and cuTexObjectDestroy when closed.
func NewPitchedTexture[T any](b *Pitched[T], o TextureOptions) (*Texture, error) {
	const op = "NewPitchedTexture"
	m, err := b.acquire(op)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, refuse(op, ErrInvalidArgument, "a texture needs device memory, not a Go slice")
	}
	defer m.Release()
	f, err := formatOf[T](op, o.Format)
	switch {
	case err != nil:
		return nil, err
	case b.kind != driver.CU_MEMORYTYPE_DEVICE || b.extent.Depth > 1:
		return nil, refuse(op, ErrInvalidArgument, "a texture needs device memory of a single slice")
	}
	if err := m.aligned(op, uint64(b.address), driver.CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT); err != nil {
		return nil, err
	}
	if err := m.aligned(op, b.pitch, driver.CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT); err != nil {
		return nil, err
	}
	r := driver.CUDA_RESOURCE_DESC{ResType: driver.CU_RESOURCE_TYPE_PITCH2D}
	*r.Res.Pitch2D() = driver.CUDA_RESOURCE_DESC_res_pitch2D{
		DevPtr: b.address, Format: f.of, NumChannels: f.channels,
		Width: uint64(b.extent.Width), Height: uint64(b.extent.Height), PitchInBytes: b.pitch,
	}
	return newTexture(op, m, &r, o)
}

// aligned refuses an address or a pitch that is not a multiple of a device attribute.
func (b *block) aligned(op string, n uint64, to driver.CUdevice_attribute) error {
	to64, err := b.ctx.device.known(to)
	if err != nil {
		return wrap(op, err)
	}
	if to64 > 0 && n%uint64(to64) != 0 {
		return refuse(op, ErrInvalidArgument, "%#x is not a multiple of %d, the value of %v of %v", n, to64, to, b.ctx.device)
	}
	return nil
}

// newTexture creates a texture of a block, which is acquired.
func newTexture(op string, of *block, r *driver.CUDA_RESOURCE_DESC, o TextureOptions) (*Texture, error) {
	var raw driver.CUtexObject
	d := o.raw()
	m, err := newObject(op, of,
		func() error { return driver.CuTexObjectCreate(&raw, r, &d, nil) },
		func() error { return driver.CuTexObjectDestroy(raw) })
	if err != nil {
		return nil, err
	}
	return &Texture{memory: m, raw: raw}, nil
}

// newObject creates a texture or surface object of a block, as a block of its own: both are
// retained as long as work uses the object. The functions must not refer to the user's
// Texture or Surface, or it would never be collected.
func newObject(op string, of *block, create, destroy func() error) (*memory, error) {
	b := &block{of: of, free: func(*block) error { return destroy() }}
	if err := b.allocate(of.ctx, create); err != nil {
		return nil, wrap(op, err)
	}
	return newMemory(b), nil
}

// Close waits until the work that uses the texture has completed, and destroys it.
// Closing again does nothing.
func (t *Texture) Close() error {
	if t == nil {
		return nil
	}
	return t.memory.close()
}

// Raw returns the handle for calls of package driver and of the runtime API. It returns 0
// once the texture is closed. If a kernel gets the handle inside a struct, name the
// texture in [LaunchConfig].Uses: see [Buffer.Raw].
func (t *Texture) Raw() driver.CUtexObject {
	if t == nil || t.memory == nil || t.memory.Closed() {
		return 0
	}
	return t.raw
}

// Arg returns the texture as an argument for a kernel of the same context. The texture
// and the memory it reads stay alive until the kernel has completed.
func (t *Texture) Arg() Arg {
	if t == nil {
		return objectArg(nil, 0)
	}
	return objectArg(t.memory, uint64(t.raw))
}
