package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// All copies copy the whole source, to the beginning of the destination, which
// must have room for it: else the error is [ErrRange]. Copy parts by slicing.

// CopyFromHost copies a Go slice to the device, behind all work that uses b,
// and returns when it is there. Source: cuMemcpyHtoDAsync,
// cuStreamSynchronize, on a stream of its own.
func (b *Buffer[T]) CopyFromHost(src []T) error {
	const op = "Buffer.CopyFromHost"
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := fits(op, len(src), b.n); err != nil || len(src) == 0 {
		return err
	}
	c := rt.Copy{Kind: rt.HostToDevice, Dst: b.address, Size: byteSize(src)}
	return m.copyNow(op, &c, unsafe.Pointer(&src[0]), m)
}

// CopyToHost copies the buffer to a Go slice, behind all work that uses b, and
// returns when it is there. Source: cuMemcpyDtoHAsync, cuStreamSynchronize, on
// a stream of its own.
func (b *Buffer[T]) CopyToHost(dst []T) error {
	const op = "Buffer.CopyToHost"
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := fits(op, b.n, len(dst)); err != nil {
		return err
	}
	c := rt.Copy{Kind: rt.DeviceToHost, Src: b.address, Size: b.Size()}
	return m.copyNow(op, &c, unsafe.Pointer(&dst[0]), m)
}

// CopyFrom copies another buffer, which may be of another device, behind all
// work that uses either, and returns when it is done. Source:
// cuMemcpyDtoDAsync or cuMemcpyPeerAsync, cuStreamSynchronize, on a stream of
// its own.
func (b *Buffer[T]) CopyFrom(src *Buffer[T]) error {
	const op = "Buffer.CopyFrom"
	m, from, err := both(op, b, src)
	if err != nil {
		return err
	}
	defer m.Release()
	defer from.Release()
	c, err := b.between(op, m, from, src)
	if err != nil {
		return err
	}
	return m.copyNow(op, &c, nil, m, from)
}

// CopyFromAsync puts a copy of another buffer on a stream. One of the two
// buffers must be of the stream's context, else the error is [ErrContextMismatch].
// Source: cuMemcpyDtoDAsync, or cuMemcpyPeerAsync between devices.
func (b *Buffer[T]) CopyFromAsync(s *Stream, src *Buffer[T]) error {
	const op = "Buffer.CopyFromAsync"
	m, from, err := both(op, b, src)
	if err != nil {
		return err
	}
	defer m.Release()
	defer from.Release()
	c, err := b.between(op, m, from, src)
	if err != nil {
		return err
	}
	return s.copy(op, &c, nil, m, from)
}

// CopyFromHostAsync puts a copy from pinned memory on a stream. src must not
// change before it is done. Source: cuMemcpyHtoDAsync.
func (b *Buffer[T]) CopyFromHostAsync(s *Stream, src *Pinned[T]) error {
	const op = "Buffer.CopyFromHostAsync"
	m, h, err := both(op, b, src)
	if err != nil {
		return err
	}
	defer m.Release()
	defer h.Release()
	if err := fits(op, src.n, b.n); err != nil {
		return err
	}
	return s.copy(op, &rt.Copy{Kind: rt.HostToDevice, Dst: b.address, Size: src.Size()}, src.data, m, h)
}

// CopyToHostAsync puts a copy to pinned memory on a stream. dst must not be
// read or written before it is done. Source: cuMemcpyDtoHAsync.
func (b *Buffer[T]) CopyToHostAsync(s *Stream, dst *Pinned[T]) error {
	const op = "Buffer.CopyToHostAsync"
	m, h, err := both(op, b, dst)
	if err != nil {
		return err
	}
	defer m.Release()
	defer h.Release()
	if err := fits(op, b.n, dst.n); err != nil {
		return err
	}
	return s.copy(op, &rt.Copy{Kind: rt.DeviceToHost, Src: b.address, Size: b.Size()}, dst.data, m, h)
}

func byteSize[T any](s []T) uint64 {
	var zero T
	return uint64(len(s)) * uint64(unsafe.Sizeof(zero))
}

func fits(op string, n, room int) error {
	if n > room {
		return refuse(op, ErrRange, "%d values do not fit into %d", n, room)
	}
	return nil
}

// apart refuses copies whose ends overlap.
func apart(op string, dst, src driver.CUdeviceptr, size uint64) error {
	if near(uint64(dst), uint64(src), size) {
		return refuse(op, ErrOverlap, "%d bytes from %#x to %#x", size, uint64(src), uint64(dst))
	}
	return nil
}

// A source of memory is a buffer of a device or of the host.
type source interface {
	acquire(op string) (*block, error)
}

// both marks two buffers.
func both(op string, a, b source) (x, y *block, err error) {
	if x, err = a.acquire(op); err != nil {
		return nil, nil, err
	}
	if y, err = b.acquire(op); err != nil {
		x.Release()
	}
	return x, y, err
}

// between is a copy from src, which lies in from, to b, which lies in to.
func (b *Buffer[T]) between(op string, to, from *block, src *Buffer[T]) (rt.Copy, error) {
	c := rt.Copy{Kind: rt.DeviceToDevice, Dst: b.address, Src: src.address, Size: src.Size()}
	if err := fits(op, src.n, b.n); err != nil {
		return c, err
	}
	if err := apart(op, c.Dst, c.Src, c.Size); err != nil {
		return c, err
	}
	switch {
	case to.ctx.same(from.ctx):
	case to.ctx.raw == from.ctx.raw:
		return c, refuse(op, ErrReset, "one of the buffers is from before")
	default:
		c.Kind, c.DstContext, c.SrcContext = rt.Peer, to.ctx.raw, from.ctx.raw
	}
	return c, nil
}

