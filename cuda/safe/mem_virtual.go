package safe

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// AddressRange is a reserved range of device addresses without memory: [AddressRange.Map]
// maps memory into it. Any number of goroutines may use it at once.
//
// Use it for memory that grows in place: reserve more addresses than you will ever need,
// map the memory that you need now, and map more after it later. Addresses never change.
type AddressRange struct {
	core    *rangeCore
	cleanup lifetime.Cleanup
}

type rangeCore struct {
	lifetime.Handle
	ctx     *contextCore
	address driver.CUdeviceptr
	size    uint64
	uses    streamUses // of all mappings

	mu       sync.Mutex // not held while work is waited for
	mappings []*mapping // sorted by address, until CUDA has unmapped them
	views    int64      // that were made
}

// A mapping is a part of a range that has memory. It lives until it is unmapped and no
// mappedView retains it.
type mapping struct {
	lifetime.Handle
	space        *rangeCore
	offset, size uint64
	viewed       int64    // the number of its newest view, 0 for none; changed with the range's mu held
	access       sync.Map // driver.CUdevice -> driver.CUmemAccess_flags
	last         pendingWork
	cleanup      runtime.Cleanup
}

func (m *mapping) end() uint64 { return m.offset + m.size }

// ReserveOptions are the options of [ReserveAddress]. The zero value is CUDA's default.
type ReserveOptions struct {
	// Alignment of the first address in bytes, a power of two, or 0 for CUDA's default.
	Alignment uint64
	// Address is a hint where the range should begin. CUDA may choose another address.
	Address driver.CUdeviceptr
}

