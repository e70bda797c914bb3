package safe

import (
	"errors"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

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
	return c.enqueueCurrent(op, prefetchWork, []*block{m}, "a prefetch cannot be captured", func() error { return prefetch(b.address, b.Size(), to, c.raw) })
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

// RangeAttributes are the advice and the prefetches that apply to managed memory. A field
// that does not hold for all of the memory is false, or no location.
type RangeAttributes struct {
	ReadMostly        bool
	PreferredLocation Location
	AccessedBy        []Location // devices and the host
	// LastPrefetch is the target of the last prefetch, which may not have completed.
	LastPrefetch Location
}

// RangeAttributes returns the effect of [Buffer.Advise] and [Buffer.PrefetchAsync] on the
// memory. It returns [ErrInvalidArgument] if the memory is not managed.
// Source: cuMemRangeGetAttribute.
func (b *Buffer[T]) RangeAttributes() (RangeAttributes, error) {
	const op = "Buffer.RangeAttributes"
	var a RangeAttributes
	m, err := b.acquire(op)
	if err != nil {
		return a, err
	}
	defer m.Release()
	if err := m.movable(op); err != nil {
		return a, err
	}
	if err := b.some(op); err != nil {
		return a, err
	}
	devices, err := Devices()
	if err != nil {
		return a, wrap(op, err)
	}
	r := memRange{b.address, b.Size()}
	err = m.ctx.withCurrent(func() error {
		var readMostly [1]int32
		by := make([]int32, len(devices)+1) // and the host
		err := r.ask(driver.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, readMostly[:])
		if err == nil {
			err = r.ask(driver.CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, by)
		}
		if err == nil {
			a.PreferredLocation, err = r.location(driver.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
				driver.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, driver.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID)
		}
		if err == nil {
			a.LastPrefetch, err = r.location(driver.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
				driver.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, driver.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID)
		}
		a.ReadMostly = readMostly[0] != 0
		for _, d := range by {
			if l := locationOf(driver.CUdevice(d)); err == nil && l != (Location{}) {
				a.AccessedBy = append(a.AccessedBy, l)
			}
		}
		return err
	})
	if err != nil {
		return RangeAttributes{}, wrap(op, err)
	}
	return a, nil
}

// memRange is a range of managed memory.
type memRange struct {
	address driver.CUdeviceptr
	size    uint64
}

func (r memRange) ask(a driver.CUmem_range_attribute, values []int32) error {
	return driver.CuMemRangeGetAttribute(unsafe.Pointer(&values[0]), uint64(4*len(values)), a, r.address, r.size)
}

// location returns an attribute that is a location. Drivers older than CUDA 12.2 report
// it as a device.
func (r memRange) location(device, kind, id driver.CUmem_range_attribute) (Location, error) {
	var v [2]int32
	if rt.Version < 12020 {
		err := r.ask(device, v[:1])
		return locationOf(driver.CUdevice(v[0])), err
	}
	err := errors.Join(r.ask(kind, v[:1]), r.ask(id, v[1:]))
	l := Location{Type: driver.CUmemLocationType(v[0]), ID: int(v[1])}
	if l.Type != driver.CU_MEM_LOCATION_TYPE_DEVICE && l.Type != driver.CU_MEM_LOCATION_TYPE_HOST_NUMA {
		l.ID = 0
	}
	return l, err
}
