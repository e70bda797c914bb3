package safe

import "github.com/cudabind/cudabind/cuda/internal/rt"

// enqueue enqueues work that uses blocks and takes places in the driver's queue: call
// calls the driver. uncapturable is the reason why the work cannot be captured, "" if it
// can. In a capture the graph retains the blocks.
func (s *streamCore) enqueue(op string, work int, blocks []*block, uncapturable string, call func() error) error {
	a := admission{op: op, stream: s, flags: enqueues, places: work}
	if err := a.admit(); err != nil {
		return err
	}
	done := false
	defer func() { a.leave(done) }()
	err := s.enqueueAdmitted(op, a.capture, blocks, uncapturable, call)
	done = err == nil
	return err
}

// enqueueAdmitted notes the stream as a user of the blocks and calls the driver, in a call that is admitted.
// capture is the admission's; the graph retains the blocks. The blocks need not be acquired: a block that is
// closed meanwhile finds the stream among its users, or this call finds the block closed.
func (s *streamCore) enqueueAdmitted(op string, capture *capturing, blocks []*block, uncapturable string, call func() error) error {
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

// enqueueCurrent admits and enqueues work as enqueue does, with the context current in call.
func (s *streamCore) enqueueCurrent(op string, work int, blocks []*block, uncapturable string, call func() error) error {
	return s.enqueue(op, work, blocks, uncapturable, func() error {
		// The legacy stream cannot be used while a blocking stream captures.
		if s.legacy() && s.capturing() {
			return rt.CodeCapturing
		}
		return s.ctx.withCurrent(call)
	})
}
