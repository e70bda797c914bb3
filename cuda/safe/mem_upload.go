package safe

import "errors"

// Upload allocates a Buffer with a copy of v, which may be empty. It returns when the copy
// has completed. The errors are those of [NewBuffer] and [Buffer.CopyFromHost].
// Source: cuMemAllocFromPoolAsync, cuMemcpyHtoDAsync, cuStreamSynchronize, and
// cuMemFreeAsync when closed.
func Upload[T any](x *Context, v []T) (*Buffer[T], error) {
	return newFilled("Upload", x, len(v), func(b *Buffer[T]) error { return b.CopyFromHost(v) })
}

// NewZeroed is [NewBuffer] with all bytes of the memory set to 0. It returns when the
// memory is cleared. The errors are those of NewBuffer.
// Source: cuMemAllocFromPoolAsync, cuMemsetD8Async, cuStreamSynchronize, and
// cuMemFreeAsync when closed.
func NewZeroed[T any](x *Context, n int) (*Buffer[T], error) {
	return newFilled("NewZeroed", x, n, (*Buffer[T]).Zero)
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

// Download returns a copy of the values. It waits for all work that uses b, and returns
// when the copy has completed: see [Buffer.CopyToHost].
// Source: cuMemcpyDtoHAsync, cuStreamSynchronize.
func (b *Buffer[T]) Download() ([]T, error) {
	v := make([]T, b.Len())
	if err := b.CopyToHost(v); err != nil {
		return nil, wrap("Buffer.Download", err)
	}
	return v, nil
}
