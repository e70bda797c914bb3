package safe

import (
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Pinned is pinned memory of the host, for n values of type T, which must
// hold no Go pointers. Asynchronous copies need it, and synchronous ones are
// faster with it. Like a [Buffer] it remembers the streams that use it.
type Pinned[T any] struct {
	memory *memory
	data   unsafe.Pointer
	n      int
	part   bool // of another buffer, whose memory it is
}

// PinnedOptions are the choices at [NewPinned] and [RegisterPinned]. The zero
// value is CUDA's default. With unified addressing, which every 64-bit system
// has, all pinned memory is portable to other contexts and mapped for kernels.
type PinnedOptions struct {
	// WriteCombined makes writes by the host and copies to a device faster,
	// and reads by the host very slow. For NewPinned only.
	WriteCombined bool
	// ReadOnly: kernels only read it. For RegisterPinned only.
	ReadOnly bool
}

// NewPinned allocates pinned memory for n values. It is not garbage
// collected memory of Go's: see [Pinned.Data].
// Source: cuMemHostAlloc, and cuMemFreeHost when closed.
func NewPinned[T any](x *Context, n int, o PinnedOptions) (*Pinned[T], error) {
	const op = "NewPinned"
	size, err := sizeOf[T](n)
	if err != nil {
		return nil, wrap(op, err)
	}
	if o.ReadOnly {
		return nil, refuse(op, ErrInvalidArgument, "ReadOnly is for RegisterPinned")
	}
	flags := uint32(driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP)
	if o.WriteCombined {
		flags |= driver.CU_MEMHOSTALLOC_WRITECOMBINED
	}
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{size: size, free: (*block).memFreeHost}
	err = b.allocate(c, func() error {
		if err := driver.CuMemHostAlloc(&b.host, size, flags); err != nil {
			return outOfMemory(err, size, onHost)
		}
		b.findAddress()
		return nil
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return &Pinned[T]{memory: newMemory(b), data: b.host, n: n}, nil
}

// RegisterPinned pins memory of a Go slice, so that asynchronous copies can use
// it; Close undoes that. The slice stays where it is and is kept alive
// meanwhile. Pinning works on pages of the system: a page that belongs to two
// registered slices is driver.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED for the second.
// If the driver fails to unpin the memory, Close returns the error and the slice is kept
// for good.
// Source: cuMemHostRegister, cuMemHostUnregister.
func RegisterPinned[T any](x *Context, s []T, o PinnedOptions) (*Pinned[T], error) {
	const op = "RegisterPinned"
	size, err := sizeOf[T](len(s))
	if err != nil {
		return nil, wrap(op, err)
	}
	if o.WriteCombined {
		return nil, refuse(op, ErrInvalidArgument, "WriteCombined is for NewPinned")
	}
	flags := uint32(driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP)
	if o.ReadOnly {
		flags |= driver.CU_MEMHOSTREGISTER_READ_ONLY
	}
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{size: size, host: unsafe.Pointer(unsafe.SliceData(s)), free: (*block).memUnregister, pinner: new(runtime.Pinner)}
	b.pinner.Pin(b.host)
	registered := false
	err = b.allocate(c, func() error {
		if err := driver.CuMemHostRegister(b.host, size, flags); err != nil {
			return outOfMemory(err, size, onHost)
		}
		registered = true
		b.findAddress()
		return nil
	})
	if err != nil {
		if !registered { // else it was given back
			b.pinner.Unpin()
		}
		return nil, wrap(op, err)
	}
	return &Pinned[T]{memory: newMemory(b), data: b.host, n: len(s)}, nil
}

// findAddress asks where kernels see the memory. Where they cannot, it is no
// argument for them.
func (b *block) findAddress() {
	if driver.CuMemHostGetDevicePointer(&b.address, b.host, 0) != nil {
		b.address = 0
	}
}

func (b *block) memFreeHost() error { return driver.CuMemFreeHost(b.host) }

func (b *block) memUnregister() error { return driver.CuMemHostUnregister(b.host) }

// acquire marks the buffer's memory for a call.
func (h *Pinned[T]) acquire(op string) (*block, error) {
	if h == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return h.memory.acquire(op)
}

// Close gives the memory back when the work that uses it is done, which it
// waits for. The slice of [Pinned.Data] must not be used any more, unless it
// was Go's own memory. Slices of the buffer are closed with it; closing a slice does nothing,
// and so does closing again.
func (h *Pinned[T]) Close() error {
	if h == nil || h.part {
		return nil
	}
	return h.memory.close()
}

// Data is the memory as a Go slice, nil once the buffer is closed. The memory
// is not the garbage collector's: keep h reachable as long as the slice is used.
func (h *Pinned[T]) Data() []T {
	if h == nil || h.memory == nil || h.memory.Closed() {
		return nil
	}
	return unsafe.Slice((*T)(h.data), h.n)
}

// Len is the number of values.
func (h *Pinned[T]) Len() int {
	if h == nil {
		return 0
	}
	return h.n
}

// Size is the size in bytes.
func (h *Pinned[T]) Size() uint64 {
	var zero T
	return uint64(h.Len()) * uint64(unsafe.Sizeof(zero))
}

// Slice is the part of the buffer from value i up to value j. It shares the
// memory, and is closed with the buffer it was made of.
func (h *Pinned[T]) Slice(i, j int) (*Pinned[T], error) {
	const op = "Pinned.Slice"
	if h == nil || h.memory == nil || h.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	if i < 0 || j <= i || j > h.n {
		return nil, refuse(op, ErrRange, "[%d:%d] of %d values", i, j, h.n)
	}
	var zero T
	return &Pinned[T]{memory: h.memory, data: unsafe.Add(h.data, uintptr(i)*unsafe.Sizeof(zero)), n: j - i, part: true}, nil
}
