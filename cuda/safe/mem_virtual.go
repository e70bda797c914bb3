package safe

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// AddressRange is a range of addresses for kernels, without memory: see
// [AddressRange.Map]. Any number of goroutines may use it at once.
//
// What grows is made so: reserve more than will ever be needed, map as much as is
// needed now, and map more behind it later. Addresses stay what they are.
type AddressRange struct {
	core    *rangeCore
	cleanup runtime.Cleanup
}

type rangeCore struct {
	lifetime.Handle
	ctx     *contextCore
	address driver.CUdeviceptr
	size    uint64
	uses    streamUses // by work of all that is mapped

	mu       sync.Mutex
	mappings []*mapping // in the order of their addresses, as long as CUDA has them
}

// A mapping is a part of a range that has memory. It lives until it is unmapped
// and no window shows it.
type mapping struct {
	lifetime.Handle
	space        *rangeCore
	offset, size uint64
	access       sync.Map // of driver.CUdevice to driver.CUmemAccess_flags
	last         pendingWork
	cleanup      runtime.Cleanup
}

func (m *mapping) end() uint64 { return m.offset + m.size }

// ReserveOptions are the choices at [ReserveAddress]. The zero value is CUDA's default.
type ReserveOptions struct {
	// Alignment of the first address in bytes, a power of two.
	Alignment uint64
	// Address is where the range should begin. CUDA may choose another place.
	Address driver.CUdeviceptr
}

// ReserveAddress reserves addresses for at least size bytes; they are rounded up
// to the granularity of the device's memory. It takes no memory. A device without
// virtual memory is [ErrNotSupported].
// Source: cuMemAddressReserve, cuMemGetAllocationGranularity, and
// cuMemAddressFree when closed.
func ReserveAddress(x *Context, size uint64, o ReserveOptions) (*AddressRange, error) {
	const op = "ReserveAddress"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if o.Alignment&(o.Alignment-1) != 0 {
		return nil, refuse(op, ErrInvalidArgument, "an alignment of %d, which is no power of two", o.Alignment)
	}
	if _, err := c.device.needs(op, driver.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED); err != nil {
		return nil, err
	}
	r := &rangeCore{ctx: c}
	properties := PhysicalMemoryOptions{}.properties(c)
	err = c.withCurrent(func() error {
		var err error
		if r.size, _, err = measure(op, size, &properties); err != nil {
			return err
		}
		return driver.CuMemAddressReserve(&r.address, r.size, o.Alignment, o.Address, 0)
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	if err := r.Open(r, &c.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, r.Destroy(true)))
	}
	u := &AddressRange{core: r}
	u.cleanup = lifetime.Cleanup(u, &r.Handle)
	return u, nil
}

func (r *rangeCore) Kind() string { return "AddressRange" }

func (r *rangeCore) Destroy(bool) error {
	return r.ctx.releasing("AddressRange.Close", func() error {
		var err error
		for _, m := range r.mappings { // which could not be unmapped before
			err = errors.Join(err, driver.CuMemUnmap(r.address+driver.CUdeviceptr(m.offset), m.size))
		}
		return errors.Join(err, driver.CuMemAddressFree(r.address, r.size))
	})
}

// acquire marks the range for a call.
func (r *AddressRange) acquire(op string) (*rangeCore, error) {
	if r == nil || r.core == nil || !r.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return r.core, nil
}

// Close unmaps what is mapped, once the work that uses it is done, which it waits
// for, and gives the addresses back. Where one of the streams captures, that is
// put off until the capture has ended; and where buffers of [NewMappedBuffer] are
// open, or graphs use them, until the last of those is closed. Closing again does
// nothing. Source: cuMemUnmap, cuMemAddressFree.
func (r *AddressRange) Close() error {
	if r == nil || r.core == nil {
		return nil
	}
	r.cleanup.Stop()
	c := r.core
	err := c.Close() // nothing can be mapped any more
	for _, m := range c.mapped() {
		err = errors.Join(err, m.unmap())
	}
	return err
}

// mapped lists the mappings.
func (r *rangeCore) mapped() []*mapping {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mappings)
}

// Size is how many bytes there are addresses for, a multiple of the granularity.
func (r *AddressRange) Size() uint64 {
	if r == nil || r.core == nil {
		return 0
	}
	return r.core.size
}

// Raw is the first address, for calls of package driver and for other libraries.
// It is 0 once the range is closed; keep r reachable meanwhile. Work
// that the program enqueues with it is not known here: wait for it before
// anything is unmapped.
func (r *AddressRange) Raw() driver.CUdeviceptr {
	if r == nil || r.core == nil || r.core.Closed() {
		return 0
	}
	return r.core.address
}

