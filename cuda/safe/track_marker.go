package safe

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// eventPool has events of one context that are used and given back: without
// timing, for points in streams. One that is given back may still be pending;
// recording it again moves it. There are as many as were in use at once, and 15 more
// at most.
type eventPool struct {
	making sync.Mutex // whoever makes events holds a thread meanwhile
	mu     sync.Mutex // never held during a call of the driver, as the poller gives events back
	free   []driver.CUevent
}

// get takes an event, and makes some if there is none.
func (p *eventPool) get(c *contextCore) (driver.CUevent, error) {
	if e := p.take(); e != 0 {
		return e, nil
	}
	if !p.making.TryLock() {
		if rt.InCallback() {
			return 0, rt.CodeCallback
		}
		p.making.Lock()
	}
	defer p.making.Unlock()
	for { // others take events meanwhile
		if e := p.take(); e != 0 {
			return e, nil
		}
		if err := c.withCurrent(p.make); err != nil {
			e := p.take() // one may have been made, or given back
			if e != 0 {
				err = nil
			}
			return e, err
		}
	}
}

// event takes an event of the pool. The context, which is marked, is kept until end.
func (c *contextCore) event() (e driver.CUevent, end func(), err error) {
	pool := &c.shared.events
	if e, err = pool.get(c); err != nil {
		return 0, nil, err
	}
	c.Retain()
	return e, func() {
		pool.put(e)
		c.Release()
	}, nil
}

// take takes an event, 0 if there is none.
func (p *eventPool) take() (e driver.CUevent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		e, p.free = p.free[n-1], p.free[:n-1]
	}
	return e
}

// make makes events. The context is current.
func (p *eventPool) make() error {
	const batch = 16
	for range batch {
		var e driver.CUevent
		if err := driver.CuEventCreate(&e, uint32(driver.CU_EVENT_DISABLE_TIMING)); err != nil {
			return err
		}
		p.put(e)
	}
	return nil
}

func (p *eventPool) put(e driver.CUevent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, e)
}

// empty destroys the events. The context is current.
func (p *eventPool) empty() error {
	p.mu.Lock()
	free := p.free
	p.free = nil
	p.mu.Unlock()
	var err error
	for _, e := range free {
		err = errors.Join(err, driver.CuEventDestroy(e))
	}
	return err
}

// A point is the end of the work that was on a stream at some time.
type marker struct {
	stream *streamCore
	event  driver.CUevent // of the pool of the stream's context; 0 for the stream's tail
}

