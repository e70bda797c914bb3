package safe

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
		b.note(s)
		capture.retains(&b.Handle)
	}
	enqueuing.enter()
	defer enqueuing.leave()
	return wrap(op, s.ctx.withCurrent(call))
}