// Map puts all of p's memory at an offset in bytes, which must be a multiple of
// its granularity. p may be of another device, may be mapped several times and
// may be closed afterwards. No device can reach the memory before
// [AddressRange.SetAccess]. Outside of the range, or where something is mapped
// already, the error is [ErrRange]. Source: cuMemMap.
func (r *AddressRange) Map(offset uint64, p *PhysicalMemory) error {
	const op = "AddressRange.Map"
	c, err := r.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	physical, err := p.acquire(op)
	if err != nil {
		return err
	}
	defer physical.Release()
	size := physical.size
	if offset%physical.granule != 0 {
		return refuse(op, ErrInvalidArgument, "offset %d is no multiple of the granularity, %d", offset, physical.granule)
	}
	if size > c.size || offset > c.size-size {
		return refuse(op, ErrRange, "%d bytes at offset %d of %d", size, offset, c.size)
	}
	m := &mapping{space: c, offset: offset, size: size}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Closed() { // whoever closes the range unmaps what is there afterwards
		return &Error{Op: op, Err: ErrClosed}
	}
	at, _ := slices.BinarySearchFunc(c.mappings, offset, func(m *mapping, offset uint64) int { return cmpEnd(m, offset) })
	if at < len(c.mappings) && c.mappings[at].offset < m.end() {
		taken := c.mappings[at]
		return refuse(op, ErrRange, "%d bytes at offset %d are mapped already%s", taken.size, taken.offset, taken.why())
	}
	err = c.ctx.withCurrent(func() error { return driver.CuMemMap(c.address+driver.CUdeviceptr(offset), size, 0, physical.raw, 0) })
	if err != nil {
		return wrap(op, err)
	}
	c.mappings = slices.Insert(c.mappings, at, m)
	if err := m.Open(m, &c.Handle); err != nil { // cannot be: the range is marked
		return wrap(op, err)
	}
	m.Untracked() // a leak of the range is reported once
	m.cleanup = lifetime.Cleanup(r, &m.Handle)
	return nil
}

// cmpEnd finds the first mapping that ends behind an offset.
func cmpEnd(m *mapping, offset uint64) int {
	if m.end() <= offset {
		return -1
	}
	return 1
}

// why says what keeps a mapping that was unmapped.
func (m *mapping) why() string {
	if m.Closed() {
		return ": it was unmapped, and buffers of it are open, or work that uses it is not done"
	}
	return ""
}

// Unmap takes the memory away from a part of the range, which must hold whole
// mappings, one at least, else the error is [ErrRange]. It waits for work that
// uses the range. As with [AddressRange.Close], captures, open buffers and graphs
// that use the part put it off. Source: cuMemUnmap.
func (r *AddressRange) Unmap(offset, size uint64) error {
	const op = "AddressRange.Unmap"
	c, err := r.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	c.mu.Lock()
	part, err := c.within(op, offset, size)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if len(part) == 0 {
		return refuse(op, ErrRange, "nothing is mapped in %d bytes at offset %d", size, offset)
	}
	for _, m := range part {
		err = errors.Join(err, m.unmap())
	}
	return wrap(op, err)
}

// within lists the mappings in a part of the range, which must hold no half ones. mu is held.
func (r *rangeCore) within(op string, offset, size uint64) ([]*mapping, error) {
	if size > r.size || offset > r.size-size {
		return nil, refuse(op, ErrRange, "%d bytes at offset %d of %d", size, offset, r.size)
	}
	var part []*mapping
	for _, m := range r.mappings {
		if m.end() <= offset || m.offset >= offset+size {
			continue
		}
		if m.offset < offset || m.end() > offset+size {
			return nil, refuse(op, ErrRange, "%d bytes at offset %d have only a part of the %d that are mapped at %d", size, offset, m.size, m.offset)
		}
		part = append(part, m)
	}
	return part, nil
}

// unmap is the Close of a mapping.
func (m *mapping) unmap() error {
	m.cleanup.Stop()
	return m.Close()
}

func (m *mapping) Kind() string { return "mapped part of an AddressRange" }

// destroy unmaps behind all work that uses the range.
func (m *mapping) Destroy(wait bool) error {
	r := m.space
	for !m.last.over(&r.uses, wait) {
		if !wait || !m.last.marked {
			return lifetime.ErrLater
		}
		m.last.wait()
	}
	if !wait {
		return &lifetime.Elsewhere{Queue: &r.ctx.shared.frees}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.ctx.releasing("AddressRange.Unmap", func() error { return driver.CuMemUnmap(r.address+driver.CUdeviceptr(m.offset), m.size) })
	if err == nil { // else there is another try when the addresses are given back
		r.mappings = slices.DeleteFunc(r.mappings, func(o *mapping) bool { return o == m })
	}
	return err
}
