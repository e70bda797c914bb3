package safe

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Pinned is page-locked host memory for n values of type T, which must contain neither Go
// pointers nor bools: see [Buffer]. Asynchronous copies require pinned memory, and synchronous
// copies are faster with it. Kernels can access it, see [Pinned.Arg]. Like a Buffer, a Pinned
// remembers the streams that use it, and any number of goroutines may use it at once.
type Pinned[T any] struct {
	memory *memory
	data   unsafe.Pointer
	n      int
	part   bool // a slice of another Pinned, which owns the memory
}

// PinnedOptions are the options of [NewPinnedWith] and [RegisterPinnedWith]. The zero value is
// CUDA's default. All pinned memory is portable to other contexts and mapped for kernels:
// every 64-bit system has unified addressing.
type PinnedOptions struct {
	// WriteCombined makes host writes and copies to a device faster, and host reads very
	// slow. For [NewPinnedWith] only.
	WriteCombined bool
	// ReadOnly declares that kernels only read the memory. It is required for memory that the process
	// itself can only read. For [RegisterPinnedWith] only.
	ReadOnly bool
}

// NewPinned allocates pinned memory for n values. The memory is not initialized, and it
// is not part of the Go heap: see [Pinned.Data]. It returns [ErrInvalidArgument] if T
// contains Go pointers or bools or has no size, and [ErrRange] if n is negative.
// Source: cuMemHostAlloc, and cuMemFreeHost when closed.
func NewPinned[T any](x *Context, n int) (*Pinned[T], error) {
	return NewPinnedWith[T](x, n, PinnedOptions{})
}

// NewPinnedWith allocates pinned memory for n values with options. It returns the errors of [NewPinned], and
// [ErrInvalidArgument] if o.ReadOnly is set.
func NewPinnedWith[T any](x *Context, n int, o PinnedOptions) (*Pinned[T], error) {
	const op = "NewPinned"
	size, err := sizeOf[T](n)
	if err != nil {
		return nil, wrap(op, err)
	}
	if o.ReadOnly {
		return nil, refuse(op, ErrInvalidArgument, "ReadOnly is an option of RegisterPinnedWith only")
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
	b := &block{size: size, host: unsafe.Pointer(&ofNothing), free: (*block).memFreeHost}
	err = b.allocate(c, b.unlessEmpty(func() error {
		if err := driver.CuMemHostAlloc(&b.host, size, flags); err != nil {
			return outOfMemory(err, size, onHost)
		}
		b.findAddress()
		return nil
	}))
	if err != nil {
		return nil, wrap(op, err)
	}
	return &Pinned[T]{memory: newMemory(b), data: b.host, n: n}, nil
}

// RegisterPinned page-locks the memory of a Go slice, so that asynchronous copies can use
// it. [Pinned.Close] unlocks it. The slice does not move, and it stays reachable
// meanwhile. The operating system locks whole pages: if two registered slices share a
// page, the second call returns driver.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED. If the
// driver fails to unlock the memory, Close returns the error and the slice is never
// freed.
//
// It returns [ErrInvalidArgument] if T contains Go pointers or bools or has no size. For a file that is mapped into
// memory, see [RegisterPinnedWith].
// Source: cuMemHostRegister, cuMemHostUnregister.
func RegisterPinned[T any](x *Context, s []T) (*Pinned[T], error) {
	return RegisterPinnedWith(x, s, PinnedOptions{})
}

// RegisterPinnedWith page-locks the memory of a slice with options: see [RegisterPinned]. The slice may lie in a file
// that is mapped into memory: map it with MAP_SHARED, set ReadOnly if the mapping is read-only or the file on a disk,
// and close the Pinned before you end the mapping.
//
// It also returns [ErrInvalidArgument] if WriteCombined is set, or if ReadOnly is set for memory of a file on a disk
// that is mapped with MAP_PRIVATE: CUDA would never return. Source: cuMemHostRegister, cuMemHostUnregister.
func RegisterPinnedWith[T any](x *Context, s []T, o PinnedOptions) (*Pinned[T], error) {
	const op = "RegisterPinned"
	size, err := sizeOf[T](len(s))
	if err != nil {
		return nil, wrap(op, err)
	}
	if o.WriteCombined {
		return nil, refuse(op, ErrInvalidArgument, "WriteCombined is an option of NewPinnedWith only")
	}
	flags := uint32(driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP)
	if o.ReadOnly {
		flags |= driver.CU_MEMHOSTREGISTER_READ_ONLY
		if err := registrable(op, unsafe.Pointer(unsafe.SliceData(s)), size); err != nil {
			return nil, err
		}
	}
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{size: size, host: unsafe.Pointer(unsafe.SliceData(s)), free: (*block).memUnregister, pinner: new(runtime.Pinner)}
	if size == 0 {
		b.host = unsafe.Pointer(&ofNothing)
	}
	b.pinner.Pin(b.host)
	registered := false
	err = b.allocate(c, b.unlessEmpty(func() error {
		if err := driver.CuMemHostRegister(b.host, size, flags); err != nil {
			return b.notRegistered(err, o.ReadOnly)
		}
		registered = true
		b.findAddress()
		return nil
	}))
	if err != nil {
		if !registered { // else allocate has unregistered and unpinned it
			b.pinner.Unpin()
		}
		return nil, wrap(op, err)
	}
	return &Pinned[T]{memory: newMemory(b), data: b.host, n: len(s)}, nil
}

// notRegistered adds to an error of cuMemHostRegister what the caller may do.
func (b *block) notRegistered(err error, readOnly bool) error {
	if err == driver.CUDA_ERROR_INVALID_VALUE && !readOnly {
		return &Error{Code: driver.CUDA_ERROR_INVALID_VALUE, Err: err, Detail: whyNotRegistered(b.host, b.size)}
	}
	return outOfMemory(err, b.size, onHost)
}

// findAddress asks for the address at which kernels access the memory. It is 0 if they
// cannot: then the memory cannot be a kernel argument.
func (b *block) findAddress() {
	if driver.CuMemHostGetDevicePointer(&b.address, b.host, 0) != nil {
		b.address = 0
	}
}

func (b *block) memFreeHost() error { return driver.CuMemFreeHost(b.host) }

func (b *block) memUnregister() error { return driver.CuMemHostUnregister(b.host) }

// acquire acquires the Pinned's block for a call.
func (h *Pinned[T]) acquire(op string) (*block, error) {
	if h == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return h.memory.acquire(op)
}

// Close waits until the work that uses the memory has completed, and frees it. Memory of
// [RegisterPinned] is only unlocked: the Go slice stays valid. Otherwise do not use the
// slice of [Pinned.Data] after Close. If a stream that uses the memory is capturing, the
// release is deferred until the capture has ended. Closing a Pinned closes its slices
// too. Closing a slice does nothing, and neither does closing again.
// Source: cuMemFreeHost, cuMemHostUnregister.
func (h *Pinned[T]) Close() error {
	if h == nil || h.part {
		return nil
	}
	return h.memory.close()
}

// Data returns the memory as a Go slice, or nil once the Pinned is closed.
//
// Keep h open and reachable, for instance by runtime.KeepAlive, as long as you use the slice, unless h is of
// RegisterPinned. The slice does not keep the memory alive, which may have another use by then.
func (h *Pinned[T]) Data() []T {
	if h == nil || h.memory == nil || h.memory.Closed() {
		return nil
	}
	if h.n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(h.data), h.n)
}

