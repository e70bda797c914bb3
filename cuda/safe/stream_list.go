package safe

import (
	"maps"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// list makes s one of the context's streams, which are all that CUDA's calls may meet.
func (c *contextState) list(s *streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[s] = struct{}{}
}

func (c *contextState) unlist(s *streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, s)
}

// live returns the streams of the context.
func (c *contextState) live() []*streamCore {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.streams))
}

// share lists s, which was created elsewhere. s gets the queue of a Stream for the same stream of
// CUDA if there is one, or else a new queue.
func (c *contextState) share(s *streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.queue = c.queueOf(s.raw)
	if s.queue == nil {
		s.queue = newQueue()
	} else {
		s.queue.shared.Store(true)
	}
	c.streams[s] = struct{}{}
}

// queueOf returns the queue of a Stream, or nil. A closed Stream counts if there is no other, as a
// call may still use it. If there is another, CUDA may have reused the handle since. mu is held.
func (c *contextState) queueOf(raw driver.CUstream) (q *queue) {
	for s := range c.streams {
		switch {
		case s.raw != raw:
		case !s.Closed():
			return s.queue
		default:
			q = s.queue
		}
	}
	return q
}

// closedOthers returns the closed and unused Streams for the same stream of CUDA as s.
func (c *contextState) closedOthers(s *streamCore) (others []*streamCore) {
	if !s.queue.shared.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.streams {
		if o != s && o.queue == s.queue && o.Over() {
			others = append(others, o)
		}
	}
	return others
}
