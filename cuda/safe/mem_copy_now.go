package safe

import (
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// copying limits synchronous copies and memsets. They run on internal streams, and each
// blocks a thread until the GPU has completed it. The limit keeps a thousand goroutines
// from taking a thousand threads. A copy first waits for the work that uses its memory,
// without a thread and outside the limit: a copy that the GPU holds up would hold up the
// others in the driver.
var copying = admit.Limiter{Patience: 100 * time.Millisecond, Slowly: true}

// copyNow makes a copy or a memset on an internal stream, and returns once it is complete. One crossing enqueues it
// and waits.
func (b *block) copyNow(op string, c *rt.Copy, host unsafe.Pointer, blocks ...*block) error {
	if c.Size == 0 {
		return nil
	}
	x := b.ctx
	if c.Kind == rt.Peer { // two crossings, as changes of access wait for the first
		return x.doNow(op, blocks, func(stream driver.CUstream) error {
			c.Context, c.Stream = x.forCopy(x.handleContext(), blocks), stream
			return peerCopies.With(uint32(stream>>6), func() error { return check(op, c.Do(host)) })
		})
	}
	stream, err := x.beginNow(op, blocks)
	if err != nil {
		return err
	}
	defer x.endNow(stream, blocks)
	c.Context, c.Stream, c.Wait = x.forCopy(x.handleContext(), blocks), stream, 1
	c.Home, c.ID = x.raw, x.id
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
