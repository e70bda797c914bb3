package safe

// enqueue calls call, which enqueues work that uses blocks, with the context current. In
// a capture, the graph retains the blocks. If captured is false, the work cannot be
// captured, and enqueue returns ErrCapturing.
func (s *streamCore) enqueue(op string, blocks []*block, captured bool, call func() error) error {
	capture, err := s.enterWork(op, 1)
	if err != nil {
		return err
	}
	defer s.leaveWork(capture)
	// CUDA rejects calls on the legacy stream while a blocking stream captures.
	if (!captured || s.legacy()) && (capture != nil || s.capturing()) {
		return &Error{Op: op, Err: ErrCapturing}
	}
	for _, b := range blocks {
		b.note(s)
		capture.retains(&b.Handle)
	}
	enqueuing.enter()
	defer enqueuing.leave()
	return wrap(op, s.ctx.withCurrent(call))
}
