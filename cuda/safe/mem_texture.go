package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Texture is a way for kernels to read an [Array], or linear memory: by coordinates,
// with interpolation and rules for what lies outside. A kernel takes it as an argument
// of 64 bits, by [Texture.Arg]. It keeps the memory it reads, also if that is closed
// before. Any number of goroutines may use it at once.
type Texture struct {
	memory *memory
	raw    driver.CUtexObject
}

// TextureOptions are the choices at [NewTexture] and its like. The zero value is CUDA's
// default: the nearest value, coordinates that count values, and integers of 8 and 16
// bits turned into fractions.
type TextureOptions struct {
	// Address is what happens outside, in x, y and z. Unless coordinates are
	// Normalized it is driver.CU_TR_ADDRESS_MODE_CLAMP, whatever this says.
	Address [3]driver.CUaddress_mode
	// Filter is driver.CU_TR_FILTER_MODE_LINEAR for interpolation between values,
	// which works for floating point numbers and for fractions.
	Filter driver.CUfilter_mode
	// Normalized coordinates go from 0 to 1 over the whole.
	Normalized bool
	// ReadIntegers: integers of 8 and 16 bits are read as such. Those of 32 bits always
	// are.
	ReadIntegers bool
	// SRGB: 8-bit values are converted to linear ones.
	SRGB bool
	// Border is the value outside for driver.CU_TR_ADDRESS_MODE_BORDER.
	Border [4]float32
	// MaxAnisotropy is the ratio of anisotropic filtering, 1 to 16; 0 counts as 1.
	MaxAnisotropy uint32
	// Format of a channel of linear memory; 0 is that of T. See [ArrayOptions].
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

// NewTexture makes a texture of an array, all of it. Source: cuTexObjectCreate, and
// cuTexObjectDestroy when closed.
func NewTexture[T any](a *Array[T], o TextureOptions) (*Texture, error) {
	const op = "NewTexture"
	m, err := a.acquire(op)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	if o.Format != 0 {
		return nil, refuse(op, ErrInvalidArgument, "the format is the array's; Format is for linear memory")
	}
	r := driver.CUDA_RESOURCE_DESC{ResType: driver.CU_RESOURCE_TYPE_ARRAY}
	r.Res.Array().HArray = a.raw
	return newTexture(op, m, &r, o)
}

// NewLinearTexture makes a texture of a buffer, of one dimension, which kernels read by
// indices, without interpolation. The buffer must begin at a multiple of the device's
// texture alignment, as one that is not a slice does: else the error is [ErrInvalidArgument].
// Source: cuTexObjectCreate, and cuTexObjectDestroy when closed.
func NewLinearTexture[T any](b *Buffer[T], o TextureOptions) (*Texture, error) {
	const op = "NewLinearTexture"
	m, err := b.acquire(op)
	if err != nil {
		return nil, err
	}
	defer m.Release()
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

// NewPitchedTexture makes a texture of a box of two dimensions, which is memory of a
// device. The box must begin at a multiple of the device's texture alignment, and its
// pitch be a multiple of the texture pitch alignment, as those of [NewPitched] do: else the
// error is [ErrInvalidArgument]. Source: cuTexObjectCreate, and cuTexObjectDestroy when closed.
func NewPitchedTexture[T any](b *Pitched[T], o TextureOptions) (*Texture, error) {
	const op = "NewPitchedTexture"
	m, err := b.acquire(op)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, refuse(op, ErrInvalidArgument, "the box is a Go slice")
	}
	defer m.Release()
	f, err := formatOf[T](op, o.Format)
	switch {
	case err != nil:
		return nil, err
	case b.kind != driver.CU_MEMORYTYPE_DEVICE || b.extent.Depth > 1:
		return nil, refuse(op, ErrInvalidArgument, "the box is not memory of a device, or has more than one slice")
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

// aligned refuses a number that is no multiple of an attribute of the device.
func (b *block) aligned(op string, n uint64, to driver.CUdevice_attribute) error {
	to64, err := b.ctx.device.known(to)
	if err != nil {
		return wrap(op, err)
	}
	if to64 > 0 && n%uint64(to64) != 0 {
		return refuse(op, ErrInvalidArgument, "%#x is no multiple of %d, %v of %v", n, to64, to, b.ctx.device)
	}
	return nil
}

// newTexture makes a texture of memory, which is marked.
func newTexture(op string, of *block, r *driver.CUDA_RESOURCE_DESC, o TextureOptions) (*Texture, error) {
	var raw driver.CUtexObject
	d := o.raw()
	m, err := reading(op, of,
		func() error { return driver.CuTexObjectCreate(&raw, r, &d, nil) },
		func() error { return driver.CuTexObjectDestroy(raw) })
	if err != nil {
		return nil, err
	}
	return &Texture{memory: m, raw: raw}, nil
}

// reading is an object by which kernels read memory. It is a block as memory is, so
// that it is kept as long as work uses it. The functions must not point to what users
// hold.
func reading(op string, of *block, create, destroy func() error) (*memory, error) {
	b := &block{of: of, free: func(*block) error { return destroy() }}
	if err := b.allocate(of.ctx, create); err != nil {
		return nil, wrap(op, err)
	}
	return newMemory(b), nil
}

// Close destroys the texture when the work that uses it is done, which it waits for.
// Closing again does nothing.
func (t *Texture) Close() error {
	if t == nil {
		return nil
	}
	return t.memory.close()
}

// Raw is the texture for calls of package driver, and of the runtime API. It is 0
// once the texture is closed. Kernels that get it inside a struct need the texture in
// [LaunchConfig].Uses: see [Buffer.Raw].
func (t *Texture) Raw() driver.CUtexObject {
	if t == nil || t.memory == nil || t.memory.Closed() {
		return 0
	}
	return t.raw
}

// Arg is the texture as an argument of a kernel of the same context. It is kept until
// the kernel is done, and so is the memory it reads.
func (t *Texture) Arg() Arg {
	if t == nil {
		return readingArg(nil, 0)
	}
	return readingArg(t.memory, uint64(t.raw))
}
