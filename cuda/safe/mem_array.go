package safe

import (
	"reflect"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

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

// Raw returns the handle for calls of package driver. It returns 0 once the array is
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
	return &Pitched[T]{place: place{memory: a.memory, kind: driver.CU_MEMORYTYPE_ARRAY, array: a.raw}, extent: a.extent.full()}
}
