package safe

import "github.com/cudabind/cudabind/cuda/internal/rt"

// enqueue enqueues work that uses blocks and takes places in the driver's queue: call
// calls the driver. uncapturable is the reason why the work cannot be captured, "" if it
// can. In a capture the graph retains the blocks.
func (s *streamCore) enqueue(op string, work int, blocks []*block, uncapturable string, call func() error) error {
	capture, err := s.enterWork(op, work)
	if err != nil {
		return err
	}
	defer s.leaveWork(capture)
	if err = s.enqueueEntered(op, capture, blocks, uncapturable, call); err != nil {
		s.notEnqueued(capture, work)
	}
	return err
}

// enqueueEntered is enqueue on a stream that is entered. The blocks need not be acquired: see
// block.use.
func (s *streamCore) enqueueEntered(op string, capture *capturing, blocks []*block, uncapturable string, call func() error) error {
	if err := s.uses(op, capture, blocks, uncapturable); err != nil {
		return err
	}
	return wrap(op, call())
}

// uses records the stream as a user of the blocks.
func (s *streamCore) uses(op string, capture *capturing, blocks []*block, uncapturable string) error {
	if uncapturable != "" && (capture != nil || s.capturing()) {
		return refuse(op, ErrCapturing, "%s", uncapturable)
	}
	for _, b := range blocks {
		b.note(s)
		if b.Over() || !b.usableIn(capture) || !capture.retains(&b.Handle) {
			return b.unusable(op)
		}
	}
	return nil
}

// inParts calls enqueue for parts of n pieces of work, with at most so many each that they fit
// into the driver's queue: in a call that enqueues more on a stuck stream, the driver blocks.
func inParts(n, most int, enqueue func(from, to int) error) error {
	for from := 0; from < n; from += most {
		if err := enqueue(from, min(from+most, n)); err != nil {
			return err
		}
	}
	return nil
}

// enqueueCurrent is enqueue for a call that needs the context to be current.
func (s *streamCore) enqueueCurrent(op string, work int, blocks []*block, uncapturable string, call func() error) error {
	return s.enqueue(op, work, blocks, uncapturable, func() error {
		// The legacy stream cannot be used while a blocking stream captures.
		if s.legacy() && s.capturing() {
			return rt.CodeCapturing
		}
		return s.ctx.withCurrent(call)
	})
}
