package safe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// eventPool has events of one context that are used and given back: without
// timing, for points in streams. One that is given back may still be pending;
// recording it again moves it.
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
	p.making.Lock()
	defer p.making.Unlock()
	for { // others take events meanwhile
		if e := p.take(); e != 0 {
			return e, nil
		}
		if err := c.in(p.make); err != nil {
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
	c.hold()
	return e, func() {
		pool.put(e)
		c.unmark()
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
type point struct {
	stream *streamCore
	event  driver.CUevent // of the pool of the stream's context; 0 for the stream's tail
}

// point marks the end of the stream's work. done tells that there is none. A
// capturing stream has no such end: the error is rt.CodeCapturing.
func (s *streamCore) point() (p point, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return point{stream: s}, s.tail == 0, nil
	}
	return s.pointHere()
}

// pointHere is point for a stream that is not over, with mu held.
func (s *streamCore) pointHere() (p point, done bool, err error) {
	if s.capture.Load() != nil {
		return point{}, false, rt.CodeCapturing
	}
	if s.legacy() {
		gate := &s.ctx.shared.legacy
		if !gate.enter() {
			return point{}, false, rt.CodeCapturing
		}
		defer gate.leave()
	}
	pool := &s.ctx.shared.events
	e, err := pool.get(s.ctx)
	if err == nil {
		switch code := rt.Point(s.set, s.raw, e); code {
		case driver.CUDA_ERROR_NOT_READY:
			s.ctx.hold() // the stream is alive, and so its context
			return point{s, e}, false, nil
		case driver.CUDA_SUCCESS, rt.CodeCapturing:
			pool.put(e)
			if code == 0 {
				return point{}, true, nil
			}
			return point{}, false, code
		}
		pool.put(e)
	}
	// Without an event, as where memory is out, the driver has to wait.
	if s.capturing() {
		return point{}, false, rt.CodeCapturing
	}
	err = s.ctx.in(func() error { return driver.CuStreamSynchronize(s.raw) })
	return point{}, err == nil, err
}

// done asks whether the point is reached.
func (p point) done() driver.CUresult {
	if p.event != 0 {
		return rt.EventQuery(p.stream.set, p.event, 0)
	}
	p.stream.mu.Lock()
	defer p.stream.mu.Unlock()
	return p.stream.tailDone()
}

// wait waits until the point is reached.
func (p point) wait() {
	if p.event != 0 {
		w := &waiter{set: p.stream.set, event: p.event, line: p.stream, to: time.Now(), end: func() {}}
		w.wait(context.Background(), "")
		return
	}
	for p.done() == driver.CUDA_ERROR_NOT_READY { // a tail may become somebody else's
		time.Sleep(retry)
	}
}

// orders makes a stream, of any context, wait for the point.
func (p point) orders(set driver.CUcontext, stream driver.CUstream) driver.CUresult {
	if p.event != 0 {
		return rt.WaitEvent(set, stream, p.event, 0)
	}
	p.stream.mu.Lock()
	defer p.stream.mu.Unlock()
	if p.stream.tail == 0 {
		return 0
	}
	return rt.WaitEvent(set, stream, p.stream.tail, 0)
}

// end gives back what the point holds.
func (p point) end() {
	if p.event != 0 {
		p.stream.ctx.shared.events.put(p.event)
		p.stream.ctx.unmark()
	}
}

// leaveTail marks the end of the work of a stream that is about to be closed,
// for the blocks of memory that it uses. mu is held.
func (s *streamCore) leaveTail() error {
	if !s.used {
		return nil
	}
	p, done, err := s.pointHere()
	if done || err != nil {
		return err
	}
	s.ctx.unmark() // the context, when it goes, waits for its tails
	s.tail = p.event
	s.ctx.shared.tails.add(s)
	return nil
}

// tailDone asks whether the work of a closed stream is over, and then gives
// the event back. mu is held.
func (s *streamCore) tailDone() driver.CUresult {
	if s.tail == 0 {
		return 0
	}
	code := rt.EventQuery(s.set, s.tail, 0)
	if code != driver.CUDA_ERROR_NOT_READY {
		s.ctx.shared.events.put(s.tail)
		s.tail = 0
	}
	return code
}

// tails are the closed streams of a context whose work may not be over.
type tails struct {
	mu   sync.Mutex
	list []*streamCore
}

// add notes a stream, whose mu is held, and forgets those at the head of the
// list that are over.
func (t *tails) add(s *streamCore) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.list) > 0 {
		first := t.list[0]
		if !first.mu.TryLock() {
			break // somebody is asking it just now
		}
		code := first.tailDone()
		first.mu.Unlock()
		if code == driver.CUDA_ERROR_NOT_READY {
			break
		}
		t.list = t.list[1:]
	}
	t.list = append(t.list, s)
}

// over tells whether the work of all of them is over.
func (t *tails) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.list) > 0 {
		if (point{stream: t.list[0]}).done() == driver.CUDA_ERROR_NOT_READY {
			return false
		}
		t.list = t.list[1:]
	}
	return true
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
	err := c.in(func() error { return driver.CuStreamCreate(&s, uint32(driver.CU_STREAM_NON_BLOCKING)) })
	return s, err
}

func (p *streamPool) put(s driver.CUstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
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
