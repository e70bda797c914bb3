package safe

import (
	"errors"
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

// Data returns memory that the host can access as a Go slice: memory of [NewManagedBuffer], or host or managed memory
// of a [Pool] or of [AddAllocWith]. It returns nil for other Buffers, and once the Buffer is closed. Keep b open and
// reachable, for instance by runtime.KeepAlive, as long as you use the slice: it does not keep the memory alive, which
// may have another use by then. Memory of AddAllocWith exists only from the completion of the node that allocates it
// until it is freed, and Data does not check that.
//
// The host sees what a kernel has written once it has waited for the stream. If the device's
// driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0, the process crashes when the host accesses managed memory
// while the device is working. On such a device, restrict the work that may use the memory by [Buffer.AttachAsync].
func (b *Buffer[T]) Data() []T {
	if b == nil || b.memory == nil || b.memory.host == nil || b.memory.Closed() {
		return nil
	}
	if b.n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Add(b.memory.host, b.address-b.memory.address)), b.n)
}

// AttachAsync declares which streams use managed memory after the current work of the stream: every stream
// (driver.CU_MEM_ATTACH_GLOBAL, the initial state), only the host (driver.CU_MEM_ATTACH_HOST), or only the host and
// this stream (driver.CU_MEM_ATTACH_SINGLE). CUDA does not check that the program complies. It matters on devices
// without concurrent managed access: see [Buffer.Data]. When the stream that memory is attached to is closed, every
// stream may use the memory again.
//
// It returns [ErrInvalidArgument] for memory that is not managed, for an unknown flag, and if CU_MEM_ATTACH_SINGLE
// names the legacy default stream; [ErrRange] if b is not a whole allocation; and [ErrCapturing] if the stream is
// capturing. Source: cuStreamAttachMemAsync.
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
	case b.Size() != m.size:
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

// PrefetchAsync enqueues a migration of managed memory to a location, so that later work
// does not stall on page faults. It works on whole pages. It blocks while 48 prefetches or
// more are pending on the stream.
//
// It returns [ErrNotSupported] unless the stream's device, and the device that is the
// location, have driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
// [ErrInvalidArgument] if the memory is not managed or there is no location; and
// [ErrCapturing] if the stream is capturing. A NUMA node as the location needs a driver
// of CUDA 12.2.
// Source: cuMemPrefetchAsync.
func (b *Buffer[T]) PrefetchAsync(s *Stream, to Location) error {
	const op = "Buffer.PrefetchAsync"
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
	if err := m.movable(op); err != nil {
		return err
	}
	if err := to.check(op); err != nil {
		return err
	}
	if _, err := c.ctx.device.needs(op, driver.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS); err != nil {
		return err
	}
	if b.n == 0 {
		return nil
	}
	return c.enqueueCurrent(op, prefetchPlaces, []*block{m}, "a prefetch cannot be captured", func() error { return prefetch(b.address, b.Size(), to, c.raw) })
}

// movable refuses a block that is not managed memory.
func (b *block) movable(op string) error {
	if !b.managed() {
		return refuse(op, ErrInvalidArgument, "the buffer is not managed memory: see NewManagedBuffer")
	}
	return nil
}

// Advise tells CUDA how managed memory will be used: mostly read
// (driver.CU_MEM_ADVISE_SET_READ_MOSTLY), best kept at a location
// (CU_MEM_ADVISE_SET_PREFERRED_LOCATION), accessed by the host or a device
// (CU_MEM_ADVISE_SET_ACCESSED_BY); or that one of these no longer applies. It takes
// effect at once, on whole pages, and migrates nothing. The READ_MOSTLY pair and
// CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION ignore the location, which may be the zero
// value.
//
// It returns [ErrInvalidArgument] if the memory is not managed, or if a location is
// needed and missing. A NUMA node as the location needs a driver for CUDA 12.2.
// Source: cuMemAdvise.
func (b *Buffer[T]) Advise(advice driver.CUmem_advise, at Location) error {
	const op = "Buffer.Advise"
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := m.movable(op); err != nil {
		return err
	}
	switch advice {
	case driver.CU_MEM_ADVISE_SET_READ_MOSTLY, driver.CU_MEM_ADVISE_UNSET_READ_MOSTLY, driver.CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		at = HostLocation // any valid one: some drivers check it
	}
	if err := at.check(op); err != nil {
		return err
	}
	if b.n == 0 {
		return nil
	}
	return wrap(op, m.ctx.withCurrent(func() error {
		err := driver.CuMemAdvise_v2(b.address, b.Size(), advice, at.raw())
		if d, ok := at.device(); ok && errors.Is(err, ErrNotSupported) { // before CUDA 12.2
			err = driver.CuMemAdvise_v1(b.address, b.Size(), advice, d)
		}
		return err
	}))
}
