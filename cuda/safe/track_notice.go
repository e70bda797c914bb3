package safe

import "github.com/cudabind/cudabind/cuda/internal/rt"

// noticeReleases makes the driver notice that releases on idle streams have completed: it
// trims no memory before it has waited for the stream or an event, and a query is no wait.
// The context must be current.
func (c *contextState) noticeReleases() error {
	for _, s := range c.live() {
		s.notice()
	}
	c.closed.over() // asks those that are closed
	return c.releases.synchronize()
}

// notice makes the driver notice the stream's releases if no call is using it. The lock, for which
// Close waits, keeps the stream from being destroyed. It leaves foreign streams alone if package
// safe has freed nothing there, as their owner may be beginning a capture.
func (s *streamCore) notice() {
	if !s.mu.TryLock() {
		return
	}
	if s.Closed() || s.foreign && !s.root().freed {
		s.mu.Unlock()
		return
	}
	if s.enteredAsk("notice") != nil {
		return
	}
	s.synchronizeIdle()
	s.leave(nil)
}

// noticeReleases is notice for a stream that is being closed, as later calls do not find
// it. mu is held.
func (s *streamCore) noticeReleases() {
	if !s.root().freed {
		return
	}
	if s.legacy() {
		if gate := &s.ctx.shared.legacy; gate.enter() {
			defer gate.leave()
		} else {
			return
		}
	}
	_ = s.ctx.withCurrent(func() error { s.synchronizeIdle(); return nil })
}

// synchronizeIdle synchronizes with the stream if its work has completed. mu is held.
func (s *streamCore) synchronizeIdle() {
	if rt.Query(s.callContext, s.raw, 0) == 0 {
		if s.synchronize() == nil { // else later calls report it
			s.root().freed = false
		}
	}
}
