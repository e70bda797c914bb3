package safe

import (
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

const fullAccess = driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE

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

// A mappedView is the part of a range that a Buffer covers: it retains the mappings.
type mappedView struct {
	space *rangeCore
	parts []*mapping
}

// NewMappedBuffer returns a Buffer of n values at an offset in bytes of an address range,
// for copies, launches and all else that takes a [Buffer]. Several mappings may back it.
// The device of the range must be allowed to read and write the memory; kernels of other
// devices can use the Buffer if they are allowed to.
//
// Several Buffers may cover the same addresses. Synchronous copies and [AddressRange.Unmap] wait
// for the work that uses any part of the range. The Buffer keeps the memory mapped until it is
// closed. [Buffer.Close] does not wait, because the range owns the memory.
//
// It returns [ErrRange] if the memory is not all mapped, and [ErrInvalidArgument] if the
// device lacks access, the offset is not aligned for T, or T contains Go pointers or bools.
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
