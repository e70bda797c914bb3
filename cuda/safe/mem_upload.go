package safe

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Upload allocates a Buffer with a copy of v, which may be empty. It returns when the copy
// has completed. The errors are those of [NewBuffer] and [Buffer.CopyFromHost].
// Source: cuMemAllocFromPoolAsync, cuMemcpyHtoDAsync, cuStreamSynchronize, and
// cuMemFreeAsync when closed.
func Upload[T any](x *Context, v []T) (*Buffer[T], error) {
	return newFilled("Upload", x, len(v), func(b *Buffer[T]) error { return b.CopyFromHost(v) })
}

// NewZeroed allocates device memory for n values and sets all its bytes to 0. It returns when the memory is cleared.
// The errors are those of NewBuffer. Source: cuMemAllocFromPoolAsync, cuMemsetD8Async, cuStreamSynchronize, and
// cuMemFreeAsync when closed.
func NewZeroed[T any](x *Context, n int) (*Buffer[T], error) {
	return newFilled("NewZeroed", x, n, func(b *Buffer[T]) error { return b.Fill(*new(T)) })
}

// newFilled allocates a Buffer and calls fill for it.
func newFilled[T any](op string, x *Context, n int, fill func(*Buffer[T]) error) (*Buffer[T], error) {
	b, err := NewBuffer[T](x, n)
	if err != nil {
		return nil, wrap(op, err)
	}
	if err := fill(b); err != nil {
		return nil, errors.Join(wrap(op, err), b.Close())
	}
	return b, nil
}

// Download returns a copy of the values. It waits for all work that uses b, and returns when the copy has completed. It
// returns [ErrCapturing] if a stream that uses b is capturing. Source: cuMemcpyDtoHAsync, cuStreamSynchronize.
func (b *Buffer[T]) Download() ([]T, error) {
	v := make([]T, b.Len())
	if err := b.CopyToHost(v); err != nil {
		return nil, wrap("Buffer.Download", err)
	}
	return v, nil
}

// BorrowBuffer wraps n values of device memory that other code has allocated. Close does
// not free the memory, and waits for nothing. owner, which may be nil, stays reachable until the
// Buffer is closed and the work that uses it has completed. It returns [ErrRange] if the
// allocation at address is too short. If n is 0, the address is not checked.
// Source: cuMemGetAddressRange.
func BorrowBuffer[T any](x *Context, address driver.CUdeviceptr, n int, owner any) (*Buffer[T], error) {
	const op = "BorrowBuffer"
	b := &block{address: address, owner: owner}
	return foreignBuffer[T](op, x, n, b, func(size uint64) error {
		if size == 0 {
			b.address = 0
			return nil
		}
		_, err := b.inAllocation(op, size)
		return err
	})
}

// BufferFromRaw takes ownership of device or managed memory that other code has allocated with
// cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged or cuMemAllocAsync: Close frees it once the work
// that uses it has completed. Close does not wait for work that was enqueued before by other
// means.
//
// n may be less than the allocation has. It returns [ErrRange] if n is more or below 1,
// [ErrContextMismatch] if the memory belongs to another context, and [ErrInvalidArgument]
// if address is not the beginning of an allocation, or lies in host memory. The caller
// still owns the memory then.
// Source: cuMemGetAddressRange, cuPointerGetAttributes, and cuMemFree when closed.
func BufferFromRaw[T any](x *Context, address driver.CUdeviceptr, n int) (*Buffer[T], error) {
	const op = "BufferFromRaw"
	b := &block{address: address, free: (*block).memFree}
	return foreignBuffer[T](op, x, n, b, func(size uint64) error {
		if size == 0 {
			return refuse(op, ErrRange, "0 values, but there must be at least 1")
		}
		start, err := b.inAllocation(op, size)
		if err == nil && start != address {
			err = refuse(op, ErrInvalidArgument, "the allocation begins at %#x, not at %#x; use BorrowBuffer for a part of it", uint64(start), uint64(address))
		}
		if err == nil {
			err = b.describe(op)
		}
		return err
	})
}

// foreignBuffer makes a Buffer of the memory of b, which check checks with the context
// current.
func foreignBuffer[T any](op string, x *Context, n int, b *block, check func(size uint64) error) (*Buffer[T], error) {
	size, c, err := valuesIn[T](op, x, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b.ctx, b.size, b.foreign = c, size, size > 0
	if err := c.withCurrent(func() error { return check(size) }); err != nil {
		return nil, wrap(op, err)
	}
	if err := b.Open(b, &c.Handle); err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// inAllocation returns the beginning of the allocation that has size bytes at the block's
// address. The context is current.
func (b *block) inAllocation(op string, size uint64) (start driver.CUdeviceptr, err error) {
	var all uint64
	if err := driver.CuMemGetAddressRange(&start, &all, b.address); err != nil {
		return 0, err
	}
	if end := uint64(start) + all; size > end-uint64(b.address) {
		return 0, refuse(op, ErrRange, "%d bytes at %#x, but the allocation ends %d bytes after that address", size, b.address, end-uint64(b.address))
	}
	return start, nil
}

// describe asks the driver what kind of memory the block is, which must be memory that
// cuMemFree frees. The context is current.
func (b *block) describe(op string) error {
	p, err := askPointer(b.address)
	switch {
	case err != nil:
		return err
	case p.kind == 0:
		return refuse(op, ErrInvalidArgument, "%#x is unregistered memory", uint64(b.address))
	case p.kind != driver.CU_MEMORYTYPE_DEVICE && !p.managed:
		return refuse(op, ErrInvalidArgument, "%#x is host memory", uint64(b.address))
	case p.ctx != 0 && p.ctx != b.ctx.raw:
		return refuse(op, ErrContextMismatch, "the memory belongs to context %#x, not to %#x", uintptr(p.ctx), uintptr(b.ctx.raw))
	case p.ctx == 0 && p.pool == 0:
		return refuse(op, ErrInvalidArgument, "%#x is not memory of cuMemAlloc or of a pool", uint64(b.address))
	case p.ctx == 0 && p.device != b.ctx.device.raw:
		return refuse(op, ErrContextMismatch, "the memory is on device %d, the context on %v", p.device, b.ctx.device)
	}
	if p.managed {
		b.host = hostPointer(b.address)
	}
	return nil
}