// copy puts a copy or a memset on a stream.
func (s *Stream) copy(op string, c *rt.Copy, host unsafe.Pointer, blocks ...*block) error {
	sc, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer sc.Release()
	if c.Kind == rt.Peer {
		if c.DstContext != sc.ctx.raw && c.SrcContext != sc.ctx.raw {
			return refuse(op, ErrContextMismatch, "neither buffer is of %v, the stream's", sc.ctx.device)
		}
	} else if !blocks[0].ctx.same(sc.ctx) {
		return refuse(op, ErrContextMismatch, "the buffer is of %v, the stream of %v", blocks[0].ctx.device, sc.ctx.device)
	}
	c.Context, c.Stream = sc.ctx.forCopy(sc.callContext, blocks), sc.raw
	capture, err := sc.enterWork(op, 1)
	if err != nil {
		return err
	}
	defer sc.leaveWork(capture)
	for _, b := range blocks {
		b.note(sc)
		capture.retains(&b.Handle)
	}
	if why := uncapturable(c, blocks); why != "" && (capture != nil || sc.capturing()) {
		return refuse(op, ErrCapturing, "%s", why)
	}
	enqueuing.enter()
	defer enqueuing.leave()
	return check(op, c.Do(host))
}

// uncapturable says why a copy cannot be captured, if it cannot.
func uncapturable(c *rt.Copy, blocks []*block) string {
	switch {
	case c.Kind == rt.Peer:
		return "a copy between devices cannot be captured"
	case c.Kind <= rt.DeviceToHost && len(blocks) == 1:
		return "memory of Go's could not be found at every launch of the graph"
	}
	return ""
}

// copyNow does a copy or a memset when all work that uses the blocks is done, and
// waits for it. It runs on a stream of the layer's: the legacy default stream,
// on which the driver's own synchronous copies run, destroys captures.
func (b *block) copyNow(op string, c *rt.Copy, host unsafe.Pointer, blocks ...*block) error {
	x := b.ctx
	stream, err := x.beginNow(op, blocks)
	if err != nil {
		return err
	}
	defer x.endNow(stream)
	c.Context, c.Stream, c.Wait = x.forCopy(x.handleContext(), blocks), stream, 1
	c.Home, c.ID = x.raw, x.id
	return check(op, c.Do(host))
}

// forCopy is the context to make current for a copy, where otherwise set would do:
// copies over several mappings of virtual memory need one.
func (c *contextCore) forCopy(set driver.CUcontext, blocks []*block) driver.CUcontext {
	for _, b := range blocks {
		if b.view != nil {
			return c.raw
		}
	}
	return set
}

// Zero clears the buffer, behind all work that uses it, and returns when that
// is done. Source: cuMemsetD8Async, cuStreamSynchronize.
func (b *Buffer[T]) Zero() error {
	return b.setNow("Buffer.Zero", rt.Copy{Kind: rt.Set8, Size: b.Size()})
}

// ZeroAsync puts the clearing of the buffer on a stream. Source: cuMemsetD8Async.
func (b *Buffer[T]) ZeroAsync(s *Stream) error {
	return b.set("Buffer.ZeroAsync", s, rt.Copy{Kind: rt.Set8, Size: b.Size()})
}

// Fill sets every value of the buffer, behind all work that uses it, and
// returns when that is done. T must have 1, 2 or 4 bytes.
// Source: cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async, cuStreamSynchronize.
func (b *Buffer[T]) Fill(v T) error {
	const op = "Buffer.Fill"
	c, err := filling(op, v, b.Len())
	if err != nil {
		return err
	}
	return b.setNow(op, c)
}

// FillAsync puts [Buffer.Fill] on a stream.
// Source: cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async.
func (b *Buffer[T]) FillAsync(s *Stream, v T) error {
	const op = "Buffer.FillAsync"
	c, err := filling(op, v, b.Len())
	if err != nil {
		return err
	}
	return b.set(op, s, c)
}

// filling is a memset of n times v.
func filling[T any](op string, v T, n int) (rt.Copy, error) {
	c := rt.Copy{Size: uint64(n)}
	p := unsafe.Pointer(&v)
	switch unsafe.Sizeof(v) {
	case 1:
		c.Kind, c.Src = rt.Set8, driver.CUdeviceptr(*(*uint8)(p))
	case 2:
		c.Kind, c.Src = rt.Set16, driver.CUdeviceptr(*(*uint16)(p))
	case 4:
		c.Kind, c.Src = rt.Set32, driver.CUdeviceptr(*(*uint32)(p))
	default:
		return c, refuse(op, ErrInvalidArgument, "a value of %d bytes; the device fills with 1, 2 or 4", unsafe.Sizeof(v))
	}
	return c, nil
}

func (b *Buffer[T]) setNow(op string, c rt.Copy) error {
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	c.Dst = b.address
	return m.copyNow(op, &c, nil, m)
}

func (b *Buffer[T]) set(op string, s *Stream, c rt.Copy) error {
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	c.Dst = b.address
	return s.copy(op, &c, nil, m)
}
