package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// NewManagedBuffer allocates managed memory for n values, which has one address
// for the host and all devices; pages move to where they are used. It is a buffer
// like others, and [Buffer.Data] is for the host. [WaitValue] and its like do not
// work on it. A device without managed memory is [ErrNotSupported].
// Source: cuMemAllocManaged, and cuMemFree when closed.
func NewManagedBuffer[T any](x *Context, n int) (*Buffer[T], error) {
	const op = "NewManagedBuffer"
	size, c, err := valuesIn[T](op, x, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if _, err := c.device.needs(op, driver.CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY); err != nil {
		return nil, err
	}
	b := &block{size: size, free: (*block).memFree}
	err = b.allocate(c, func() error {
		if err := driver.CuMemAllocManaged(&b.address, size, uint32(driver.CU_MEM_ATTACH_GLOBAL)); err != nil {
			return err
		}
		b.host = *(*unsafe.Pointer)(unsafe.Pointer(&b.address))
		return nil
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// managed tells that a Buffer's block is managed memory. The host reaches no other
// of a Buffer, but that of a pool of host memory.
func (b *block) managed() bool { return b.host != nil && (b.pool == nil || b.pool.managed) }

// Data is the memory of [NewManagedBuffer], or of a [Pool] of memory that the host
// reaches, as a Go slice; nil for other buffers, and once the buffer is closed. It is
// not the garbage collector's: keep b reachable as long as the slice is used.
//
// The host sees what a kernel has written once it has waited for the stream.
// Where driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS of the device is 0,
// the process crashes if the host touches managed memory while the device works,
// unless [Buffer.AttachAsync] has said which work that may be.
func (b *Buffer[T]) Data() []T {
	if b == nil || b.memory == nil || b.memory.Closed() || b.memory.host == nil {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Add(b.memory.host, b.address-b.memory.address)), b.n)
}

// AttachAsync says, behind the work that is on the stream now, who will use
// managed memory: every stream (driver.CU_MEM_ATTACH_GLOBAL, as it is in the
// beginning), the host alone (driver.CU_MEM_ATTACH_HOST), or this stream and the
// host (driver.CU_MEM_ATTACH_SINGLE). It is a promise, which nobody checks, and which
// matters on devices that [Buffer.Data] speaks of. When a stream that memory is
// attached to is closed, every stream may use it again.
//
// The buffer must be all of a managed block, else the error is [ErrRange], or
// [ErrInvalidArgument] where it is other memory. The legacy default stream takes no memory
// for itself, which is [ErrInvalidArgument], and a stream that captures is [ErrCapturing].
// Source: cuStreamAttachMemAsync.
func (b *Buffer[T]) AttachAsync(s *Stream, to driver.CUmemAttach_flags) error {
	const op = "Buffer.AttachAsync"
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	switch {
	case !m.managed():
		return refuse(op, ErrInvalidArgument, "the buffer is not managed memory")
	case b.address != m.address || b.Size() != m.size:
		return refuse(op, ErrRange, "%d bytes of a block of %d, which can be attached as a whole only", b.Size(), m.size)
	case to != driver.CU_MEM_ATTACH_GLOBAL && to != driver.CU_MEM_ATTACH_HOST && to != driver.CU_MEM_ATTACH_SINGLE:
		return refuse(op, ErrInvalidArgument, "%v is not one of the ways to attach", to)
	case to == driver.CU_MEM_ATTACH_SINGLE && c.raw <= driver.CU_STREAM_PER_THREAD:
		return refuse(op, ErrInvalidArgument, "the default stream cannot have memory for itself")
	}
	return c.enqueueCurrent(op, []*block{m}, "attaching memory cannot be captured", func() error {
		return driver.CuStreamAttachMemAsync(c.raw, m.address, 0, uint32(to))
	})
}
