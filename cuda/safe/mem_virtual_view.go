package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

const fullAccess = driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE

// SetAccess says what devices may do with a part of the range, all of which must
// be mapped, and which must hold whole mappings, else the error is [ErrRange].
// Without devices it is for the context's own. The mappings of before and devices that
// are not named keep what they have.
//
// Less than driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE is set behind the work that
// uses the range; while buffers of the part are open it is [ErrInvalidArgument], and
// while a stream that uses the range captures [ErrCapturing].
// Source: cuMemSetAccess.
func (r *AddressRange) SetAccess(offset, size uint64, access driver.CUmemAccess_flags, devices ...Device) error {
	const op = "AddressRange.SetAccess"
	c, err := r.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if len(devices) == 0 {
		devices = []Device{c.ctx.device}
	}
	list := make([]driver.CUmemAccessDesc, len(devices))
	for i, d := range devices {
		list[i] = driver.CUmemAccessDesc{Location: d.location(), Flags: access}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	part, err := c.whole(op, offset, size)
	if err != nil {
		return err
	}
	if access != fullAccess {
		if err := c.unused(op, part); err != nil {
			return err
		}
	}
	err = c.ctx.withCurrent(func() error {
		return driver.CuMemSetAccess(c.address+driver.CUdeviceptr(offset), size, &list[0], uint64(len(list)))
	})
	if err != nil {
		return wrap(op, err)
	}
	for _, m := range part {
		for _, d := range devices {
			m.access.Store(d.raw, access)
		}
	}
	return nil
}

// whole lists the mappings of a part that has nothing else. mu is held.
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
		return nil, refuse(op, ErrRange, "of %d bytes at offset %d only %d are mapped", size, offset, at-offset)
	}
	return part, nil
}

// unused waits until no work uses the range any more, of which no window shows
// the part. mu is held, so that there will be none.
func (r *rangeCore) unused(op string, part []*mapping) error {
	for _, m := range part {
		if m.InUse() {
			return refuse(op, ErrInvalidArgument, "buffers of %d bytes at offset %d are open", m.size, m.offset)
		}
	}
	var last pendingWork
	if !last.over(&r.uses, true) && !last.marked {
		if rt.InCallback() {
			return &Error{Op: op, Err: ErrInCallback}
		}
		return refuse(op, ErrCapturing, "a stream that uses the range captures, so that its work has no end to wait for")
	}
	for !last.over(&r.uses, true) {
		last.wait()
	}
	return nil
}

// Access is what a device may do with the memory at an offset. Where nothing is
// mapped the error is driver.CUDA_ERROR_INVALID_VALUE. Source: cuMemGetAccess.
func (r *AddressRange) Access(offset uint64, d Device) (driver.CUmemAccess_flags, error) {
	const op = "AddressRange.Access"
	c, err := r.acquire(op)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	if offset >= c.size {
		return 0, refuse(op, ErrRange, "offset %d of %d bytes", offset, c.size)
	}
	var flags uint64
	location := d.location()
	err = c.ctx.withCurrent(func() error {
		return driver.CuMemGetAccess(&flags, &location, c.address+driver.CUdeviceptr(offset))
	})
	return driver.CUmemAccess_flags(flags), wrap(op, err)
}

// A window is what a buffer shows of a range: mappings, which it keeps.
type mappedView struct {
	space *rangeCore
	parts []*mapping
}

// NewMappedBuffer is a buffer of n values at an offset in bytes of an address range,
// for copies, launches and all else that takes a [Buffer]. The memory there may be in
// several pieces; all of it must be mapped, else the error is [ErrRange], and the
// range's device must be allowed to read and write it, else it is [ErrInvalidArgument].
// Kernels of other devices can be given the buffer if they are allowed the same.
//
// There may be several buffers of the same addresses. Synchronous calls and
// [AddressRange.Unmap] come behind the work that uses any part of the range. Close
// waits for nothing: the memory is the range's. It keeps the memory from being unmapped
// until the buffer is closed.
func NewMappedBuffer[T any](r *AddressRange, offset uint64, n int) (*Buffer[T], error) {
	const op = "NewMappedBuffer"
	size, c, err := valuesIn[T](op, r, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	var zero T
	if align := uint64(unsafe.Alignof(zero)); offset%align != 0 {
		return nil, refuse(op, ErrInvalidArgument, "offset %d is not aligned to %d bytes", offset, align)
	}
	w, err := c.show(op, offset, size)
	if err != nil {
		return nil, err
	}
	b := &block{ctx: c.ctx, address: c.address + driver.CUdeviceptr(offset), size: size, view: w}
	if err := b.Open(b, &c.ctx.Handle); err != nil {
		w.close()
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// show makes a window of a part of the range.
func (r *rangeCore) show(op string, offset, size uint64) (*mappedView, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if size > r.size || offset > r.size-size {
		return nil, refuse(op, ErrRange, "%d bytes at offset %d of %d", size, offset, r.size)
	}
	w := &mappedView{space: r}
	at := offset
	for _, m := range r.mappings {
		if at < m.offset || at >= m.end() || at >= offset+size {
			continue
		}
		if !m.Acquire() {
			break
		}
		w.parts = append(w.parts, m)
		at = m.end()
	}
	switch {
	case at < offset+size:
		w.close()
		return nil, refuse(op, ErrRange, "of %d bytes at offset %d only %d are mapped", size, offset, at-offset)
	case !w.reachedBy(r.ctx.device):
		w.close()
		return nil, refuse(op, ErrInvalidArgument, "%v may not read and write %d bytes at offset %d: see AddressRange.SetAccess", r.ctx.device, size, offset)
	}
	return w, nil
}

// reachedBy tells whether kernels of a device may use all of it.
func (w *mappedView) reachedBy(d Device) bool {
	for _, m := range w.parts {
		if access, _ := m.access.Load(d.raw); access != fullAccess {
			return false
		}
	}
	return true
}

// close lets the mappings go. There may be no window.
func (w *mappedView) close() {
	if w == nil {
		return
	}
	for _, m := range w.parts {
		m.Release()
	}
}