// point marks the end of the stream's work. done tells that there is none. A
// capturing stream has no such end: the error is rt.CodeCapturing. Without wait, a
// stream that is in use just now is errLater.
func (s *streamCore) mark(wait bool) (p marker, done bool, err error) {
	if !s.mu.TryLock() {
		switch {
		case !wait:
			return p, false, lifetime.ErrLater
		case rt.InCallback():
			return p, false, rt.CodeCallback
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.over {
		return marker{stream: s}, s.tail == 0, nil
	}
	return s.markHere(wait)
}

// pointHere is point for a stream that is not over, with mu held.
func (s *streamCore) markHere(wait bool) (p marker, done bool, err error) {
	if s.capture.Load() != nil {
		return marker{}, false, rt.CodeCapturing
	}
	if s.legacy() {
		gate := &s.ctx.shared.legacy
		if !gate.enter() {
			return marker{}, false, rt.CodeCapturing
		}
		defer gate.leave()
	}
	pool := &s.ctx.shared.events
	e, err := pool.get(s.ctx)
	if err == nil {
		code := s.home().Point(s.raw, e)
		switch code {
		case driver.CUDA_ERROR_NOT_READY:
			s.ctx.Retain() // the stream is alive, and so its context
			return marker{s, e}, false, nil
		case driver.CUDA_SUCCESS:
			pool.put(e)
			return marker{}, true, nil
		case rt.CodeCapturing, rt.CodeCallback, rt.CodeReset:
			pool.put(e)
			return marker{}, false, code
		}
		pool.put(e)
	}
	err = s.withoutEvent(wait, err)
	return marker{}, err == nil, err
}

// withoutEvent waits for the stream's work, where no event can be had, as when memory
// is out: nil means that it is over.
func (s *streamCore) withoutEvent(wait bool, why error) error {
	if why == rt.CodeReset || why == rt.CodeCallback {
		return why
	}
	return s.ctx.withCurrent(func() error {
		switch code := rt.Query(s.ctx.raw, s.raw); {
		case code == driver.CUDA_ERROR_NOT_READY && wait:
			return driver.CuStreamSynchronize(s.raw)
		case code == driver.CUDA_ERROR_NOT_READY:
			return lifetime.ErrLater
		case code != 0:
			return code
		}
		return nil
	})
}

// done asks whether the point is reached.
func (p marker) done() driver.CUresult {
	if p.event != 0 {
		return p.stream.home().EventQuery(p.event)
	}
	if !p.stream.mu.TryLock() {
		return driver.CUDA_ERROR_NOT_READY // somebody is asking it just now
	}
	defer p.stream.mu.Unlock()
	return p.stream.tailDone()
}

// wait waits until the point is reached.
func (p marker) wait() {
	if p.event != 0 {
		code := spins(func(spin int64) driver.CUresult { return rt.EventQuery(p.stream.callContext, p.event, spin) })
		if code == driver.CUDA_ERROR_NOT_READY {
			w := &waiter{home: p.stream.home(), event: p.event, queue: p.stream, to: time.Now(), end: func() {}}
			w.wait(context.Background(), "")
		}
		return
	}
	// A tail may become somebody else's.
	for pause := lifetime.Retry / 64; p.done() == driver.CUDA_ERROR_NOT_READY; pause = min(2*pause, lifetime.Retry) {
		time.Sleep(pause)
	}
}

// orders makes a stream, of any context, wait for the point.
func (p marker) orders(set driver.CUcontext, stream driver.CUstream) driver.CUresult {
	if p.event != 0 {
		return rt.WaitEvent(set, stream, p.event, 0, false)
	}
	p.stream.mu.Lock()
	defer p.stream.mu.Unlock()
	if p.stream.tail == 0 {
		return 0
	}
	return rt.WaitEvent(set, stream, p.stream.tail, 0, false)
}

// end gives back what the point holds.
func (p marker) end() {
	if p.event != 0 {
		p.stream.ctx.shared.events.put(p.event)
		p.stream.ctx.Release()
	}
}

// leaveTail marks the end of the work of a stream that is about to be closed,
// for the blocks of memory that it uses. mu is held. It is errLater, without wait, or
// where a capture keeps it from being marked.
func (s *streamCore) leaveTail(wait bool) error {
	if !s.used && !s.owned || s.ctx.shared.reset.Load() {
		return nil
	}
	p, done, err := s.markHere(wait)
	if done || err != nil {
		if err == lifetime.ErrLater || err == rt.CodeCapturing {
			return lifetime.ErrLater
		}
		return nil // the process is lost
	}
	s.ctx.Release() // the context, when it goes, waits for its tails
	s.tail = p.event
	s.ctx.shared.closed.add(s)
	return nil
}

// tailDone asks whether the work of a closed stream is over, and then gives
// the event back. mu is held.
func (s *streamCore) tailDone() driver.CUresult {
	if s.tail == 0 {
		return 0
	}
	code := s.home().EventQuery(s.tail)
	if code != driver.CUDA_ERROR_NOT_READY {
		s.ctx.shared.events.put(s.tail)
		s.tail = 0
	}
	return code
}

// tails are the closed streams of a context whose work may not be over.
type closedStreams struct {
	mu   sync.Mutex
	list []*streamCore
	most int // streams in the list, before it is looked through again
}

// add notes a stream, whose mu is held.
func (t *closedStreams) add(s *streamCore) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) >= t.most {
		t.forget()
		t.most = max(16, 2*len(t.list)) // so that a stream costs the same however many there are
	}
	t.list = append(t.list, s)
}

// over tells whether the work of all of them is over.
func (t *closedStreams) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	return len(t.list) == 0
}

// forget forgets those whose work is over. mu is held.
func (t *closedStreams) forget() {
	t.list = slices.DeleteFunc(t.list, func(s *streamCore) bool {
		return (marker{stream: s}).done() != driver.CUDA_ERROR_NOT_READY
	})
}

// streamPool has non-blocking streams of one context on which the layer does
// what must not wait for anybody else's work.
type streamPool struct {
	mu   sync.Mutex
	free []driver.CUstream
}

// get takes a stream, or makes one.
func (p *streamPool) get(c *contextCore) (driver.CUstream, error) {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return s, nil
	}
	p.mu.Unlock()
	var s driver.CUstream
	err := c.withCurrent(func() error { return driver.CuStreamCreate(&s, uint32(driver.CU_STREAM_NON_BLOCKING)) })
	return s, err
}

// put gives a stream back, unless there are so many already.
func (p *streamPool) put(s driver.CUstream, most int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) >= int(most) {
		return false
	}
	p.free = append(p.free, s)
	return true
}

// empty destroys the streams. The context is current.
func (p *streamPool) empty() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, s := range p.free {
		err = errors.Join(err, driver.CuStreamDestroy(s))
	}
	p.free = nil
	return err
}
