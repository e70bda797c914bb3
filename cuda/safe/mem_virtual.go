package safe

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
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

	mu       admit.Leaf // not held while work is waited for
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

// Raw returns the first address, for calls to package driver and for other libraries. It
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

// String describes the address range for messages.
func (r *AddressRange) String() string {
	if r == nil || r.core == nil {
		return neverOpened("AddressRange")
	}
	return fmt.Sprintf("AddressRange: %d bytes at %#x for %v%s", r.core.size, uint64(r.core.address), r.core.ctx.device, closedText(r.core.Closed()))
}

// SetAccess sets what devices may do with the memory of a part of the range. The whole
// part must be mapped, and must not contain a mapping partially, or SetAccess returns
// [ErrRange]. Without devices it applies to the context's own device. Devices that are
// not named keep their access.
//
// To set less than driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE, SetAccess first waits for
// the work that uses the range. In that case it returns [ErrInvalidArgument] if Buffers of
// the part are open, and [ErrCapturing] if a stream that uses the range is capturing.
// Source: cuMemSetAccess.
func (r *AddressRange) SetAccess(offset, size uint64, access driver.CUmemAccess_flags, devices ...Device) error {
	return reclaiming(func() error { return r.setAccessOnce(offset, size, access, devices) })
}

func (r *AddressRange) setAccessOnce(offset, size uint64, access driver.CUmemAccess_flags, devices []Device) error {
	const op = "AddressRange.SetAccess"
	c, err := r.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	defer runtime.KeepAlive(r) // its cleanup would unmap the memory
	if len(devices) == 0 {
		devices = []Device{c.ctx.device}
	}
	for waited := int64(-1); ; {
		last, err := c.setAccess(op, offset, size, access, devices, &waited)
		if last == nil {
			return err
		}
		for !last.over(&c.uses, true) { // with nothing locked: host functions may use the range
			last.wait()
		}
	}
}

