package safe

import (
	"errors"
)

// WaitStream makes later work of the stream wait for the current work of other, which may
// belong to another context or device. It needs no [Event] of the program.
//
// If other is capturing, s joins the capture, as with [Stream.WaitEvent]. WaitStream
// returns [ErrCapturing] if s is capturing and other does not take part in that capture.
// Source: cuEventRecord, cuStreamWaitEvent.
func (s *Stream) WaitStream(other *Stream) error {
	const op = "Stream.WaitStream"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	o, err := other.acquire(op)
	if err != nil {
		return err
	}
	defer o.Release()
	return c.waitStream(op, o)
}

// waitStream implements WaitStream. Both streams are acquired, but may be closed.
func (s *streamCore) waitStream(op string, other *streamCore) error {
	e, err := other.ctx.pooledEvent(op)
	if err != nil {
		return err
	}
	defer e.Close() // in a capture, it is destroyed once that has ended
	if err := other.record(op, e, 0); err != nil {
		return err
	}
	err = s.waitFor(op, e, 0)
	if !errors.Is(err, ErrCapturing) {
		return err
	}
	switch mine, its := s.capture.Load(), other.capture.Load(); {
	case mine == nil || mine == its:
		return err
	case its == nil:
		return refuse(op, ErrCapturing, "the other stream takes no part in the capture: make it wait for captured work first")
	}
	return refuse(op, ErrCapturing, "the streams take part in different captures")
}

// pooledEvent opens an event of the pool for one record. Close puts it back. The caller has
// acquired the context.
func (c *contextCore) pooledEvent(op string) (*eventCore, error) {
	raw, err := c.shared.events.get(c)
	if err != nil {
		return nil, wrap(op, err)
	}
	e := &eventCore{ctx: c, raw: raw, callContext: c.handleContext(), untimed: true, pooled: true, recording: &recording{}}
	if err := e.Open(e, &c.Handle); err != nil {
		c.shared.events.put(raw)
		return nil, wrap(op, err)
	}
	return e, nil
}

// Fork calls f with n streams, whose work runs side by side: they wait for the current work of s, and later work of s
// waits for theirs. They belong to the same context or green context as s, with the priority that s was created with,
// and are non-blocking.
//
// Work that f enqueues on s itself does not wait for them. Fork joins the streams even if f returns an error, panics or
// ends its goroutine. It returns the error of f and that of the join. Only f may use the streams: once f returns, their
// methods return [ErrClosed], so goroutines that f starts must enqueue their work before f returns. A later Fork of s
// may use the same CUDA streams.
//
// If s is capturing, the streams join the capture, and f's work becomes part of the graph. f must end captures that it
// begins. Fork returns [ErrRange] if n is negative or above 4096, and [ErrNotSupported] if s belongs to a green context
// that [NewGreenContext] did not create. Source: cuStreamCreateWithPriority, cuEventRecord, cuStreamWaitEvent.
func (s *Stream) Fork(n int, f func(branches []*Stream) error) (err error) {
	const op = "Stream.Fork"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if n < 0 || n > mostForked {
		return refuse(op, ErrRange, "%d streams, but there may be 0 to %d", n, mostForked)
	}
	if f == nil {
		return noFunction(op)
	}
	if c.onGreen && c.green == nil {
		return refuse(op, ErrNotSupported, "the stream belongs to a green context that package safe did not create; create the streams there, and pass them to BorrowStream")
	}
	var branches []branch
	defer func() {
		for _, b := range branches {
			if e := c.join(op, b); e != nil {
				err = errors.Join(err, e)
			}
		}
	}()
	streams := make([]*Stream, 0, min(n, mostBranches))
	for range n {
		b, err := c.branch(op)
		if b.core != nil {
			branches = append(branches, b)
		}
		if err != nil {
			return err
		}
		streams = append(streams, b.stream)
	}
	return f(streams)
}

// A branch is a stream of Fork.
type branch struct {
	core   *streamCore // acquired; its handle is closed already
	stream *Stream     // borrows the core, for one f
	own    *streamCore // of stream: f may write another into that
}

// branch returns a stream that waits for s. If it returns an error and a core, the branch
// must be joined nevertheless.
func (s *streamCore) branch(op string) (b branch, err error) {
	core := s.branches.take()
	if core == nil {
		if core, err = s.newBranch(op); err != nil {
			return b, err
		}
	}
	if b.stream, err = core.borrowed(nil).adopt(op); err != nil {
		core.Release()
		return b, err
	}
	b.core, b.own = core, b.stream.core
	return b, core.waitStream(op, s)
}

// newBranch creates a stream whose handle is closed, so that it is destroyed once it is
// released.
func (s *streamCore) newBranch(op string) (core *streamCore, err error) {
	o := StreamOptions{NonBlocking: true, Priority: s.priority, ClampPriority: true}
	if s.green != nil {
		core, err = s.green.newStream(op, o)
	} else {
		core, err = s.ctx.newStream(op, o)
	}
	if err != nil {
		return nil, err
	}
	if err := core.open(op); err != nil {
		return nil, err
	}
	core.Acquire()
	return core, core.Close()
}

// join makes s wait for a branch, and keeps it for a later Fork.
func (s *streamCore) join(op string, b branch) error {
	if b.stream.core == b.own {
		b.stream.cleanup.Stop()
	}
	err := b.own.Close()
	if c := b.core.capture.Load(); c != nil && c != s.capture.Load() {
		err = errors.Join(err, refuse(op, ErrCapturing, "a stream of the fork is in a capture that s takes no part in"))
	} else {
		err = errors.Join(err, s.waitStream(op, b.core))
	}
	if err != nil || b.core.known.Load() || !s.branches.keep(b.core) {
		b.core.Release()
	}
	return err
}

// mostForked is how many streams Fork creates. No device runs more than 128 kernels at once.
const mostForked = 4096
