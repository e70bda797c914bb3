package safe

import (
	"errors"
	"runtime"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A copy copies the whole source to the beginning of the destination. It returns ErrRange
// if the destination is too short. Slice either of them to copy less. A copy or a memset of
// no values does nothing once the arguments are checked.

// CopyFromHost copies a Go slice to the device. It waits for all work that uses b, then
// copies on an internal stream, and returns when the copy has completed. It returns
// [ErrRange] if b is shorter than src, and [ErrCapturing] if a stream that uses b is
// capturing.
// Source: cuMemcpyHtoDAsync, cuStreamSynchronize.
func (b *Buffer[T]) CopyFromHost(src []T) error {
	const op = "Buffer.CopyFromHost"
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := fits(op, len(src), b.n); err != nil {
		return err
	}
	c := rt.Copy{Kind: rt.HostToDevice, Dst: b.address, Size: byteSize(src)}
	return m.ctx.copyNow(op, &c, unsafe.Pointer(unsafe.SliceData(src)), m)
}

// CopyToHost copies the Buffer to a Go slice. It waits for all work that uses b, then
// copies on an internal stream, and returns when the copy has completed. It returns
// [ErrRange] if dst is shorter than b, and [ErrCapturing] if a stream that uses b is
// capturing.
// Source: cuMemcpyDtoHAsync, cuStreamSynchronize.
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
	return m.ctx.copyNow(op, &c, unsafe.Pointer(unsafe.SliceData(dst)), m)
}

// CopyFrom copies another Buffer, which may be on another device. It waits for all work
// that uses either Buffer, then copies on an internal stream, and returns when the copy
// has completed. It returns [ErrRange] if b is shorter than src, [ErrOverlap] if they
// overlap, and [ErrCapturing] if a stream that uses either is capturing.
// Source: cuMemcpyDtoDAsync or cuMemcpyPeerAsync, cuStreamSynchronize.
func (b *Buffer[T]) CopyFrom(src *Buffer[T]) error {
	to, from := b.span(nil), src.span(nil)
	return to.copyNow("Buffer.CopyFrom", &from)
}

// CopyFromAsync enqueues a copy of another Buffer, which may be on another device. It
// returns [ErrContextMismatch] if neither Buffer belongs to the stream's context,
// [ErrRange] if b is shorter than src, and [ErrOverlap] if they overlap. A copy between
// devices cannot be captured: it returns [ErrCapturing].
// Source: cuMemcpyDtoDAsync, or cuMemcpyPeerAsync between devices.
func (b *Buffer[T]) CopyFromAsync(s *Stream, src *Buffer[T]) error {
	to, from := b.span(nil), src.span(nil)
	return to.copyAsync("Buffer.CopyFromAsync", s, &from)
}

// CopyFromHostAsync enqueues a copy from pinned memory. Do not change src before the copy
// has completed. It returns [ErrRange] if b is shorter than src, and [ErrContextMismatch]
// if b belongs to another context than the stream.
// Source: cuMemcpyHtoDAsync.
func (b *Buffer[T]) CopyFromHostAsync(s *Stream, src *Pinned[T]) error {
	to, from := b.span(nil), src.span(nil)
	return to.copyAsync("Buffer.CopyFromHostAsync", s, &from)
}

