package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// enqueue puts work that uses blocks on the stream: call does, with the context
// current. In a capture the blocks are kept as long as the graph, unless it is work
// that cannot be captured.
func (s *streamCore) enqueue(op string, blocks []*block, captured bool, call func() error) error {
	capture, err := s.enterWork(op, 1)
	if err != nil {
		return err
	}
	defer s.leaveWork(capture)
	// The legacy stream cannot be used while a blocking stream captures.
	if (!captured || s.legacy()) && (capture != nil || s.capturing()) {
		return &Error{Op: op, Err: ErrCapturing}
	}
	for _, b := range blocks {
		if !b.use(s) || !capture.keeps(&b.handle) {
			return &Error{Op: op, Err: ErrClosed}
		}
	}
	enqueuing.enter()
	defer enqueuing.leave()
	return wrap(op, s.ctx.in(call))
}

// doNow puts work on a stream of the layer's, behind all work that uses the blocks,
// and waits for it. The legacy default stream, on which the driver's own synchronous
// calls run, destroys captures.
func (c *contextCore) doNow(op string, blocks []*block, put func(driver.CUstream) error) error {
	stream, err := c.shared.copies.get(c)
	if err != nil {
		return wrap(op, err)
	}
	defer c.shared.copies.put(stream)
	if err := c.orderBehind(op, stream, blocks); err != nil {
		return err
	}
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
