package safe

import (
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Synchronous copies and memsets run on streams of the layer's, each in a thread that
// waits for the GPU. So that a thousand goroutines take no thousand threads, few copies
// run at once. The work that uses the memory is waited for before, which takes no thread:
// a copy that the GPU holds up holds up those of others in the driver.
var copying = limiter{patience: 100 * time.Millisecond, slowly: true}

// doNow puts work on a stream of the layer's when all work that uses the blocks is done,
// and waits for it. The legacy default stream, on which the driver's own synchronous
// calls run, destroys captures.
func (c *contextCore) doNow(op string, blocks []*block, put func(driver.CUstream) error) error {
	stream, err := c.beginNow(op, blocks)
	if err != nil {
		return err
	}
	defer c.endNow(stream)
	return wrap(op, c.withCurrent(func() error {
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
func (c *contextCore) beginNow(op string, blocks []*block) (driver.CUstream, error) {
	points, err := pointsOf(op, blocks)
	if err != nil {
		return 0, err
	}
	awaitAll(points)
	if !copying.try() {
		if rt.InCallback() {
			return 0, &Error{Op: op, Err: ErrInCallback}
		}
		copying.queueUp()
	}
	stream, err := c.shared.copies.get(c)
	if err != nil {
		copying.leave()
	}
	return stream, wrap(op, err)
}

// endNow gives the stream back, or destroys it where patience has made more than are
// needed.
func (c *contextCore) endNow(stream driver.CUstream) {
	if !c.shared.copies.put(stream, copying.limit()) {
		c.destroying("", func() error {
			return executables.destroying(func() error { return driver.CuStreamDestroy(stream) })
		})
	}
	copying.leave()
}

// pointsOf are the ends of all work that uses the blocks.
func pointsOf(op string, blocks []*block) (points []marker, err error) {
	for _, b := range blocks {
		more, err := b.markers()
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
func awaitAll(points []marker) {
	for _, p := range points {
		p.wait()
		p.end()
	}
}
