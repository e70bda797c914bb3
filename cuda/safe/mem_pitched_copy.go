package safe

import (
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// CopyFrom copies another box to the beginning of b, which must have room for it in
// each direction, else the error is [ErrRange]. At least one of the two must be of a
// device, memory or an array; they may be of two devices. It is done behind all work
// that uses either, and is over when CopyFrom returns. Boxes of the same memory must
// not have values in common: [ErrOverlap] is returned also where that cannot be told
// easily, as their pitches differ.
//
// Source: cuMemcpy3DAsync, or cuMemcpy3DPeerAsync between devices,
// cuStreamSynchronize, on a stream of its own.
func (b *Pitched[T]) CopyFrom(src *Pitched[T]) error { return b.copyNow("Pitched.CopyFrom", b, src) }

func (b *Pitched[T]) copyNow(op string, dst, src *Pitched[T]) error {
	c, err := copyOf(op, dst, src)
	if err != nil {
		return err
	}
	defer c.release()
	var pinner runtime.Pinner
	defer pinner.Unpin()
	for _, e := range []*end{c.dst, c.src} {
		if e.memory == nil {
			pinner.Pin(e.data)
		}
	}
	return c.ctx.doNow(op, c.blocks, c.enqueue)
}

// CopyFromAsync puts [Pitched.CopyFrom] on a stream, which must be of the context of one
// of the boxes, else the error is [ErrContextMismatch]. Neither may be a Go slice. Memory of
// the host must not be touched before the copy is done. In a capture it becomes part
// of the graph, unless it is a copy between devices, which is [ErrCapturing].
//
// Source: cuMemcpy3DAsync, or cuMemcpy3DPeerAsync between devices.
func (b *Pitched[T]) CopyFromAsync(s *Stream, src *Pitched[T]) error {
	return b.copyAsync("Pitched.CopyFromAsync", s, b, src)
}

func (b *Pitched[T]) copyAsync(op string, s *Stream, dst, src *Pitched[T]) error {
	c, err := copyOf(op, dst, src)
	if err != nil {
		return err
	}
	defer c.release()
	sc, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer sc.Release()
	switch {
	case c.dst.memory == nil || c.src.memory == nil:
		return refuse(op, ErrInvalidArgument, "a Go slice is not pinned: use a Pinned, or Pitched.CopyFrom")
	case c.peer == nil && !c.ctx.same(sc.ctx):
		return refuse(op, ErrContextMismatch, "the box is of %v, the stream of %v", c.ctx.device, sc.ctx.device)
	case c.peer != nil && !c.ctx.same(sc.ctx) && !c.peer.same(sc.ctx):
		return refuse(op, ErrContextMismatch, "neither box is of %v, the stream's", sc.ctx.device)
	}
	uncapturable := ""
	if c.peer != nil {
		uncapturable = peerUncapturable
	}
	return sc.enqueueCurrent(op, c.blocks, uncapturable, func() error { return c.enqueue(sc.raw) })
}

// CopyFromHost copies a Go slice, which has the values of the box row by row without
// room between them, and no more: else the error is [ErrRange]. It is
// [Pitched.CopyFrom] otherwise.
func (b *Pitched[T]) CopyFromHost(src []T) error {
	const op = "Pitched.CopyFromHost"
	h, err := b.dense(op, len(src), func() (*Pitched[T], error) { return PitchedOf(src, b.extent, 0) })
	if err != nil {
		return err
	}
	if n := h.count(); len(src) != n {
		return refuse(op, ErrRange, "%d values for a box of %d", len(src), n)
	}
	return b.copyNow(op, b, h)
}

// CopyToHost copies the box to a Go slice, row by row without room between them. It
// is [Pitched.CopyFrom] otherwise.
func (b *Pitched[T]) CopyToHost(dst []T) error {
	const op = "Pitched.CopyToHost"
	h, err := b.dense(op, len(dst), func() (*Pitched[T], error) { return PitchedOf(dst, b.extent, 0) })
	if err != nil {
		return err
	}
	return b.copyNow(op, h, b)
}

// CopyFromHostAsync puts a copy of pinned memory on a stream, which has the values of
// the box row by row without room between them, and no more. It is
// [Pitched.CopyFromAsync] otherwise.
func (b *Pitched[T]) CopyFromHostAsync(s *Stream, src *Pinned[T]) error {
	const op = "Pitched.CopyFromHostAsync"
	h, err := b.dense(op, src.Len(), func() (*Pitched[T], error) { return src.Pitched(b.extent, 0) })
	if err != nil {
		return err
	}
	if n := h.count(); src.Len() != n {
		return refuse(op, ErrRange, "%d values for a box of %d", src.Len(), n)
	}
	return b.copyAsync(op, s, b, h)
}

// CopyToHostAsync puts a copy to pinned memory on a stream, row by row without room
// between them. It is [Pitched.CopyFromAsync] otherwise.
func (b *Pitched[T]) CopyToHostAsync(s *Stream, dst *Pinned[T]) error {
	const op = "Pitched.CopyToHostAsync"
	h, err := b.dense(op, dst.Len(), func() (*Pitched[T], error) { return dst.Pitched(b.extent, 0) })
	if err != nil {
		return err
	}
	return b.copyAsync(op, s, h, b)
}

// dense is memory of the host, of n values, as a box like b.
func (b *Pitched[T]) dense(op string, n int, of func() (*Pitched[T], error)) (*Pitched[T], error) {
	if !b.open() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	h, err := of()
	return h, wrap(op, err)
}

// count is the number of values of a box without room between its rows, which lies
// in memory.
func (b *Pitched[T]) count() int { return b.extent.Width * b.extent.Height * b.extent.Depth }

// A boxCopy is a copy of a box. Its blocks are marked.
type boxCopy struct {
	dst, src *end
	bulk
	blocks []*block
	ctx    *contextCore // of a device that it is done by
	peer   *contextCore // of the other end, if that is of another device
}

// copyOf checks a copy, and marks its memory.
func copyOf[T any](op string, dst, src *Pitched[T]) (*boxCopy, error) {
	to, err := dst.acquire(op)
	if err != nil {
		return nil, err
	}
	c := &boxCopy{}
	c.retain(to)
	from, err := src.acquire(op)
	if err != nil {
		c.release()
		return nil, err
	}
	c.retain(from)
	c.dst, c.src, c.bulk = &dst.end, &src.end, src.bytes()
	d, s := dst.extent, src.extent
	if s.Width > d.Width || s.Height > d.Height || s.Depth > d.Depth {
		err = refuse(op, ErrRange, "%v values do not fit into %v", s, d)
	} else {
		err = c.check(op, to, from)
	}
	if err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

func (c *boxCopy) retain(b *block) {
	if b != nil {
		c.blocks = append(c.blocks, b)
	}
}

func (c *boxCopy) release() {
	for _, b := range c.blocks {
		b.Release()
	}
}

// check finds the contexts of a copy from one block to another.
func (c *boxCopy) check(op string, to, from *block) error {
	switch onDevice, ofDevice := c.dst.kind != driver.CU_MEMORYTYPE_HOST, c.src.kind != driver.CU_MEMORYTYPE_HOST; {
	case onDevice && ofDevice && to.ctx.raw == from.ctx.raw && !to.ctx.same(from.ctx):
		return refuse(op, ErrReset, "one of the boxes is from before")
	case onDevice && ofDevice && !to.ctx.same(from.ctx):
		c.ctx, c.peer = to.ctx, from.ctx
	case onDevice:
		c.ctx = to.ctx
	case ofDevice:
		c.ctx = from.ctx
	default:
		return refuse(op, ErrInvalidArgument, "neither of the boxes is of a device")
	}
	if c.overlap() {
		return refuse(op, ErrOverlap, "boxes of %d bytes, %d rows, %d slices in the same memory", c.width, c.height, c.depth)
	}
	return nil
}

// enqueue calls CUDA. The context is current.
func (c *boxCopy) enqueue(stream driver.CUstream) error {
	d, s := c.dst, c.src
	p := driver.CUDA_MEMCPY3D_PEER{
		SrcMemoryType: s.kind, SrcHost: s.data, SrcDevice: s.address, SrcArray: s.array,
		SrcXInBytes: s.x, SrcY: s.y, SrcZ: s.z, SrcPitch: s.pitch, SrcHeight: s.rows,
		DstMemoryType: d.kind, DstHost: d.data, DstDevice: d.address, DstArray: d.array,
		DstXInBytes: d.x, DstY: d.y, DstZ: d.z, DstPitch: d.pitch, DstHeight: d.rows,
		WidthInBytes: c.width, Height: c.height, Depth: c.depth,
	}
	if c.peer == nil {
		// The same, with words that must be 0 in place of the contexts.
		return driver.CuMemcpy3DAsync((*driver.CUDA_MEMCPY3D)(unsafe.Pointer(&p)), stream)
	}
	p.DstContext, p.SrcContext = c.ctx.raw, c.peer.raw
	return driver.CuMemcpy3DPeerAsync(&p, stream)
}

var _ = [1]struct{}{}[unsafe.Sizeof(driver.CUDA_MEMCPY3D{})-unsafe.Sizeof(driver.CUDA_MEMCPY3D_PEER{})]

// overlap tells whether the ends of a copy have bytes in common, or might have where
// their rows lie in different ways.
func (c *boxCopy) overlap() bool {
	d, s := c.dst, c.src
	if d.array != 0 || s.array != 0 {
		return d.array == s.array && near(d.x, s.x, c.width) && near(d.y, s.y, c.height) && near(d.z, s.z, c.depth)
	}
	apart := int64(d.start() - s.start())
	of, _ := s.span(c.bulk)
	on, _ := d.span(c.bulk)
	if apart >= int64(of) || -apart >= int64(on) {
		return false
	}
	if d.pitch != s.pitch || c.depth > 1 && d.rows != s.rows {
		return true
	}
	// Some row of one overlaps some row of the other if the distance between the
	// beginnings is less than a row's length, give or take whole slices and rows.
	pitch, slice := int64(s.pitch), int64(s.pitch*s.rows)
	for slices := range around(-apart/slice, c.depth) {
		rest := apart + slices*slice
		for rows := range around(-rest/pitch, c.height) {
			if at := rest + rows*pitch; -int64(c.width) < at && at < int64(c.width) {
				return true
			}
		}
	}
	return false
}

// around yields the numbers next to n by which two of so many things can differ.
func around(n int64, things uint64) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		most := int64(things) - 1
		for i := max(n-1, -most); i <= min(n+1, most); i++ {
			if !yield(i) {
				return
			}
		}
	}
}

// near tells whether two ranges of a length overlap.
func near(a, b, length uint64) bool { return a < b+length && b < a+length }

// start is the address of the first byte, which is the same for host and devices
// where they share it.
func (e *end) start() uint64 {
	if e.data != nil {
		return uint64(uintptr(e.data))
	}
	return uint64(e.address)
}