// setAccess sets the access, or returns work that must complete before the next try. waited is
// the number of the newest view of the part at the try before, -1 at the first.
func (r *rangeCore) setAccess(op string, offset, size uint64, access driver.CUmemAccess_flags, devices []Device, waited *int64) (*pendingWork, error) {
	list := make([]driver.CUmemAccessDesc, len(devices))
	for i, d := range devices {
		list[i] = driver.CUmemAccessDesc{Location: d.location(), Flags: access}
	}
	if err := lock(op, &r.mu); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	part, err := r.whole(op, offset, size)
	if err != nil {
		return nil, err
	}
	if access != fullAccess {
		if last, err := r.unused(op, part, waited); last != nil || err != nil {
			return last, err
		}
	}
	err = r.ctx.withCurrent(func() error {
		return peerCopies.Exclusive(func() error {
			return driver.CuMemSetAccess(r.address+driver.CUdeviceptr(offset), size, &list[0], uint64(len(list)))
		})
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	for _, m := range part {
		for _, d := range devices {
			m.access.Store(d.raw, access)
		}
	}
	return nil, nil
}

// whole returns the mappings of a part that is mapped without a gap. mu is held.
func (r *rangeCore) whole(op string, offset, size uint64) ([]*mapping, error) {
	part, err := r.within(op, offset, size)
	if err != nil {
		return nil, err
	}
	at := offset
	for _, m := range part {
		if m.offset != at || m.Closed() {
			break
		}
		at = m.end()
	}
	if at != offset+size || size == 0 {
		return nil, refuse(op, ErrRange, "of the %d bytes at offset %d, only %d are mapped", size, offset, at-offset)
	}
	return part, nil
}

// unused returns the work that may use a part of the range, nil if there is none, and refuses a
// part that a mappedView retains. mu is held, so no view of the part can appear meanwhile.
func (r *rangeCore) unused(op string, part []*mapping, waited *int64) (*pendingWork, error) {
	var newest int64
	for _, m := range part {
		if m.InUse() {
			return nil, refuse(op, ErrInvalidArgument, "close the buffers of the %d bytes at offset %d first: some are open", m.size, m.offset)
		}
		newest = max(newest, m.viewed)
	}
	if newest <= *waited {
		return nil, nil
	}
	markers, err := r.uses.markers(true)
	switch {
	case err == rt.CodeCapturing:
		return nil, refuse(op, ErrCapturing, "a stream that uses the range is capturing, so its work cannot be waited for")
	case err == rt.CodeCallback:
		return nil, &Error{Op: op, Err: ErrInCallback}
	}
	*waited = newest
	if len(markers) == 0 {
		return nil, nil
	}
	return &pendingWork{markers: markers, marked: true}, nil
}

// Access returns what kernels on a device may do with the memory at an offset. It returns
// [ErrRange] if the offset exceeds the range, and driver.CUDA_ERROR_INVALID_VALUE if
// nothing is mapped there.
// Source: cuMemGetAccess.
func (r *AddressRange) Access(offset uint64, d Device) (driver.CUmemAccess_flags, error) {
	const op = "AddressRange.Access"
	c, err := r.acquire(op)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	defer runtime.KeepAlive(r) // its cleanup would unmap the memory
	if offset >= c.size {
		return 0, refuse(op, ErrRange, "offset %d exceeds the range of %d bytes", offset, c.size)
	}
	var flags uint64
	location := d.location()
	err = c.ctx.withCurrent(func() error {
		return driver.CuMemGetAccess(&flags, &location, c.address+driver.CUdeviceptr(offset))
	})
	return driver.CUmemAccess_flags(flags), wrap(op, err)
}

// NewMappedBuffer returns a Buffer of n values at an offset in bytes of an address range, for copies, launches and
// everything else that takes a [Buffer]. Several mappings may back it. The device of the range must be allowed to read
// and write the memory; kernels of other devices can use the Buffer if they are allowed to.
//
// Several Buffers may cover the same addresses. Synchronous copies and [AddressRange.Unmap] wait for the work that uses
// any part of the range. The Buffer keeps the memory mapped until it is closed. [Buffer.Close] does not wait, because
// the range owns the memory.
//
// It returns [ErrRange] if the memory is not all mapped, and [ErrInvalidArgument] if the device lacks access, the
// offset is not aligned for T, or T contains Go pointers or bools.
func NewMappedBuffer[T any](r *AddressRange, offset uint64, n int) (*Buffer[T], error) {
	const op = "NewMappedBuffer"
	size, c, err := valuesIn[T](op, r, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	defer runtime.KeepAlive(r) // its cleanup would unmap the memory
	var zero T
	if align := uint64(unsafe.Alignof(zero)); offset%align != 0 {
		return nil, refuse(op, ErrInvalidArgument, "offset %d is not aligned to %d bytes", offset, align)
	}
	v, err := c.viewOf(op, offset, size)
	if err != nil {
		return nil, err
	}
	b := &block{ctx: c.ctx, address: c.address + driver.CUdeviceptr(offset), size: size, view: v}
	if err := b.Open(b, &c.ctx.Handle); err != nil {
		v.close()
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// viewOf returns a view of a part of the range.
func (r *rangeCore) viewOf(op string, offset, size uint64) (*mappedView, error) {
	if err := lock(op, &r.mu); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	if size > r.size || offset > r.size-size {
		return nil, refuse(op, ErrRange, "%d bytes at offset %d exceed the range of %d bytes", size, offset, r.size)
	}
	r.views++
	v := &mappedView{space: r}
	at := offset
	for _, m := range r.mappings {
		if at < m.offset || at >= m.end() || at >= offset+size {
			continue
		}
		if !m.Acquire() {
			break
		}
		m.viewed = r.views
		v.parts = append(v.parts, m)
		at = m.end()
	}
	switch {
	case at < offset+size:
		v.close()
		return nil, refuse(op, ErrRange, "of the %d bytes at offset %d, only %d are mapped", size, offset, at-offset)
	case !v.reachedBy(r.ctx.device):
		v.close()
		return nil, refuse(op, ErrInvalidArgument, "%v lacks read and write access to the %d bytes at offset %d: call AddressRange.SetAccess", r.ctx.device, size, offset)
	}
	return v, nil
}

// reachedBy reports whether kernels on a device may use the whole view.
func (v *mappedView) reachedBy(d Device) bool {
	for _, m := range v.parts {
		if access, _ := m.access.Load(d.raw); access != fullAccess {
			return false
		}
	}
	return true
}

// close releases the mappings. w may be nil.
func (v *mappedView) close() {
	if v == nil {
		return
	}
	for _, m := range v.parts {
		m.Release()
	}
}
