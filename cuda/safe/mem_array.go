package safe

import (
	"reflect"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Array is memory of a device in an order of its own, which textures and surfaces
// read. Copies from and to it go by [Array.Pitched]. Any number of goroutines may use it
// at once.
//
// T is a number of 8, 16 or 32 bits, or a Go array of 2 or 4 of those, as which a value
// has that many channels: [4]uint8, say.
type Array[T any] struct {
	memory *memory
	raw    driver.CUarray
	format format
	extent Extent
	flags  uint32
}

// ArrayOptions are the choices at [NewArray]. The zero value is CUDA's default.
type ArrayOptions struct {
	// Format of a channel; 0 is that of T. It is for formats that Go has no type for,
	// such as driver.CU_AD_FORMAT_HALF, and must have as many bits as T.
	Format driver.CUarray_format
	// Layered: the slices of the array are pictures beside each other; those of an
	// array without rows (Height 0) are lines. Textures do not interpolate between
	// them.
	Layered bool
	// Surface: kernels may write to the array, see [NewSurface].
	Surface bool
}

// A format is what a texture makes of a value.
type format struct {
	of       driver.CUarray_format
	channels uint32
}

// formatOf is the format of a type, or another one of the same size.
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
	if f.of == 0 {
		return f, refuse(op, ErrInvalidArgument, "type %v is no number of 8, 16 or 32 bits, nor 2 or 4 of them", reflect.TypeFor[T]())
	}
	if other == 0 {
		return f, nil
	}
	if size := channelSize(other); size != 0 && size != t.Size() {
		return f, refuse(op, ErrInvalidArgument, "%v has channels of %d bytes, %v of %d", other, size, reflect.TypeFor[T](), t.Size())
	}
	f.of = other
	return f, nil
}

// channelSize is the size of a channel in bytes, 0 for formats that are not simply
// channels.
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

// NewArray allocates an array. Its extent says also how many dimensions it has: a
// Height or a Depth of 0 is none, and another thing than 1. It is not cleared.
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
	var raw driver.CUarray // the block must not point to what users hold
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

// acquire marks the array's memory for a call.
func (a *Array[T]) acquire(op string) (*block, error) {
	if a == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return a.memory.acquire(op)
}

// Close destroys the array when the work that uses it is done, which it waits for, and
// the textures and surfaces of it are closed, which it does not wait for. Closing again
// does nothing.
func (a *Array[T]) Close() error {
	if a == nil {
		return nil
	}
	return a.memory.close()
}

// Extent is how large the array is, with a Height and a Depth of 0 where it has
// none.
func (a *Array[T]) Extent() Extent {
	if a == nil {
		return Extent{}
	}
	return a.extent
}

// Raw is the array for calls of package driver. It is 0 once the array is closed;
// keep a reachable meanwhile.
func (a *Array[T]) Raw() driver.CUarray {
	if a == nil || a.memory == nil || a.memory.Closed() {
		return 0
	}
	return a.raw
}

// Pitched is the array as a box, for copies. It is closed with the array.
func (a *Array[T]) Pitched() *Pitched[T] {
	if a == nil || a.memory == nil {
		return nil
	}
	return &Pitched[T]{end: end{memory: a.memory, kind: driver.CU_MEMORYTYPE_ARRAY, array: a.raw}, extent: a.extent.full()}
}
