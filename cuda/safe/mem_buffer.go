package safe

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// Buffer is device memory for n values of type T: a number, or a struct or an array of
// numbers. T must not contain Go pointers, which a device cannot follow, nor bools: a device
// can write any bytes, and a bool that is neither true nor false corrupts a Go program. Use
// uint8 instead.
//
// Any number of goroutines may use a Buffer at once. A Buffer may be empty, as a Go slice may:
// copies of no values do nothing.
//
// A Buffer remembers which streams use it. [Buffer.Close] and the garbage collector free
// the memory only after that work has completed, and synchronous copies wait for it. Work
// that the program enqueues by other means, such as package driver, is not tracked: keep
// the Buffer open until that work has completed.
type Buffer[T any] struct {
	memory  *memory
	address driver.CUdeviceptr
	n       int
	part    bool // a slice or cast of another Buffer, which owns the memory
}

// memory is what a Buffer and its slices share. The garbage collector closes the block
// when none of them is reachable any more.
type memory struct {
	*block
	cleanup lifetime.Cleanup
}

func newMemory(b *block) *memory { return new(memory).own(b) }

// own makes the memory that of a block.
func (m *memory) own(b *block) *memory {
	m.block = b
	m.cleanup.Watch(&b.Handle)
	return m
}

// acquire acquires the block for a call.
func (m *memory) acquire(op string) (*block, error) {
	if m == nil || !m.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return m.block, nil
}

// openUnacquired returns the block for a call that does not acquire it: see
// streamCore.uses. The caller keeps m alive until then.
func (m *memory) openUnacquired(op string) (*block, error) {
	if m == nil || m.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return m.block, nil
}

// close implements Close of the object that owns the memory.
func (m *memory) close() error {
	if m == nil {
		return nil
	}
	m.cleanup.Stop()
	if err := m.freeInCapture(); err != nil {
		return errors.Join(err, m.block.Close())
	}
	return m.block.Close()
}

// NewBuffer allocates device memory for n values. Any stream may use it at once, even one that is capturing. The memory
// is not initialized. Kernels of other devices can access it after [Context.EnablePeerAccess].
//
// The memory comes from a pool that the context has for NewBuffer alone. The pool retains the memory of closed buffers:
// see [Context.TrimMemory]. A new buffer of the same size as one closed before may get its memory without a call of the
// driver, unless the environment variable CUDABIND_NO_MEMORY_CACHE is set: set it so that compute-sanitizer finds uses
// of closed buffers. Some functions require memory of cuMemAlloc: see [BufferOptions] and [NewBufferWith]. If the
// device has no memory pools, NewBuffer calls cuMemAlloc too.
//
// It returns [ErrInvalidArgument] if T contains Go pointers or bools or has no size, [ErrRange] if n is negative, and
// driver.CUDA_ERROR_OUT_OF_MEMORY if the device has too little memory left. Source: cuMemAllocFromPoolAsync, and
// cuMemFreeAsync when closed.
func NewBuffer[T any](x *Context, n int) (*Buffer[T], error) {
	return NewBufferWith[T](x, n, BufferOptions{})
}