// ReserveAddress reserves addresses for at least size bytes, rounded up to the
// granularity of the device's memory. It allocates no memory. It returns
// [ErrNotSupported] if the device lacks virtual memory management, [ErrRange] if size is
// 0, and [ErrInvalidArgument] if the alignment is not a power of two.
// Source: cuMemAddressReserve, cuMemGetAllocationGranularity, and cuMemAddressFree when
// closed.
func ReserveAddress(x *Context, size uint64, o ReserveOptions) (*AddressRange, error) {
	const op = "ReserveAddress"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if o.Alignment&(o.Alignment-1) != 0 {
		return nil, refuse(op, ErrInvalidArgument, "the alignment of %d is not a power of two", o.Alignment)
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
	u.cleanup.Watch(&r.Handle)
	return u, nil
}

func (r *rangeCore) Kind() string { return "AddressRange" }

func (r *rangeCore) Destroy(bool) error {
	return r.ctx.releasing("AddressRange.Close", func() error {
		var err error
		for _, m := range r.mappings { // whose cuMemUnmap has failed before
			err = errors.Join(err, driver.CuMemUnmap(r.address+driver.CUdeviceptr(m.offset), m.size))
		}
		return errors.Join(err, driver.CuMemAddressFree(r.address, r.size))
	})
}

// acquire acquires the range for a call.
func (r *AddressRange) acquire(op string) (*rangeCore, error) {
	if r == nil || r.core == nil || !r.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return r.core, nil
}

// Close waits for the work that uses the range, unmaps all memory and frees the addresses. If one
// of the streams is capturing, the range is unmapped and freed when the capture has ended. If
// Buffers of [NewMappedBuffer] are open, or graphs use them, that happens when the last of these
// is closed. Closing again does nothing. Source: cuMemUnmap, cuMemAddressFree.
func (r *AddressRange) Close() error {
	if r == nil || r.core == nil {
		return nil
	}
	r.cleanup.Stop()
	c := r.core
	err := c.Close()            // Map returns ErrClosed from here on
	if lock("", &c.mu) != nil { // in a host function
		lifetime.Reaper.Add(c.unmapLater)
		return err
	}
	all := slices.Clone(c.mappings)
	c.mu.Unlock()
	for _, m := range all {
		err = errors.Join(err, m.unmap())
	}
	return err
}

// unmapLater has the Reaper unmap all memory, once it finds the range unlocked.
func (r *rangeCore) unmapLater() (again bool) {
	if !r.mu.TryLock() {
		return true
	}
	defer r.mu.Unlock()
	for _, m := range r.mappings {
		m.cleanup.Stop()
		m.CloseLater()
	}
	return false
}

// Size returns the size of the range in bytes, a multiple of the granularity.
func (r *AddressRange) Size() uint64 {
	if r == nil || r.core == nil {
		return 0
	}
	return r.core.size
}

// Raw returns the first address, for calls of package driver and for other libraries. It
// returns 0 once the range is closed. Keep r reachable while you use the address. Work
// that the program enqueues with it is not tracked: wait for it before you unmap memory.
func (r *AddressRange) Raw() driver.CUdeviceptr {
	if r == nil || r.core == nil || r.core.Closed() {
		return 0
	}
	return r.core.address
}

// Map maps all of p's memory at an offset in bytes, which must be a multiple of its
// granularity. p may be on another device, may be mapped several times and may be closed
// afterwards. No device can access the memory before [AddressRange.SetAccess]. Map
// returns [ErrInvalidArgument] if the offset is not a multiple of the granularity, and
// [ErrRange] if the memory does not fit into the range or something is mapped there.
// Source: cuMemMap.
func (r *AddressRange) Map(offset uint64, p *PhysicalMemory) error {
	return reclaiming(func() error { return r.mapOnce(offset, p) })
}

func (r *AddressRange) mapOnce(offset uint64, p *PhysicalMemory) error {
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
		return refuse(op, ErrInvalidArgument, "offset %d is not a multiple of the granularity, %d", offset, physical.granule)
	}
	if size > c.size || offset > c.size-size {
		return refuse(op, ErrRange, "%d bytes at offset %d exceed the range of %d bytes", size, offset, c.size)
	}
	m := &mapping{space: c, offset: offset, size: size}
	if err := lock(op, &c.mu); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if c.Closed() { // Close has listed the mappings already, or will list this one
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
	if err := m.Open(m, &c.Handle); err != nil { // cannot happen: the range is acquired
		return wrap(op, err)
	}
	m.Untracked() // a leak of the range is reported once
	m.cleanup = lifetime.CloseWith(r, &m.Handle)
	return nil
}

// cmpEnd finds the first mapping that ends after an offset.
func cmpEnd(m *mapping, offset uint64) int {
	if m.end() <= offset {
		return -1
	}
	return 1
}

// why says why a mapping that was unmapped is still there.
func (m *mapping) why() string {
	if m.Closed() {
		return ": Unmap is deferred until buffers of it are closed and work that uses it has completed"
	}
	return ""
}

// Unmap waits for the work that uses the range, and unmaps the memory of a part of it. The part
// must contain at least one mapping and no mapping partially, or Unmap returns [ErrRange].
// Captures, open Buffers and graphs that use the part delay the unmapping, as for
// [AddressRange.Close]. Source: cuMemUnmap.
func (r *AddressRange) Unmap(offset, size uint64) error {
	const op = "AddressRange.Unmap"
	c, err := r.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	defer runtime.KeepAlive(r) // its cleanup would unmap the memory before
	if err := lock(op, &c.mu); err != nil {
		return err
	}
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

// within returns the mappings of a part of the range, and refuses one that cuts through a
// mapping. mu is held.
func (r *rangeCore) within(op string, offset, size uint64) ([]*mapping, error) {
	if size > r.size || offset > r.size-size {
		return nil, refuse(op, ErrRange, "%d bytes at offset %d exceed the range of %d bytes", size, offset, r.size)
	}
	var part []*mapping
	for _, m := range r.mappings {
		if m.end() <= offset || m.offset >= offset+size {
			continue
		}
		if m.offset < offset || m.end() > offset+size {
			return nil, refuse(op, ErrRange, "%d bytes at offset %d contain only a part of the mapping of %d bytes at offset %d", size, offset, m.size, m.offset)
		}
		part = append(part, m)
	}
	return part, nil
}

// unmap implements Close of a mapping.
func (m *mapping) unmap() error {
	m.cleanup.Stop()
	return m.Close()
}

func (m *mapping) Kind() string { return "mapping of an AddressRange" }

// Destroy unmaps the memory once all work that uses the range has completed.
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
	if err == nil { // else rangeCore.Destroy tries again
		r.mappings = slices.DeleteFunc(r.mappings, func(o *mapping) bool { return o == m })
	}
	return err
}
