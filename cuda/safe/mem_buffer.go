package safe

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Buffer is memory of a device, for n values of type T, which must hold no Go
// pointers. Any number of goroutines may use it at once.
//
// A buffer remembers which streams use it. Close, and the garbage collector,
// give the memory back behind that work, and synchronous copies wait for it.
// Work that the program enqueues by other means, such as package driver, is not
// known: keep the buffer open until it is done.
type Buffer[T any] struct {
	memory  *memory
	address driver.CUdeviceptr
	n       int
	part    bool // of another buffer, whose memory it is
}

// memory is what a buffer and its slices share: the block is closed when none
// of them can be reached any more.
type memory struct {
	*block
	cleanup runtime.Cleanup
}

func newMemory(b *block) *memory {
	m := &memory{block: b}
	m.cleanup = lifetime.Cleanup(m, &b.Handle)
	return m
}

// acquire marks the memory for a call.
func (m *memory) acquire(op string) (*block, error) {
	if m == nil || !m.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return m.block, nil
}

// close is the Close of the buffer that owns the memory.
func (m *memory) close() error {
	if m == nil {
		return nil
	}
	m.cleanup.Stop()
	return m.block.Close()
}

// NewBuffer allocates memory for n values. It is not cleared.
// Source: cuMemAlloc, and cuMemFree when closed.
func NewBuffer[T any](x *Context, n int) (*Buffer[T], error) {
	const op = "NewBuffer"
	size, c, err := valuesIn[T](op, x, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{size: size, free: (*block).memFree}
	if err := b.allocate(c, func() error { return driver.CuMemAlloc(&b.address, size) }); err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// NewBufferAsync allocates memory for n values in the order of a stream: other
// streams may use it once they have waited for an event behind this call. Close
// frees it in the same order. The device must have memory pools, see
// [Properties]; a stream that captures is refused with [ErrCapturing].
// Source: cuMemAllocAsync, cuMemFreeAsync.
func NewBufferAsync[T any](s *Stream, n int) (*Buffer[T], error) {
	const op = "NewBufferAsync"
	size, c, err := valuesIn[T](op, s, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{size: size, free: (*block).memFree}
	err = b.allocateOn(c, c.ctx, func() error {
		if code := rt.AllocAsync(c.callContext, &b.address, size, c.raw); code != 0 {
			return code
		}
		return nil
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// BorrowBuffer makes memory of n values that somebody else has allocated usable
// here, and never frees it. owner, which may be nil, is kept alive as long as
// the Buffer is. Source: cuMemGetAddressRange.
func BorrowBuffer[T any](x *Context, address driver.CUdeviceptr, n int, owner any) (*Buffer[T], error) {
	const op = "BorrowBuffer"
	size, c, err := valuesIn[T](op, x, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	err = c.withCurrent(func() error {
		var start driver.CUdeviceptr
		var all uint64
		if err := driver.CuMemGetAddressRange(&start, &all, address); err != nil {
			return err
		}
		if size > uint64(start)+all-uint64(address) {
			return refuse(op, ErrRange, "%d bytes at %#x, where the allocation has %d more", size, address, uint64(start)+all-uint64(address))
		}
		return nil
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	b := &block{ctx: c, address: address, size: size, owner: owner}
	if err := b.Open(b, &c.Handle); err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// memFree frees memory of a device.
func (b *block) memFree() error { return driver.CuMemFree(b.address) }

func newBuffer[T any](b *block, n int) *Buffer[T] {
	return &Buffer[T]{memory: newMemory(b), address: b.address, n: n}
}

// pointerFree remembers which types hold no Go pointers.
var pointerFree sync.Map // of reflect.Type to bool

func holdsNoPointers(t reflect.Type) bool {
	if known, ok := pointerFree.Load(t); ok {
		return known.(bool)
	}
	free := false
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		free = true
	case reflect.Array:
		free = t.Len() == 0 || holdsNoPointers(t.Elem())
	case reflect.Struct:
		free = true
		for i := range t.NumField() {
			free = free && holdsNoPointers(t.Field(i).Type)
		}
	}
	pointerFree.Store(t, free)
	return free
}

// sizeOf is the size of n values in bytes, if there can be a buffer of them.
func sizeOf[T any](n int) (uint64, error) {
	var zero T
	t := reflect.TypeFor[T]()
	size := uint64(unsafe.Sizeof(zero))
	switch {
	case !holdsNoPointers(t):
		return 0, fmt.Errorf("%w: type %v holds Go pointers, which mean nothing to a device", ErrInvalidArgument, t)
	case size == 0:
		return 0, fmt.Errorf("%w: type %v has no size", ErrInvalidArgument, t)
	case n <= 0 || uint64(n) > math.MaxInt64/size:
		return 0, fmt.Errorf("%w: %d values of %v", ErrRange, n, t)
	}
	return uint64(n) * size, nil
}

// valuesIn is the size of n values, and what they are to be in, a context say, marked.
func valuesIn[T, C any](op string, x interface{ acquire(string) (C, error) }, n int) (size uint64, c C, err error) {
	if size, err = sizeOf[T](n); err != nil {
		return 0, c, wrap(op, err)
	}
	c, err = x.acquire(op)
	return size, c, err
}

// acquire marks the buffer's memory for a call.
func (b *Buffer[T]) acquire(op string) (*block, error) {
	if b == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return b.memory.acquire(op)
}

// Close gives the memory back, once the work that uses it is done: memory of
// [NewBufferAsync] in the order of its stream, at once for the caller; other
// memory when the GPU has done that work, which Close waits for. Where one of the streams
// captures, that is put off until the capture has ended. Slices of the buffer
// are closed with it; closing a slice does nothing, and so does closing again.
func (b *Buffer[T]) Close() error {
	if b == nil || b.part {
		return nil
	}
	return b.memory.close()
}

// Len is the number of values.
func (b *Buffer[T]) Len() int {
	if b == nil {
		return 0
	}
	return b.n
}

// Size is the size in bytes.
func (b *Buffer[T]) Size() uint64 {
	var zero T
	return uint64(b.Len()) * uint64(unsafe.Sizeof(zero))
}

// Raw is the address for calls of package driver and for other libraries, 0 once
// the buffer is closed. Work that gets the address by other means than [Buffer.Arg],
// also inside a struct that is an argument of a kernel, is not known to use the
// buffer: name the buffer in [LaunchConfig].Uses, or keep it open until that work is done.
func (b *Buffer[T]) Raw() driver.CUdeviceptr {
	if b == nil || b.memory == nil || b.memory.Closed() {
		return 0
	}
	return b.address
}

// Slice is the part of the buffer from value i up to value j, as b[i:j] of a Go
// slice. It shares the memory, and is closed with the buffer it was made of.
func (b *Buffer[T]) Slice(i, j int) (*Buffer[T], error) {
	const op = "Buffer.Slice"
	if b == nil || b.memory == nil || b.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	if i < 0 || j <= i || j > b.n {
		return nil, refuse(op, ErrRange, "[%d:%d] of %d values", i, j, b.n)
	}
	var zero T
	return &Buffer[T]{memory: b.memory, address: b.address + driver.CUdeviceptr(i)*driver.CUdeviceptr(unsafe.Sizeof(zero)), n: j - i, part: true}, nil
}

// Cast is the same memory as values of another type, as many as fit.
func Cast[U, T any](b *Buffer[T]) (*Buffer[U], error) {
	const op = "Cast"
	if b == nil || b.memory == nil || b.memory.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	var zero U
	size := uint64(max(unsafe.Sizeof(zero), 1))
	n := int(b.Size() / size)
	if _, err := sizeOf[U](n); err != nil {
		return nil, wrap(op, err)
	}
	if align := uint64(unsafe.Alignof(zero)); uint64(b.address)%align != 0 {
		return nil, refuse(op, ErrInvalidArgument, "%#x is not aligned to %d bytes", uint64(b.address), align)
	}
	return &Buffer[U]{memory: b.memory, address: b.address, n: n, part: true}, nil
}
