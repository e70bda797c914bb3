package safe

import (
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Synchronous copies and memsets run on streams of the layer's, each in a thread that
// waits for the GPU. So that a thousand goroutines take no thousand threads, few copies
// run at once, and the work that uses the memory is waited for before, which takes no
// thread. Where that work is likely to be short the GPU waits for it instead, which is
// faster: up to half of the copies may be wrong about that.
var (
	copying = bound{patience: 100 * time.Millisecond, slowly: true}
	hasty   atomic.Int32
)

// A turn is that of a synchronous call.
type turn struct {
	stream driver.CUstream // of the layer's
	behind []point         // that the stream waits for
	start  time.Time
}

// doNow puts work on a stream of the layer's when all work that uses the blocks is done,
// and waits for it. The legacy default stream, on which the driver's own synchronous
// calls run, destroys captures.
func (c *contextCore) doNow(op string, blocks []*block, put func(driver.CUstream) error) error {
	turn, err := c.beginNow(op, blocks)
	if err != nil {
		return err
	}
	defer c.endNow(&turn)
	stream := turn.stream
	return wrap(op, c.in(func() error {
		err := put(stream)
		// Also after an error: some of the work may be under way.
		waited := driver.CuStreamSynchronize(stream)
		if waited != nil {
			driver.CuStreamSynchronize(stream) // memory of Go's must not be let go under it
		}
		if err == nil {
			err = waited
		}
		return err
	}))
}

// beginNow waits for a stream of the layer's, on which the blocks can be used. endNow
// follows, unless it fails.
func (c *contextCore) beginNow(op string, blocks []*block) (t turn, err error) {
	points, err := pointsOf(op, blocks)
	if err != nil {
		return t, err
	}
	if len(points) > 0 {
		if t.hurry(points) {
			err = c.takeStream(op, &t)
			return t, err
		}
		awaitAll(points)
	}
	if !copying.try() {
		if rt.InCallback() {
			return t, &Error{Op: op, Err: ErrInCallback}
		}
		copying.queueUp()
	}
	err = c.takeStream(op, &t)
	return t, err
}

// endNow gives the stream back, or destroys it where patience has made more than are
// needed.
func (c *contextCore) endNow(t *turn) {
	if t.stream != 0 && !c.shared.copies.put(t.stream, copying.limit()) {
		c.destroying("", func() error { return driver.CuStreamDestroy(t.stream) })
	}
	if len(t.behind) > 0 {
		hasty.Add(-1)
		learn(t.behind, t.start)
		endAll(t.behind)
	}
	copying.leave()
}

// hurry takes the turn at once, if the points are likely to be reached soon.
func (t *turn) hurry(points []point) bool {
	for _, p := range points {
		if p.stream.slow.Load() {
			return false
		}
	}
	if hasty.Add(1) > copying.limit()/2 || !copying.try() {
		hasty.Add(-1)
		return false
	}
	t.behind, t.start = points, time.Now()
	return true
}

// takeStream takes a stream for a turn, and has it wait.
func (c *contextCore) takeStream(op string, t *turn) (err error) {
	if t.stream, err = c.shared.copies.get(c); err == nil {
		for _, p := range t.behind {
			if code := p.orders(c.bare(), t.stream); code != 0 && err == nil {
				err = code
			}
		}
	}
	if err != nil {
		c.endNow(t)
	}
	return wrap(op, err)
}

// pointsOf are the ends of all work that uses the blocks.
func pointsOf(op string, blocks []*block) (points []point, err error) {
	for _, b := range blocks {
		more, err := b.points()
		if err != nil {
			endAll(points)
		}
		if err == rt.CodeCapturing {
			return nil, refuse(op, ErrCapturing, "a stream that uses the buffer captures, so that its work has no end to wait for")
		} else if err != nil {
			return nil, wrap(op, err)
		}
		points = append(points, more...)
	}
	return points, nil
}

// awaitAll waits until the points are reached.
func awaitAll(points []point) {
	for i, p := range points {
		start := time.Now()
		p.wait()
		learn(points[i:i+1], start)
		p.end()
	}
}

// learn notes whether the work of streams took long.
func learn(points []point, start time.Time) {
	took := time.Since(start) > long
	for _, p := range points {
		if took != p.stream.slow.Load() {
			p.stream.slow.Store(took)
		}
	}
}
