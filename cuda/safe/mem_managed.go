package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// NewManagedBuffer allocates managed memory for n values. Host and devices access it at
// the same address; the driver moves pages to where they are used. The result behaves as
// any other Buffer, and [Buffer.Data] gives the host access. [WaitValue] and [WriteValue]
// do not work on managed memory. It returns [ErrNotSupported] if the device has no
// managed memory, [ErrInvalidArgument] if T contains Go pointers or bools or has no size, and
// [ErrRange] if n is negative.
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
	b := &block{size: size, host: unsafe.Pointer(&ofNothing), free: (*block).memFree}
	err = b.allocate(c, b.unlessEmpty(func() error {
		if err := driver.CuMemAllocManaged(&b.address, size, driver.CU_MEM_ATTACH_GLOBAL); err != nil {
			return err
		}
		b.host = hostPointer(b.address)
		return nil
	}))
	if err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// hostPointer returns an address of managed memory as a pointer of the host.
func hostPointer(address driver.CUdeviceptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// managed reports whether a Buffer's block is managed memory. The host can also access
// host memory of pools and graphs.
func (b *block) managed() bool {
	return b.host != nil && !b.onHost && (b.pool == nil || b.pool.managed)
}

// Data returns memory that the host can access as a Go slice: memory of
// [NewManagedBuffer], or host or managed memory of a [Pool] or of [AddAllocWith]. It
// returns nil for other Buffers, and once the Buffer is closed. Keep b open and reachable, for instance by runtime.KeepAlive, as long as you use the
// slice: it does not keep the memory alive, and a later access corrupts whatever has the
// memory by then. Memory of AddAllocWith exists only from the completion of the node that
// allocates it until it is freed, and Data does not check that.
//
// The host sees what a kernel has written once it has waited for the stream. If the
// device's driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0, the process crashes
// when the host accesses managed memory while the device is working. On such a device,
// restrict the work that may use the memory by [Buffer.AttachAsync].
func (b *Buffer[T]) Data() []T {
	if b == nil || b.memory == nil || b.memory.host == nil || b.memory.Closed() {
		return nil
	}
	if b.n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Add(b.memory.host, b.address-b.memory.address)), b.n)
}

// AttachAsync declares who uses managed memory after the work that is on the stream now:
// every stream (driver.CU_MEM_ATTACH_GLOBAL, the initial state), only the host
// (driver.CU_MEM_ATTACH_HOST), or only the host and this stream
// (driver.CU_MEM_ATTACH_SINGLE). CUDA does not check that the program complies. It
// matters on devices without concurrent managed access: see [Buffer.Data]. When the
// stream that memory is attached to is closed, every stream may use the memory again.
//
// It returns [ErrInvalidArgument] for memory that is not managed, for an unknown flag,
// and if CU_MEM_ATTACH_SINGLE names the legacy default stream; [ErrRange] if b is not a
// whole allocation; and [ErrCapturing] if the stream is capturing.
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
		return refuse(op, ErrInvalidArgument, "the buffer is not managed memory: see NewManagedBuffer")
	case b.address != m.address || b.Size() != m.size:
		return refuse(op, ErrRange, "%d bytes of an allocation of %d: only a whole allocation can be attached", b.Size(), m.size)
	case to != driver.CU_MEM_ATTACH_GLOBAL && to != driver.CU_MEM_ATTACH_HOST && to != driver.CU_MEM_ATTACH_SINGLE:
		return refuse(op, ErrInvalidArgument, "%v is not a CUmemAttach_flags value", to)
	case to == driver.CU_MEM_ATTACH_SINGLE && c.raw <= driver.CU_STREAM_PER_THREAD:
		return refuse(op, ErrInvalidArgument, "memory cannot be attached to the default stream alone")
	}
	if m.size == 0 {
		return nil
	}
	c.reveal()
	return c.enqueueCurrent(op, 1, []*block{m}, "attaching memory cannot be captured", func() error {
		return driver.CuStreamAttachMemAsync(c.raw, m.address, 0, to)
	})
}
