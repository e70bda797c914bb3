package safe

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Close destroys the stream once its work has completed, without waiting for it. If other calls are using the stream,
// it is destroyed after they return. Closing again does nothing. The context may keep CUDA's stream for a later
// [NewStream], unless the program has read its handle or ID, or has set an attribute. Source: cuStreamDestroy.
func (s *Stream) Close() error {
	if s == nil || s.core == nil {
		return nil
	}
	s.cleanup.Stop()
	return s.core.Close()
}

// Release closes s without destroying CUDA's stream, and returns the handle, which the
// caller then owns. It returns 0 if s was closed before, is borrowed or the legacy
// default stream, is capturing, has an open [Stream.Scope] or an open Stream of
// [Stream.Borrow], or if other code has reset its context. It waits for calls in flight. The stream no
// longer keeps its context alive.
func (s *Stream) Release() driver.CUstream {
	if s == nil || s.core == nil || !s.core.Acquire() {
		return 0
	}
	mine := false
	if !rt.InCallback() && lock("Stream.Release", &s.core.mu) == nil {
		mine = s.core.releasable()
		if mine {
			s.core.owned = false
			s.core.ctx.shared.crowd.now.Add(-1)
		}
		s.core.mu.Unlock()
	}
	s.core.Release()
	if !mine {
		return 0
	}
	s.Close()
	for !s.core.isOver() {
		time.Sleep(lifetime.Retry)
	}
	return s.core.raw
}

// releasable returns whether Release may give CUDA's stream away. mu is held.
func (s *streamCore) releasable() bool {
	switch {
	case !s.owned || s.capture.Load() != nil || s.scopes.Load() > 0:
		return false
	case s.home().Check() != 0 || s.capturing():
		return false
	}
	return !slices.ContainsFunc(s.ctx.shared.live(), func(o *streamCore) bool { return o.of == s && !o.Closed() })
}

func (s *streamCore) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Destroy destroys the stream once its work has completed: the driver may make a stream
// that is created later wait for the work of one that was destroyed before.
func (s *streamCore) Destroy(wait bool) error { return executables.Destroy(wait, s.destroy) }

func (s *streamCore) destroy(wait, inTurn bool) error {
	if !s.lockForEnd(wait) {
		return lifetime.ErrLater
	}
	defer s.mu.Unlock()
	shared := s.ctx.shared
	if err := s.conclude(wait); err != nil {
		return err
	}
	if !s.owned {
		return nil
	}
	if s.tailDone() == driver.CUDA_ERROR_NOT_READY {
		return lifetime.ErrLater
	}
	for _, o := range shared.others(s) {
		if o.Over() {
			o.end() // or it would use the handle later
		}
	}
	if shared.spare.keep(s) {
		shared.crowd.now.Add(-1)
		return nil
	}
	if !inTurn {
		if err := executables.TakeTurn(false); err != nil {
			return err
		}
		defer executables.EndTurn()
	}
	shared.crowd.now.Add(-1)
	return s.ctx.destroying("Stream.Close", func() error { return driver.CuStreamDestroy(s.raw) })
}

// conclude marks the end of the work of a closed stream, and ends the stream. mu is held.
func (s *streamCore) conclude(wait bool) error {
	if s.over {
		return nil
	}
	if err := s.leaveTail(wait); err != nil {
		return err
	}
	if s.owned || s.of == nil && len(s.ctx.shared.others(s)) == 0 {
		s.forgetBacklog()
	}
	s.end()
	return nil
}

// destroyStream destroys a CUDA stream with its context current.
func destroyStream(s driver.CUstream) error {
	return executables.Serialize(func() error { return driver.CuStreamDestroy(s) })
}

// closePatience is how long Close waits for a call in flight, in nanoseconds.
var closePatience atomic.Int64

func init() { closePatience.Store(int64(admit.Patience)) }

// lockForEnd locks the stream. If a call has it locked, it fails, with wait after a moment:
// the call may block in the driver. Without that moment, the reaper could use CUDA's stream
// after the program has closed a borrowed Stream and destroyed the stream.
func (s *streamCore) lockForEnd(wait bool) bool {
	return patiently(wait, s.tryLockForEnd)
}

// patiently returns whether a call in flight is over: with wait, within closePatience.
func patiently(wait bool, over func() bool) bool {
	if over() {
		return true
	}
	if !wait {
		return false
	}
	for nap, until := admit.ShortNap, time.Now().Add(time.Duration(closePatience.Load())); time.Now().Before(until); {
		if nap = nap.Take(); over() {
			return true
		}
	}
	return false
}

func (s *streamCore) tryLockForEnd() bool {
	if !s.looked.TryLock() {
		return false
	}
	defer s.looked.Unlock() // who looks later finds the stream closed
	return s.mu.TryLock()
}

// end makes a closed stream one whose handle is not used any more. mu is held.
func (s *streamCore) end() {
	s.over, s.owner = true, nil
	s.dropMark()
	s.ctx.shared.unlist(s)
	s.branches.drop()
}

// spareStreams are streams of one context that were closed, for [NewStream] to use again:
// while work of the context is stuck, the driver may block in creating a stream, and in
// destroying one at the same time.
type spareStreams struct {
	mu   admit.Leaf // guards n and free
	n    int
	free map[streamKind][]driver.CUstream
}

// mostSpare is how many closed streams a context keeps.
const mostSpare = 32

// take returns a stream of the kind, 0 if there is none.
func (p *spareStreams) take(k streamKind) driver.CUstream {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.free[k]
	if len(of) == 0 {
		return 0
	}
	s := of[len(of)-1]
	p.free[k] = of[:len(of)-1]
	p.n--
	return s
}

// keep takes over a stream whose work has completed, unless there are enough, other code has
// reset the context, the context belongs to the program, or the program may know the stream: by its handle or ID, or by
// an attribute that it has set.
func (p *spareStreams) keep(s *streamCore) bool {
	if s.known.Load() || s.green != nil || !s.ctx.shared.primary.Load() {
		return false
	}
	return s.ctx.home().Check() == 0 && p.put(streamKind{s.nonBlocking, s.priority}, s.raw)
}

// put adds a stream unless there are enough.
func (p *spareStreams) put(k streamKind, s driver.CUstream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n >= mostSpare {
		return false
	}
	if p.free == nil {
		p.free = map[streamKind][]driver.CUstream{}
	}
	p.free[k] = append(p.free[k], s)
	p.n++
	return true
}

// empty destroys the streams. The context must be current.
func (p *spareStreams) empty() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, of := range p.free {
		for _, s := range of {
			errs = append(errs, destroyStream(s))
		}
	}
	p.free, p.n = nil, 0
	return errors.Join(errs...)
}