// Len returns the number of values.
func (h *Pinned[T]) Len() int {
	if h == nil {
		return 0
	}
	return h.n
}

// Size returns the size in bytes.
func (h *Pinned[T]) Size() uint64 {
	var zero T
	return uint64(h.Len()) * uint64(unsafe.Sizeof(zero))
}

// Slice returns the values from index i up to but not including j, as h[i:j] does for a
// Go slice. The result shares the memory and is closed with the Pinned that owns it. It
// returns [ErrRange] if the range is not within h.
func (h *Pinned[T]) Slice(i, j int) (*Pinned[T], error) {
	const op = "Pinned.Slice"
	if h == nil || h.memory == nil || h.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	if i < 0 || j < i || j > h.n {
		return nil, refuse(op, ErrRange, "slice [%d:%d] of %d values", i, j, h.n)
	}
	part := &Pinned[T]{memory: h.memory, data: h.data, n: j - i, part: true}
	if part.n > 0 { // else the address might be that of other memory
		var zero T
		part.data = unsafe.Add(h.data, uintptr(i)*unsafe.Sizeof(zero))
	}
	return part, nil
}

// String describes the pinned memory for messages.
func (h *Pinned[T]) String() string {
	kind := generic[T]("Pinned")
	if h == nil || h.memory == nil {
		return neverOpened(kind)
	}
	return fmt.Sprintf("%s: %d values on the host%s", kind, h.n, closedText(h.memory.Closed()))
}

// CopyFrom copies other pinned memory to the beginning of h. It waits for all work that
// uses either, then copies on an internal stream, and returns when the copy has completed.
// It returns [ErrRange] if h is shorter than src, [ErrOverlap] if they overlap, and
// [ErrCapturing] if a stream that uses either is capturing.
// Source: cuMemcpyAsync, cuStreamSynchronize.
func (h *Pinned[T]) CopyFrom(src *Pinned[T]) error {
	to, from := h.span(nil), src.span(nil)
	return to.copyNow("Pinned.CopyFrom", &from)
}

// CopyFromAsync enqueues a copy of src to the beginning of h, on a stream of any context. Do not read or write h, nor
// change src, before the copy has completed. It returns [ErrRange] if h is shorter than src, and [ErrOverlap] if they
// overlap. Source: cuMemcpyAsync.
func (h *Pinned[T]) CopyFromAsync(s *Stream, src *Pinned[T]) error {
	to, from := h.span(nil), src.span(nil)
	return to.copyAsync("Pinned.CopyFromAsync", s, &from)
}

// Fill sets every value of h to v, on the device, as [Buffer.Fill] does. It waits for all work that uses h, and returns
// when the memory is set. It returns [ErrCapturing] if a stream that uses h is capturing, and [ErrInvalidArgument] if
// the device cannot access h, or if v is not all zeros and has more than 4,000 bytes. Source: cuMemsetD8Async,
// cuMemsetD16Async, cuMemsetD32Async or cuLaunchKernel, cuStreamSynchronize.
func (h *Pinned[T]) Fill(v T) error {
	const op = "Pinned.Fill"
	s := h.span(nil)
	f, err := filling(op, v, s.n)
	if err != nil {
		return err
	}
	return s.fillNow(op, f)
}

// FillAsync enqueues a fill that sets every value of h to v, as [Pinned.Fill] does, on a stream of any context. Do not
// read or write h before the work has completed. Source: cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async or
// cuLaunchKernel.
func (h *Pinned[T]) FillAsync(s *Stream, v T) error {
	const op = "Pinned.FillAsync"
	m := h.span(nil)
	f, err := filling(op, v, m.n)
	if err != nil {
		return err
	}
	return m.fillAsync(op, s, &f)
}
