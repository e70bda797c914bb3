package safe

import (
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// CopyFrom copies src to the beginning of b. At least one of the two must be device
// memory or an array; they may be on two devices. It waits for all work that uses either,
// then copies on an internal stream, and returns when the copy has completed.
//
// It returns [ErrRange] if src exceeds b in any direction, [ErrInvalidArgument] if both
// are host memory, [ErrCapturing] if a stream that uses either is capturing, and
// [ErrOverlap] if they have bytes in common. Two views of the same memory with different
// pitches count as overlapping if their address ranges do.
// Source: cuMemcpy3DAsync, or cuMemcpy3DPeerAsync between devices, cuStreamSynchronize.
func (b *Pitched[T]) CopyFrom(src *Pitched[T]) error { return b.copyNow("Pitched.CopyFrom", b, src) }

func (b *Pitched[T]) copyNow(op string, dst, src *Pitched[T]) error {
	c, err := copyOf(op, dst, src)
	if err != nil {
		return err
	}
	defer c.release()
	var pinner runtime.Pinner
	defer pinner.Unpin()
	for _, p := range []*layout{c.dst, c.src} {
		if p.memory == nil {
			pinner.Pin(p.data)
		}
	}
	return c.ctx.copyNow(op, &c.Copy, unsafe.Pointer(&c.params), c.blocks...)
}

// CopyFromAsync enqueues a copy of src to the beginning of b. Do not access host memory of either before the copy has
// completed. It returns [ErrContextMismatch] if neither belongs to the stream's context, [ErrInvalidArgument] if one is
// a Go slice or both are host memory, and [ErrRange] and [ErrOverlap] as CopyFrom does. A copy between devices cannot
// be captured: it returns [ErrCapturing]. Source: cuMemcpy3DAsync, or cuMemcpy3DPeerAsync between devices.
func (b *Pitched[T]) CopyFromAsync(s *Stream, src *Pitched[T]) error {
	return b.copyAsync("Pitched.CopyFromAsync", s, b, src)
}

func (b *Pitched[T]) copyAsync(op string, s *Stream, dst, src *Pitched[T]) error {
	c, err := copyOf(op, dst, src)
	if err != nil {
		return err
	}
	defer c.release()
	if c.dst.memory == nil || c.src.memory == nil {
		return refuse(op, ErrInvalidArgument, "a Go slice is not pinned: use a Pinned, or call Pitched.CopyFrom")
	}
	return s.copy(op, &c.Copy, unsafe.Pointer(&c.params), c.ctx, c.blocks...)
}

// CopyFromHost copies a Go slice that holds the values row by row without padding. It
// returns [ErrRange] unless src has exactly as many values as b. Otherwise it behaves as
// [Pitched.CopyFrom].
func (b *Pitched[T]) CopyFromHost(src []T) error {
	const op = "Pitched.CopyFromHost"
	h, err := b.dense(op, func() (*Pitched[T], error) { return PitchedOf(src, b.extent, 0) })
	if err != nil {
		return err
	}
	if n := h.count(); len(src) != n {
		return refuse(op, ErrRange, "%d values for pitched memory of %d", len(src), n)
	}
	return b.copyNow(op, b, h)
}

// CopyToHost copies the values to a Go slice, row by row without padding. It returns
// [ErrRange] if dst is too short. Otherwise it behaves as [Pitched.CopyFrom].
func (b *Pitched[T]) CopyToHost(dst []T) error {
	const op = "Pitched.CopyToHost"
	h, err := b.dense(op, func() (*Pitched[T], error) { return PitchedOf(dst, b.extent, 0) })
	if err != nil {
		return err
	}
	return b.copyNow(op, h, b)
}

// CopyFromHostAsync enqueues a copy of pinned memory that holds the values row by row
// without padding. It returns [ErrRange] unless src has exactly as many values as b.
// Otherwise it behaves as [Pitched.CopyFromAsync].
func (b *Pitched[T]) CopyFromHostAsync(s *Stream, src *Pinned[T]) error {
	const op = "Pitched.CopyFromHostAsync"
	h, err := b.dense(op, func() (*Pitched[T], error) { return src.Pitched(b.extent, 0) })
	if err != nil {
		return err
	}
	if n := h.count(); src.Len() != n {
		return refuse(op, ErrRange, "%d values for pitched memory of %d", src.Len(), n)
	}
	return b.copyAsync(op, s, b, h)
}

// CopyToHostAsync enqueues a copy to pinned memory, row by row without padding. It
// returns [ErrRange] if dst is too short. Otherwise it behaves as
// [Pitched.CopyFromAsync].
func (b *Pitched[T]) CopyToHostAsync(s *Stream, dst *Pinned[T]) error {
	const op = "Pitched.CopyToHostAsync"
	h, err := b.dense(op, func() (*Pitched[T], error) { return dst.Pitched(b.extent, 0) })
	if err != nil {
		return err
	}
	return b.copyAsync(op, s, h, b)
}

// dense returns host memory without padding as a Pitched with b's extent. of makes it.
func (b *Pitched[T]) dense(op string, of func() (*Pitched[T], error)) (*Pitched[T], error) {
	if !b.open() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	h, err := of()
	return h, wrap(op, err)
}

// count returns the number of values. It cannot overflow, because b lies in memory
// without padding.
func (b *Pitched[T]) count() int { return b.extent.Width * b.extent.Height * b.extent.Depth }

// A pitchedCopy is a copy between pitched memory. Its blocks are acquired.
type pitchedCopy struct {
	rt.Copy
	params   driver.CUDA_MEMCPY3D_PEER
	dst, src *layout
	byteExtent
	blocks []*block
	ctx    *contextCore // of the device that copies
}

// copyOf checks a copy and acquires its memory.
func copyOf[T any](op string, dst, src *Pitched[T]) (*pitchedCopy, error) {
	to, err := dst.acquire(op)
	if err != nil {
		return nil, err
	}
	c := &pitchedCopy{}
	c.retain(to)
	from, err := src.acquire(op)
	if err != nil {
		c.release()
		return nil, err
	}
	c.retain(from)
	c.dst, c.src, c.byteExtent = &dst.layout, &src.layout, src.bytes()
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

func (c *pitchedCopy) retain(b *block) {
	if b != nil {
		c.blocks = append(c.blocks, b)
	}
}

func (c *pitchedCopy) release() {
	for _, b := range c.blocks {
		b.Release()
	}
}

// check describes a copy from one block to another, and refuses one that CUDA cannot do.
func (c *pitchedCopy) check(op string, to, from *block) error {
	c.describe()
	switch onDevice, ofDevice := c.dst.kind != driver.CU_MEMORYTYPE_HOST, c.src.kind != driver.CU_MEMORYTYPE_HOST; {
	case onDevice && ofDevice:
		c.ctx = to.ctx
		if err := acrossContexts(op, &c.Copy, rt.CopyRowsPeer, to.ctx, from.ctx); err != nil {
			return err
		}
		c.params.DstContext, c.params.SrcContext = c.DstContext, c.SrcContext
	case onDevice:
		c.ctx = to.ctx
	case ofDevice:
		c.ctx = from.ctx
	default:
		return refuse(op, ErrInvalidArgument, "both sides are host memory: one must be device memory or an array")
	}
	if c.overlap() {
		return refuse(op, ErrOverlap, "%d bytes, %d rows, %d slices within the same memory", c.width, c.height, c.depth)
	}
	return nil
}

// describe describes the copy for CUDA: one on a device has reserved words in place of the contexts, which must be 0.
func (c *pitchedCopy) describe() {
	d, s := c.dst, c.src
	c.Kind, c.Size = rt.CopyRows, c.width
	c.params = driver.CUDA_MEMCPY3D_PEER{
		SrcMemoryType: s.kind, SrcHost: s.data, SrcDevice: s.address, SrcArray: s.array,
		SrcXInBytes: s.x, SrcY: s.y, SrcZ: s.z, SrcPitch: s.pitch, SrcHeight: s.rows,
		DstMemoryType: d.kind, DstHost: d.data, DstDevice: d.address, DstArray: d.array,
		DstXInBytes: d.x, DstY: d.y, DstZ: d.z, DstPitch: d.pitch, DstHeight: d.rows,
		WidthInBytes: c.width, Height: c.height, Depth: c.depth,
	}
}

var _ = [1]struct{}{}[unsafe.Sizeof(driver.CUDA_MEMCPY3D{})-unsafe.Sizeof(driver.CUDA_MEMCPY3D_PEER{})]

// overlap reports whether source and destination have bytes in common. If their rows lie
// differently, it may report an overlap that is none.
func (c *pitchedCopy) overlap() bool {
	d, s := c.dst, c.src
	if d.array != 0 || s.array != 0 {
		return d.array == s.array && near(d.x, s.x, c.width) && near(d.y, s.y, c.height) && near(d.z, s.z, c.depth)
	}
	apart := int64(d.start() - s.start())
	of, _ := s.reach(c.byteExtent)
	on, _ := d.reach(c.byteExtent)
	if apart >= int64(of) || -apart >= int64(on) {
		return false
	}
	if d.pitch != s.pitch || c.depth > 1 && d.rows != s.rows {
		return true
	}
	// A row of one overlaps a row of the other if the distance between the beginnings,
	// minus a number of whole slices and rows, is less than the length of a row.
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

// around yields n-1, n and n+1, as far as the indices of two of so many things can differ
// by that.
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

// start returns the address of the first byte. With unified addressing, host and devices
// use the same address for shared memory.
func (p *layout) start() uint64 {
	if p.data != nil {
		return uint64(uintptr(p.data))
	}
	return uint64(p.address)
}
