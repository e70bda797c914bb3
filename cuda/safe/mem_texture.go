package safe

import (
	"fmt"
	"reflect"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
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
	// Address is how x, y and z outside the texture are treated. It counts only with
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
	// Border is the value outside the texture with driver.CU_TR_ADDRESS_MODE_BORDER.
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

// Raw returns the handle for calls to package driver and to the runtime API. It returns 0
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

// String describes the texture for messages.
func (t *Texture) String() string {
	if t == nil || t.memory == nil {
		return neverOpened("Texture")
	}
	return handleText("Texture", t.raw, t.memory.ctx.device, t.memory.Closed())
}

// Array is a CUDA array: device memory in an opaque layout, which textures and surfaces
// access. Copy to and from it by [Array.Pitched]. Any number of goroutines may use it at
// once.
//
// T is an integer or floating-point type of 8, 16 or 32 bits, or a Go array of 2 or 4 of
// these for as many channels: [4]uint8, for example. [dtype.Float16] is such a type, too.
type Array[T any] struct {
	memory *memory
	raw    driver.CUarray
	format format
	extent Extent
	flags  uint32
}

// ArrayOptions are the options of [NewArray]. The zero value is CUDA's default.
type ArrayOptions struct {
	// Format of a channel; 0 takes the format of T. Set it for a format that Go has no
	// type for, such as driver.CU_AD_FORMAT_UNORM_INT8X1. It must have as many bits as T.
	Format driver.CUarray_format
	// Layered makes the slices independent layers: textures do not interpolate between
	// them. Each layer is a 2D image, or 1D if Height is 0.
	Layered bool
	// Surface lets kernels write to the array: see [NewSurface].
	Surface bool
}

// A format is the channel format that textures read a value as.
type format struct {
	of       driver.CUarray_format
	channels uint32
}

// formatOf returns the format of T, or other, if that is not 0 and has the same size.
func formatOf[T any](op string, other driver.CUarray_format) (format, error) {
	t := reflect.TypeFor[T]()
	f := format{channels: 1}
	if t.Kind() == reflect.Array && (t.Len() == 2 || t.Len() == 4) {
		f.channels = uint32(t.Len())
		t = t.Elem()
	}
	f.of = map[reflect.Kind]driver.CUarray_format{
		reflect.Uint8: driver.CU_AD_FORMAT_UNSIGNED_INT8, reflect.Int8: driver.CU_AD_FORMAT_SIGNED_INT8,
		reflect.Uint16: driver.CU_AD_FORMAT_UNSIGNED_INT16, reflect.Int16: driver.CU_AD_FORMAT_SIGNED_INT16,
		reflect.Uint32: driver.CU_AD_FORMAT_UNSIGNED_INT32, reflect.Int32: driver.CU_AD_FORMAT_SIGNED_INT32,
		reflect.Float32: driver.CU_AD_FORMAT_FLOAT,
	}[t.Kind()]
	switch t {
	case reflect.TypeFor[dtype.Float16]():
		f.of = driver.CU_AD_FORMAT_HALF
	case reflect.TypeFor[dtype.BFloat16](), reflect.TypeFor[dtype.Float8E4M3](), reflect.TypeFor[dtype.Float8E5M2]():
		f.of = 0 // textures cannot read them
	}
	if f.of == 0 {
		return f, refuse(op, ErrInvalidArgument, "type %v is not a number of 8, 16 or 32 bits that arrays can hold, or a Go array of 2 or 4 of these", reflect.TypeFor[T]())
	}
	if other == 0 {
		return f, nil
	}
	if size := channelSize(other); size != 0 && size != t.Size() {
		return f, refuse(op, ErrInvalidArgument, "%v has channels of %d bytes, but %v has channels of %d", other, size, reflect.TypeFor[T](), t.Size())
	}
	f.of = other
	return f, nil
}

// channelSize returns the size of a channel in bytes, 0 for formats that do not consist
// of plain channels.
func channelSize(f driver.CUarray_format) uintptr {
	switch f {
	case driver.CU_AD_FORMAT_UNSIGNED_INT8, driver.CU_AD_FORMAT_SIGNED_INT8:
		return 1
	case driver.CU_AD_FORMAT_UNSIGNED_INT16, driver.CU_AD_FORMAT_SIGNED_INT16, driver.CU_AD_FORMAT_HALF:
		return 2
	case driver.CU_AD_FORMAT_UNSIGNED_INT32, driver.CU_AD_FORMAT_SIGNED_INT32, driver.CU_AD_FORMAT_FLOAT:
		return 4
	}
	return 0
}

// NewArray allocates an array. The extent also sets the number of dimensions: a Height or
// Depth of 0 means that the array lacks this dimension, which differs from 1. The memory
// is not initialized. It returns [ErrInvalidArgument] if T or the format does not suit an
// array, and [ErrRange] if the extent is empty.
// Source: cuArray3DCreate, and cuArrayDestroy when closed.
func NewArray[T any](x *Context, e Extent, o ArrayOptions) (*Array[T], error) {
	const op = "NewArray"
	row, err := rowSize[T](e)
	if err != nil {
		return nil, wrap(op, err)
	}
	f, err := formatOf[T](op, o.Format)
	if err != nil {
		return nil, err
	}
	a := &Array[T]{extent: e, format: f}
	if o.Layered {
		a.flags |= driver.CUDA_ARRAY3D_LAYERED
	}
	if o.Surface {
		a.flags |= driver.CUDA_ARRAY3D_SURFACE_LDST
	}
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	var raw driver.CUarray // the block must not point to the Array, or it would never be collected
	full := e.full()
	size := row * uint64(full.Height) * uint64(full.Depth)
	b := &block{size: size, free: func(*block) error { return driver.CuArrayDestroy(raw) }}
	err = b.allocate(c, func() error {
		return driver.CuArray3DCreate(&raw, &driver.CUDA_ARRAY3D_DESCRIPTOR{
			Width: uint64(e.Width), Height: uint64(e.Height), Depth: uint64(e.Depth),
			Format: f.of, NumChannels: f.channels, Flags: a.flags,
		})
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	a.raw, a.memory = raw, newMemory(b)
	return a, nil
}

// acquire acquires the array's block for a call.
func (a *Array[T]) acquire(op string) (*block, error) {
	if a == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return a.memory.acquire(op)
}

// Close waits until the work that uses the array has completed, and destroys it. If
// textures or surfaces of the array are open, it is destroyed once the last of these is
// closed; Close does not wait for that. Closing again does nothing.
func (a *Array[T]) Close() error {
	if a == nil {
		return nil
	}
	return a.memory.close()
}

// Extent returns the size of the array, with a Height or Depth of 0 for a dimension that
// it lacks.
func (a *Array[T]) Extent() Extent {
	if a == nil {
		return Extent{}
	}
	return a.extent
}

// Raw returns the handle for calls to package driver. It returns 0 once the array is
// closed. Keep a reachable while you use the handle.
func (a *Array[T]) Raw() driver.CUarray {
	if a == nil || a.memory == nil || a.memory.Closed() {
		return 0
	}
	return a.raw
}

// Pitched returns the array for copies. It is closed with the array.
func (a *Array[T]) Pitched() *Pitched[T] {
	if a == nil || a.memory == nil {
		return nil
	}
	return &Pitched[T]{layout: layout{memory: a.memory, kind: driver.CU_MEMORYTYPE_ARRAY, array: a.raw}, extent: a.extent.full()}
}

// String describes the array for messages.
func (a *Array[T]) String() string {
	kind := generic[T]("Array")
	if a == nil || a.memory == nil {
		return neverOpened(kind)
	}
	return fmt.Sprintf("%s: %s values on %v%s", kind, a.extent.text(), a.memory.ctx.device, closedText(a.memory.Closed()))
}

// Surface is a surface object: kernels read and write an [Array] through it by
// coordinates. A kernel takes it as a 64-bit argument, see [Surface.Arg]. It keeps the
// array alive even if that is closed first. Any number of goroutines may use it at once.
type Surface struct {
	memory *memory
	raw    driver.CUsurfObject
}

// NewSurface creates a surface of an array. It returns [ErrInvalidArgument] if the array
// was made without [ArrayOptions].Surface.
// Source: cuSurfObjectCreate, and cuSurfObjectDestroy when closed.
func NewSurface[T any](a *Array[T]) (*Surface, error) {
	const op = "NewSurface"
	m, err := a.acquire(op)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	if a.flags&driver.CUDA_ARRAY3D_SURFACE_LDST == 0 {
		return nil, refuse(op, ErrInvalidArgument, "a surface needs an array made with ArrayOptions.Surface")
	}
	var raw driver.CUsurfObject
	r := driver.CUDA_RESOURCE_DESC{ResType: driver.CU_RESOURCE_TYPE_ARRAY}
	r.Res.Array().HArray = a.raw
	own, err := newObject(op, m,
		func() error { return driver.CuSurfObjectCreate(&raw, &r) },
		func() error { return driver.CuSurfObjectDestroy(raw) })
	if err != nil {
		return nil, err
	}
	return &Surface{memory: own, raw: raw}, nil
}

// Close waits until the work that uses the surface has completed, and destroys it.
// Closing again does nothing.
func (s *Surface) Close() error {
	if s == nil {
		return nil
	}
	return s.memory.close()
}

// Raw returns the handle for calls to package driver and to the runtime API. It returns 0
// once the surface is closed. If a kernel gets the handle inside a struct, name the
// surface in [LaunchConfig].Uses: see [Buffer.Raw].
func (s *Surface) Raw() driver.CUsurfObject {
	if s == nil || s.memory == nil || s.memory.Closed() {
		return 0
	}
	return s.raw
}

// Arg returns the surface as an argument for a kernel of the same context. The surface
// and the array stay alive until the kernel has completed.
func (s *Surface) Arg() Arg {
	if s == nil {
		return objectArg(nil, 0)
	}
	return objectArg(s.memory, uint64(s.raw))
}

// objectArg returns a texture or surface object as a kernel argument.
func objectArg(m *memory, raw uint64) Arg {
	if m == nil {
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	return addressArg(m, raw)
}

// String describes the surface for messages.
func (s *Surface) String() string {
	if s == nil || s.memory == nil {
		return neverOpened("Surface")
	}
	return handleText("Surface", s.raw, s.memory.ctx.device, s.memory.Closed())
}
