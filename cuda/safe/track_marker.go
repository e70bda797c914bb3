package safe

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// eventPool has untimed events of one context, for markers and waits. An event that is
// put back may still be pending: record it before anything asks or waits for it. The pool grows to the number
// of events used at once, plus 15 at most.
type eventPool struct {
	making admit.Leaf // creating events blocks a thread
	mu     admit.Leaf // never held during a call of the driver, as the poller puts events back
	free   []driver.CUevent
}

// get takes an event, and creates some if there is none.
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
	for { // other calls take events meanwhile
		if e := p.take(); e != 0 {
			return e, nil
		}
		if err := c.withCurrent(p.make); err != nil {
			e := p.take() // one may have been created, or put back
			if e != 0 {
				err = nil
			}
			return e, err
		}
	}
}

// event takes an event from the pool. The caller has acquired the context, which is
// retained until end.
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

// take takes an event, or returns 0 if there is none.
func (p *eventPool) take() (e driver.CUevent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		e, p.free = p.free[n-1], p.free[:n-1]
	}
	return e
}

// make creates events. The context must be current.
func (p *eventPool) make() error {
	const batch = 16
	for range batch {
		var e driver.CUevent
		if err := driver.CuEventCreate(&e, driver.CU_EVENT_DISABLE_TIMING); err != nil {
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

// empty destroys the events. The context must be current.
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

// A marker is the end of the work that was on a stream at some time.
type marker struct {
	stream *streamCore
	event  driver.CUevent // from the pool of the stream's context; 0 for the stream's tail
}

// mark marks the end of the stream's current work. done means that there is none. It
// returns rt.CodeCapturing if the stream is capturing, as captured work does not run.
// Without wait, it returns lifetime.ErrLater if another call is using the stream.
func (s *streamCore) mark(wait bool) (m marker, done bool, err error) {
	if !s.mu.TryLock() {
		switch {
		case !wait:
			return m, false, lifetime.ErrLater
		case rt.InCallback():
			return m, false, rt.CodeCallback
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	return s.markEnd(wait)
}

// markEnd marks the end of the current work of the stream, which is locked. A stream that is over is marked by the
// tail that it has left.
func (s *streamCore) markEnd(wait bool) (m marker, done bool, err error) {
	if s.over {
		if s.tail != 0 && rt.InCallback() {
			return m, false, rt.CodeCallback
		}
		return marker{stream: s}, s.tail == 0, nil
	}
	return s.markHere(wait, false)
}

// markHere records an event at the end of the current work of the stream, which is locked and not over. done means
// that there is no work; with always, the event is recorded also then.
func (s *streamCore) markHere(wait, always bool) (m marker, done bool, err error) {
	if s.capture.Load() != nil {
		return marker{}, false, rt.CodeCapturing
	}
	if s.legacy() {
		gate := &s.ctx.shared.legacy
		if !gate.Enter() {
			return marker{}, false, rt.CodeCapturing
		}
		defer gate.Leave()
	}
	pool := &s.ctx.shared.events
	e, err := pool.get(s.ctx)
	if err == nil {
		code := s.home().Mark(s.raw, e)
		if code == driver.CUDA_SUCCESS && always && rt.Record(s.callContext, e, s.raw) == driver.CUDA_SUCCESS {
			code = driver.CUDA_ERROR_NOT_READY
		}
		switch code {
		case driver.CUDA_ERROR_NOT_READY:
			s.ctx.Retain() // the live stream retains it
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

// withoutEvent waits for the stream's work if no event is available, for instance because
// memory is exhausted. nil means that the work has completed.
func (s *streamCore) withoutEvent(wait bool, why error) error {
	if why == rt.CodeReset || why == rt.CodeCallback {
		return why
	}
	return s.ctx.withCurrent(func() error {
		switch code := rt.Query(s.ctx.raw, s.raw, 0); {
		case code == driver.CUDA_ERROR_NOT_READY && wait:
			return s.synchronize()
		case code == driver.CUDA_ERROR_NOT_READY:
			return lifetime.ErrLater
		case code != 0:
			return code
		}
		return nil
	})
}

// done queries the marker.
func (m marker) done() driver.CUresult {
	if m.event != 0 {
		return m.stream.home().EventQuery(m.event)
	}
	if !m.stream.mu.TryLock() {
		return driver.CUDA_ERROR_NOT_READY // another call is using the stream
	}
	defer m.stream.mu.Unlock()
	return m.stream.tailDone()
}

// wait waits until the marked work has completed.
func (m marker) wait() {
	if m.event != 0 {
		err := check("", m.stream.ctx.eventSoon(m.stream.callContext, m.event))
		if errors.Is(err, driver.CUDA_ERROR_NOT_READY) {
			w := &waiter{ // without a queue: other waits for the stream, recorded later, may have come before
				home: m.stream.home(), event: m.event, end: func() {},
			}
			err = w.wait(context.Background(), "")
		}
		if err == nil {
			return
		}
	}
	// tailDone may put the tail back in the pool, and another call may take it: only done can tell.
	for pause := lifetime.Retry / 64; m.done() == driver.CUDA_ERROR_NOT_READY; pause = min(2*pause, lifetime.Retry) {
		time.Sleep(pause)
	}
}

// orders makes a stream, of any context, wait for the marker. The stream is locked. It returns
// driver.CUDA_ERROR_NOT_READY if another call is using a closed stream of the marker.
func (m marker) orders(s *streamCore) driver.CUresult {
	event := m.event
	if event == 0 {
		if m.stream.queue == s.queue { // the same stream of CUDA
			return 0
		}
		if !m.stream.mu.TryLock() {
			return driver.CUDA_ERROR_NOT_READY
		}
		defer m.stream.mu.Unlock()
		if event = m.stream.tail; event == 0 {
			return 0
		}
	}
	return rt.WaitEvent(s.callContext, s.raw, event, 0, false)
}

// end releases the marker's event and context.
func (m marker) end() {
	if m.event != 0 {
		m.stream.ctx.shared.events.put(m.event)
		m.stream.ctx.Release()
	}
}

// leaveTail marks the end of the work of a stream that is being closed, for the memory
// blocks that it uses. mu is held. It returns lifetime.ErrLater if the stream is
// capturing, or without wait if the mark cannot be set at once.
func (s *streamCore) leaveTail(wait bool) error {
	works := s.worked && (wait || !s.foreign) // later, the program may have destroyed a foreign one
	if !s.used && !s.owned && !works {
		return nil
	}
	m, done, err := s.markHere(wait, s.unnoticed())
	switch {
	case done:
		return nil
	case err == lifetime.ErrLater || err == rt.CodeCapturing:
		return lifetime.ErrLater
	case err != nil:
		return nil // CUDA is lost
	}
	s.ctx.Release() // the context waits for its closedStreams before it is destroyed
	s.tail = m.event
	s.ctx.shared.closed.add(s)
	return nil
}

// tailDone queries the tail of a closed stream, and puts the event back once it has
// completed. On a thread of the driver, which cannot ask, it counts as pending. mu is held.
func (s *streamCore) tailDone() driver.CUresult {
	if s.tail == 0 {
		return 0
	}
	code := s.home().EventQuery(s.tail)
	if code == rt.CodeCallback {
		return driver.CUDA_ERROR_NOT_READY
	}
	if code != driver.CUDA_ERROR_NOT_READY {
		if s.unnoticed() {
			_ = s.ctx.withCurrent(func() error { s.awaitReleases(s.tail); return nil })
		}
		s.ctx.shared.events.put(s.tail)
		s.tail = 0
	}
	return code
}

// closedStreams are the closed streams of a context whose work may be pending.
type closedStreams struct {
	mu   admit.Leaf // guards list and most
	list []*streamCore
	most int // length of the list at which forget runs again
}

// add adds a stream, whose mu is held.
func (t *closedStreams) add(s *streamCore) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) >= t.most {
		t.forget()
		t.most = max(16, 2*len(t.list)) // amortized: each stream costs the same
	}
	t.list = append(t.list, s)
}

// over returns whether the work of all streams has completed.
func (t *closedStreams) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	return len(t.list) == 0
}

// all returns the streams.
func (t *closedStreams) all() []*streamCore {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.list)
}

// forget removes streams whose work has completed. mu is held.
func (t *closedStreams) forget() {
	t.list = slices.DeleteFunc(t.list, func(s *streamCore) bool {
		return (marker{stream: s}).done() != driver.CUDA_ERROR_NOT_READY
	})
}

// streamPool has non-blocking streams of one context, for operations of this package that
// must not wait for unrelated work.
type streamPool struct {
	mu   admit.Leaf // guards free
	free []driver.CUstream
}

// get takes a stream, or creates one.
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
	err := c.withCurrent(func() error { return driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING) })
	return s, err
}

// put puts a stream back, unless the pool already has most.
func (p *streamPool) put(s driver.CUstream, most int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) >= int(most) {
		return false
	}
	p.free = append(p.free, s)
	return true
}

// synchronize is the driver's wait for the stream. The context must be current.
func (s *streamCore) synchronize() error {
	return hostWaits.With(s.number, func() error { return driver.CuStreamSynchronize(s.raw) })
}

// synchronize has the driver wait for the idle streams of the pool, and so notice what was released there. The
// context must be current.
func (p *streamPool) synchronize() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, s := range p.free {
		err = errors.Join(err, hostWaits.With(uint32(s>>6), func() error { return driver.CuStreamSynchronize(s) }))
	}
	return err
}

// empty destroys the streams. The context must be current.
func (p *streamPool) empty() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, s := range p.free {
		err = errors.Join(err, destroyStream(s))
	}
	p.free = nil
	return err
}