// CopyToHostAsync enqueues a copy to pinned memory. Do not read or write dst before the
// copy has completed. It returns [ErrRange] if dst is shorter than b, and
// [ErrContextMismatch] if b belongs to another context than the stream.
// Source: cuMemcpyDtoHAsync.
func (b *Buffer[T]) CopyToHostAsync(s *Stream, dst *Pinned[T]) error {
	to, from := dst.span(nil), b.span(nil)
	return to.copyAsync("Buffer.CopyToHostAsync", s, &from)
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

// apart refuses a copy whose source and destination overlap.
func apart(op string, dst, src driver.CUdeviceptr, size uint64) error {
	if near(uint64(dst), uint64(src), size) {
		return refuse(op, ErrOverlap, "%d bytes from %#x to %#x", size, uint64(src), uint64(dst))
	}
	return nil
}

// acrossContexts makes c, a copy on one device, one of the kind peer, between two, if the contexts differ. It returns
// [ErrReset] if only one of them is from before a reset, after which a primary context has the same handle.
func acrossContexts(op string, c *rt.Copy, peer rt.CopyKind, to, from *contextCore) error {
	switch {
	case to.same(from):
	case to.raw == from.raw:
		return refuse(op, ErrReset, "one side of the copy was allocated before other code has reset the primary context")
	default:
		c.Kind, c.DstContext, c.SrcContext = peer, to.raw, from.raw
	}
	return nil
}

// copy enqueues a copy or a memset of memory that belongs to the context on, nil for pinned memory, which any stream
// may use. The blocks need not be acquired.
func (s *Stream) copy(op string, c *rt.Copy, host unsafe.Pointer, on *contextCore, blocks ...*block) error {
	return s.copyThen(op, c, host, on, nil, blocks...)
}

// copyThen enqueues a copy or a memset of memory that belongs to the context on, if that is not nil, and calls then, if
// that is not nil, before other work can be enqueued on the stream. The stream and the blocks need not be acquired.
func (s *Stream) copyThen(op string, c *rt.Copy, host unsafe.Pointer, on *contextCore, then func(*streamCore), blocks ...*block) error {
	sc, err := s.openUnacquired(op)
	if err != nil {
		return err
	}
	if across(c) {
		if c.DstContext != sc.ctx.raw && c.SrcContext != sc.ctx.raw {
			return refuse(op, ErrContextMismatch, "neither side belongs to the context of the stream, on %v", sc.ctx.device)
		}
	} else if on != nil && !on.same(sc.ctx) {
		return refuse(op, ErrContextMismatch, "the memory belongs to a context of %v, the stream to one of %v", on.device, sc.ctx.device)
	}
	if c.Size == 0 {
		return nil
	}
	c.Stream = sc.raw
	a := admission{op: op, stream: sc, flags: enqueues | unacquired, places: 1}
	err = a.admit()
	runtime.KeepAlive(s) // as it is not acquired
	if err != nil {
		return err
	}
	sc.ctx.forCopy(c, sc.callContext, blocks, a.capture != nil || sc.root().known.Load()) // raw calls may have begun a capture
	do := func() error {
		code := c.Do(host)
		if then != nil {
			then(sc)
		}
		return check(op, code)
	}
	if err = sc.uses(op, a.capture, blocks, uncapturable(c, blocks)); err == nil {
		if across(c) {
			err = wrap(op, peerCopies.With(sc.number, do))
		} else {
			err = do()
		}
	}
	a.leave(err == nil) // not deferred, which takes longer
	if err != nil && a.capture != nil {
		return afterFree(op, err, blocks)
	}
	return err
}

// afterFree explains the error of a captured copy if a node of a graph frees the memory already: CUDA then captures no
// copies of it.
func afterFree(op string, err error, blocks []*block) error {
	const code = driver.CUDA_ERROR_INVALID_VALUE
	for _, b := range blocks {
		if b.graph != nil && (b.graph.freed.Load() || b.graph.freer.Load() != nil) && errors.Is(err, code) {
			return refuse(op, code, "a node of a graph frees the memory already: capture copies of it before that node")
		}
	}
	return err
}

const peerUncapturable = "a copy between devices cannot be captured"

// uncapturable returns the reason why a copy cannot be captured, "" if it can.
func uncapturable(c *rt.Copy, blocks []*block) string {
	if across(c) {
		return peerUncapturable
	}
	if c.Kind <= rt.DeviceToHost && len(blocks) == 1 {
		return "a copy of a Go slice cannot be captured: use a Pinned"
	}
	return ""
}

// forCopy sets the context to make current for a copy or a memset: usual, unless CUDA needs one. captured is true if the
// call may be captured.
func (x *contextCore) forCopy(c *rt.Copy, usual driver.CUcontext, blocks []*block, captured bool) {
	c.Context = usual
	if c.Kind >= rt.SetRows8 {
		c.Context, c.Home, c.ID = x.raw, x.raw, x.id
		return
	}
	for _, b := range blocks {
		if b.copiedInContext(captured) {
			c.Context = x.raw
		}
	}
}

// across returns whether c is a copy between two devices.
func across(c *rt.Copy) bool { return c.Kind == rt.Peer || c.Kind == rt.CopyRowsPeer }

// copiedInContext returns whether copies need a current context: those that span several mappings of
// virtual memory, those of other code's memory, which may, and captured ones with memory of a pool. Without it, an
// executable that is updated to such a captured copy crashes at its next launch.
func (b *block) copiedInContext(captured bool) bool {
	return b.view != nil || b.foreign || captured && (b.pooled() || b.pool != nil)
}

// Fill sets every value of the Buffer to v. It waits for all work that uses b, and
// returns when the memory is set.
//
// Fill is a memset of CUDA if v is all zeros, such as the zero value of T, and for types of 1 byte
// and of 2 or 4 that are aligned to their size, such as float32. Other values, such as a [4]uint8,
// are set by a kernel of this package, which CUDA loads with the first of them in a context: work
// that is enqueued later then waits for all work that was enqueued before. Fill returns
// [ErrInvalidArgument] if such a value has more than 4,000 bytes, and [ErrCapturing] if a stream
// that uses b is capturing.
// Source: cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async or cuLaunchKernel,
// cuStreamSynchronize.
func (b *Buffer[T]) Fill(v T) error {
	const op = "Buffer.Fill"
	s := b.span(nil)
	f, err := filling(op, v, s.n)
	if err != nil {
		return err
	}
	return s.fillNow(op, f)
}

// FillAsync enqueues a fill that sets every value of the Buffer to v, as [Buffer.Fill] does. It returns
// [ErrInvalidArgument] if v is not all zeros and has more than 4,000 bytes, and [ErrContextMismatch] if b belongs to
// another context than the stream. Source: cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async or cuLaunchKernel.
func (b *Buffer[T]) FillAsync(s *Stream, v T) error {
	const op = "Buffer.FillAsync"
	m := b.span(nil)
	f, err := filling(op, v, m.n)
	if err != nil {
		return err
	}
	return m.fillAsync(op, s, &f)
}

// copying limits synchronous copies and memsets. They run on internal streams, and each
// blocks a thread until the GPU has completed it. The limit keeps a thousand goroutines
// from taking a thousand threads. A copy first waits for the work that uses its memory,
// without a thread and outside the limit: a copy that the GPU holds up would hold up the
// others in the driver.
var copying = admit.Limiter{Patience: 100 * time.Millisecond, Slowly: true}

// copyNow makes a copy or a memset on an internal stream, and returns once it is complete. One crossing enqueues it
// and waits.
func (x *contextCore) copyNow(op string, c *rt.Copy, host unsafe.Pointer, blocks ...*block) error {
	if c.Size == 0 {
		return nil
	}
	if across(c) { // two crossings, as changes of access wait for the first
		return x.doNow(op, blocks, func(stream driver.CUstream) error {
			x.forCopy(c, x.handleContext(), blocks, false)
			c.Stream = stream
			return peerCopies.With(uint32(stream>>6), func() error { return check(op, c.Do(host)) })
		})
	}
	stream, err := x.beginNow(op, blocks)
	if err != nil {
		return err
	}
	defer x.endNow(stream, blocks)
	x.forCopy(c, x.handleContext(), blocks, false)
	c.Stream, c.Wait, c.Home, c.ID = stream, 1, x.raw, x.id
	return wrap(op, hostWaits.With(uint32(stream>>6), func() error { return check(op, c.Do(host)) }))
}

// doNow waits for all work that uses the blocks, enqueues work on an internal stream by
// calling put with the context current, and waits for that work. It does not use the
// legacy default stream, as the driver's own synchronous calls do: that would destroy
// captures.
func (c *contextCore) doNow(op string, blocks []*block, put func(driver.CUstream) error) error {
	stream, err := c.beginNow(op, blocks)
	if err != nil {
		return err
	}
	defer c.endNow(stream, blocks)
	return wrap(op, c.withCurrent(func() error {
		err := put(stream)
		// Also after an error: part of the work may be enqueued.
		waited := hostWaits.With(uint32(stream>>6), func() error {
			err := driver.CuStreamSynchronize(stream)
			if err != nil {
				driver.CuStreamSynchronize(stream) // the GPU may still access Go memory, which is unpinned next
			}
			return err
		})
		if err == nil {
			err = waited
		}
		return err
	}))
}

// beginNow waits for all work that uses the blocks, and returns an internal stream. The
// caller must call endNow, unless beginNow fails.
func (c *contextCore) beginNow(op string, blocks []*block) (driver.CUstream, error) {
	countCopies(blocks, 1)
	admit.Between()
	stream, err := c.streamNow(op, blocks)
	for tries := 0; makeRoom(err, tries); tries++ {
		stream, err = c.streamNow(op, blocks)
	}
	if err != nil {
		countCopies(blocks, -1)
	}
	return stream, err
}

// countCopies counts copies of memory that graphs allocate, before they ask whether it is
// allocated: FreeAsync says that it is not before it waits for copies.
func countCopies(blocks []*block, n int32) {
	for _, b := range blocks {
		if b.graph != nil {
			b.graph.copying.Add(n)
		}
	}
}

// streamNow waits for all work that uses the blocks and for its turn to block a thread, and returns an internal
// stream.
func (c *contextCore) streamNow(op string, blocks []*block) (driver.CUstream, error) {
	markers, err := markersOf(op, blocks)
	if err != nil {
		return 0, err
	}
	awaitAll(markers)
	if !copying.Try() {
		if rt.InCallback() {
			return 0, &Error{Op: op, Err: ErrInCallback}
		}
		copying.QueueUp()
	}
	stream, err := c.shared.copies.get(c)
	if err != nil {
		copying.Leave()
	}
	return stream, wrap(op, err)
}

// endNow returns the stream to the pool, or has it destroyed if the pool is full: a limiter
// that ran out of patience has let in more copies than usual.
func (c *contextCore) endNow(stream driver.CUstream, blocks []*block) {
	countCopies(blocks, -1)
	if !c.shared.copies.put(stream, copying.Limit()) {
		c.Retain()
		admit.Turns.Add(func() bool { // it may wait for an instantiation
			_ = c.withCurrent(func() error { return destroyStream(stream) })
			c.Release()
			return false
		})
	}
	copying.Leave()
}

// markersOf marks the end of all work that uses the blocks.
func markersOf(op string, blocks []*block) (markers []marker, err error) {
	for _, b := range blocks {
		if !b.allocated() {
			endAll(markers)
			return nil, b.unusable(op)
		}
		more, err := b.known().markers(true)
		if err != nil {
			endAll(markers)
		}
		if err == rt.CodeCapturing {
			return nil, refuse(op, ErrCapturing, "a stream that uses the memory is capturing, so its work cannot be waited for")
		} else if err != nil {
			return nil, wrap(op, err)
		}
		markers = append(markers, more...)
	}
	return markers, nil
}

// awaitAll waits for the work before each marker and ends the markers.
func awaitAll(markers []marker) {
	for _, p := range markers {
		p.wait()
		p.end()
	}
}

// Memory is the memory of n values of type T: a [Buffer] of a device or [Pinned] memory of
// the host.
type Memory[T any] interface {
	Len() int
	span(*T) span // the parameter is nil: it ties the memory to its type
}

// A span is where the values of a [Memory] are: one side of a copy, or what is filled. The zero value
// is that of a nil Memory.
type span struct {
	memory *memory
	host   unsafe.Pointer     // of a Pinned; nil for a Buffer
	at     driver.CUdeviceptr // the first byte: pinned memory has the same address on the device and the host
	n      int
	size   uint64 // in bytes
}

func (b *Buffer[T]) span(*T) span {
	if b == nil {
		return span{}
	}
	return span{memory: b.memory, at: b.address, n: b.n, size: b.Size()}
}

func (h *Pinned[T]) span(*T) span {
	if h == nil {
		return span{}
	}
	return span{memory: h.memory, host: h.data, at: driver.CUdeviceptr(uintptr(h.data)), n: h.n, size: h.Size()}
}

func spanOf[T any](m Memory[T]) span {
	if m == nil {
		return span{}
	}
	return m.span(nil)
}

// open tells whether the memory is there.
func (s *span) open() bool { return s.memory != nil && !s.memory.Closed() }

// onDevice returns the address at which the device reaches the values. It returns [ErrInvalidArgument] if it does not
// reach them.
func (s *span) onDevice(op string) (driver.CUdeviceptr, error) {
	if s.host == nil {
		return s.at, nil
	}
	return s.memory.mapped(op, s.host)
}

// copyFrom describes a copy of all of from to the start of s. on is the context of the device memory, the
// destination's if both sides are device memory, and nil if none is.
func (s *span) copyFrom(op string, from *span) (c rt.Copy, on *contextCore, err error) {
	c = rt.Copy{Kind: rt.DeviceToDevice, Dst: s.at, Src: from.at, Size: from.size}
	if err := fits(op, from.n, s.n); err != nil {
		return c, nil, err
	}
	switch {
	case s.host != nil && from.host != nil:
		c.Kind = rt.HostToHost
	case s.host != nil:
		c.Kind, on = rt.DeviceToHost, from.memory.ctx
	case from.host != nil:
		c.Kind, on = rt.HostToDevice, s.memory.ctx
	default:
		on = s.memory.ctx
		if err := acrossContexts(op, &c, rt.Peer, on, from.memory.ctx); err != nil {
			return c, nil, err
		}
	}
	return c, on, apart(op, c.Dst, c.Src, c.Size)
}

// copyNow waits for all work that uses either memory, copies all of from to the start of s on an internal stream, and
// returns once that is complete.
func (s *span) copyNow(op string, from *span) error {
	m, err := s.memory.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	f, err := from.memory.acquire(op)
	if err != nil {
		return err
	}
	defer f.Release()
	c, _, err := s.copyFrom(op, from)
	if err != nil {
		return err
	}
	return m.ctx.copyNow(op, &c, nil, m, f)
}

// copyAsync enqueues a copy of all of from to the start of s on a stream.
func (s *span) copyAsync(op string, on *Stream, from *span) error {
	m, err := s.memory.openUnacquired(op)
	if err != nil {
		return err
	}
	f, err := from.memory.openUnacquired(op)
	if err != nil {
		return err
	}
	c, of, err := s.copyFrom(op, from)
	if err != nil {
		return err
	}
	err = on.copy(op, &c, nil, of, m, f)
	runtime.KeepAlive(s.memory) // as neither is acquired
	runtime.KeepAlive(from.memory)
	return err
}

// retainedBy has k retain the memory.
func (s *span) retainedBy(op string, k *retained) error {
	if s.memory == nil || !k.retain(&s.memory.Handle, s.memory.Acquire) {
		return &Error{Op: op, Err: ErrClosed}
	}
	return nil
}

// some refuses an empty span: CUDA has no nodes for it.
func (s *span) some(op string) error {
	if s.n == 0 {
		return refuse(op, ErrRange, "a node for no values: leave it out")
	}
	return nil
}

// near reports whether two ranges of the same length overlap.
func near(a, b, length uint64) bool { return a < b+length && b < a+length }
