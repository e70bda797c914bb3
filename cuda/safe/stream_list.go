package safe

import (
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// listed is the number of streams of all contexts.
var listed atomic.Int32

// list makes s one of the context's streams, which are all that CUDA's calls may meet.
func (c *contextState) list(s *streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(s)
}

// add lists a stream, if it is not listed yet. mu is held.
func (c *contextState) add(s *streamCore) {
	if _, ok := c.streams[s]; !ok {
		c.streams[s] = struct{}{}
		listed.Add(1)
	}
}

func (c *contextState) unlist(s *streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.streams[s]; ok {
		delete(c.streams, s)
		listed.Add(-1)
	}
}

// live returns the streams of the context.
func (c *contextState) live() []*streamCore {
	return c.liveThat(func(*streamCore) bool { return true })
}

// liveOf returns the streams of a green context.
func (c *contextState) liveOf(g *greenCore) []*streamCore {
	return c.liveThat(func(s *streamCore) bool { return s.green == g })
}

// others returns the other Streams for the same stream of CUDA as s that do not retain s.
func (c *contextState) others(s *streamCore) []*streamCore {
	if !s.queue.shared.Load() && !s.legacy() {
		return nil
	}
	return c.liveThat(func(o *streamCore) bool { return o != s && o.queue == s.queue })
}

func (c *contextState) liveThat(is func(*streamCore) bool) (streams []*streamCore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.streams {
		if is(s) {
			streams = append(streams, s)
		}
	}
	return streams
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
	c.add(s)
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

// setGreen sets the green context of a stream that was created elsewhere, if this package has
// created that, and retains it for the caller.
func (c *contextState) setGreen(s *streamCore, raw driver.CUgreenCtx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.greens[raw]; g != nil && g.TryRetain() {
		s.green = g
	}
}