// NewBufferAsync allocates device memory for n values in stream order. The memory is not initialized. Other streams may
// use it once they have waited for an event recorded on s after this call. [Buffer.Close] frees the memory in the order
// of s. It returns [ErrNotSupported] if the device has no memory pools, see [Properties].
//
// If s is capturing, each launch of the graph allocates the memory, always at the same address. During the capture,
// Close and [Buffer.FreeAsync] capture the release, after all captured work that uses the memory. Memory that is not
// released in the capture stays allocated after a launch. Work on other streams that waits for the launch may use it,
// until the next launch of the executable frees it and allocates it again: the executable always has
// [InstantiateOptions].AutoFreeOnLaunch. FreeAsync frees the memory earlier. Using it outside captures before the
// first [GraphExec.Launch] returns [ErrNotAllocated]. The buffer is closed with the graph and its executables, if not
// before.
//
// A graph that allocates memory can have one executable at a time: see [AddAlloc]. Source: cuMemAllocAsync,
// cuMemFreeAsync.
func NewBufferAsync[T any](s *Stream, n int) (*Buffer[T], error) {
	const op = "NewBufferAsync"
	size, c, err := valuesIn[T](op, s, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	for {
		captures, b := c.captures.Load(), &block{size: size}
		if captured, err := b.allocateCaptured(c); err != nil {
			return nil, wrap(op, err)
		} else if captured {
			return &Buffer[T]{memory: &memory{block: b}, address: b.address, n: n}, nil
		}
		b.free = (*block).memFree
		switch err := b.allocateOn(c, c.ctx, 0); {
		case err == nil:
			return newBuffer[T](b, n), nil
		case !c.capturedSince(captures, err):
			return nil, wrap(op, err)
		}
	}
}

// memFree frees device memory, which waits for all work of the context.
func (b *block) memFree() error {
	return driver.CuMemFree(b.address)
}

func newBuffer[T any](b *block, n int) *Buffer[T] {
	all := &struct { // one allocation
		Buffer[T]
		room memory
	}{}
	all.Buffer = Buffer[T]{memory: all.room.own(b), address: b.address, n: n}
	return &all.Buffer
}

// valuesIn returns the size of n values in bytes, and acquires x, such as the context or
// the stream that the memory is for.
func valuesIn[T, C any](op string, x interface{ acquire(string) (C, error) }, n int) (size uint64, c C, err error) {
	if size, err = sizeOf[T](n); err != nil {
		return 0, c, wrap(op, err)
	}
	c, err = x.acquire(op)
	return size, c, err
}

// acquire acquires the Buffer's block for a call.
func (b *Buffer[T]) acquire(op string) (*block, error) {
	if b == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return b.memory.acquire(op)
}

// Close frees the memory after the work that uses it has completed. For memory of
// [NewBufferAsync] it enqueues the release and returns at once. For other memory it waits
// until the GPU has completed that work. If one of the streams is capturing, the release
// is deferred until the capture has ended. Closing a Buffer closes its slices too.
// Closing a slice does nothing, and neither does closing again.
func (b *Buffer[T]) Close() error {
	if b == nil || b.part {
		return nil
	}
	return b.memory.close()
}

// Len returns the number of values.
func (b *Buffer[T]) Len() int {
	if b == nil {
		return 0
	}
	return b.n
}

// Size returns the size in bytes.
func (b *Buffer[T]) Size() uint64 {
	var zero T
	return uint64(b.Len()) * uint64(unsafe.Sizeof(zero))
}

// Raw returns the device address, for calls to package driver and for other libraries. It returns
// 0 if the Buffer is empty, and once it is closed and calls of [EnqueueRaw] that use it have
// returned.
//
// The Buffer tracks only kernels that get the address by [Buffer.Arg]. If a kernel gets
// it by other means, for example inside a struct argument, name the Buffer in
// [LaunchConfig].Uses or keep it open until the kernel has completed.
func (b *Buffer[T]) Raw() driver.CUdeviceptr {
	if b == nil || b.n == 0 || b.memory == nil || b.memory.Closed() && b.memory.lent.Load() == 0 {
		return 0
	}
	return b.address
}

// some refuses an empty Buffer.
func (b *Buffer[T]) some(op string) error {
	if b.n == 0 {
		return refuse(op, ErrInvalidArgument, "the buffer is empty")
	}
	return nil
}

// Slice returns the values from index i up to but not including j, as b[i:j] does for a
// Go slice. The result shares the memory and is closed with the Buffer that owns it. It
// returns [ErrRange] if the range is not within b.
func (b *Buffer[T]) Slice(i, j int) (*Buffer[T], error) {
	const op = "Buffer.Slice"
	if b == nil || b.memory == nil || b.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	if i < 0 || j < i || j > b.n {
		return nil, refuse(op, ErrRange, "slice [%d:%d] of %d values", i, j, b.n)
	}
	part := &Buffer[T]{memory: b.memory, address: b.address, n: j - i, part: true}
	if part.n > 0 { // else the address might be that of other memory
		var zero T
		part.address += driver.CUdeviceptr(i) * driver.CUdeviceptr(unsafe.Sizeof(zero))
	}
	return part, nil
}

// Cast returns a view of the same memory as values of type U: as many as fit. The result
// is closed with b. It returns [ErrInvalidArgument] if U contains Go pointers or bools, or if the
// address is not aligned for U, and [ErrRange] if b is too short for one value but not
// empty.
func Cast[U, T any](b *Buffer[T]) (*Buffer[U], error) {
	const op = "Cast"
	if b == nil || b.memory == nil || b.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	var zero U
	size := uint64(max(unsafe.Sizeof(zero), 1))
	n := int(b.Size() / size)
	check := sizeOfSome[U]
	if b.n == 0 {
		check = sizeOf[U]
	}
	if _, err := check(n); err != nil {
		return nil, wrap(op, err)
	}
	if align := uint64(unsafe.Alignof(zero)); n > 0 && uint64(b.address)%align != 0 {
		return nil, refuse(op, ErrInvalidArgument, "address %#x is not aligned to %d bytes, as the new type requires", uint64(b.address), align)
	}
	return &Buffer[U]{memory: b.memory, address: b.address, n: n, part: true}, nil
}

// String describes the buffer for messages.
func (b *Buffer[T]) String() string {
	kind := generic[T]("Buffer")
	if b == nil || b.memory == nil {
		return neverOpened(kind)
	}
	return fmt.Sprintf("%s: %d values %s%s", kind, b.n, b.memory.place(), closedText(b.memory.Closed()))
}

func (m *memory) context() *Context {
	if m == nil {
		return nil
	}
	return m.ctx.view()
}
