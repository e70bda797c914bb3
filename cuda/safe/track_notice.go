package safe

import (
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// noticeReleases makes the driver notice that releases on streams have completed: it trims no
// memory before it has waited for the stream or an event, and a query is no wait. The context
// must be current.
func (c *contextState) noticeReleases() error {
	for _, s := range c.live() {
		s.notice()
	}
	c.closed.over() // asks those that are closed
	return c.releases.synchronize()
}

// releaseMark is an event after releases on a stream that the driver may not have noticed, for notice.
type releaseMark struct {
	busy  atomic.Bool    // a call has the mark
	event driver.CUevent // or 0
	upTo  uint32         // the number of releases that it is after
}

// notice makes the driver notice the stream's releases if the work before them has completed. It waits for
// no work and for no other call.
func (s *streamCore) notice() {
	m := &s.root().releaseMark
	if !m.busy.CompareAndSwap(false, true) {
		return
	}
	defer m.busy.Store(false)
	if m.event != 0 && !s.awaitMark(m, time.Time{}) {
		return
	}
	// The mark of an earlier call tells nothing of later releases.
	var end time.Time
	if s.markReleases(m) {
		end = time.Now().Add(idleMark)
	}
	if m.event != 0 {
		s.awaitMark(m, end)
	}
}

// awaitMark makes the driver notice the releases before the mark if that completes before end. Else it
// returns false, and the mark stays.
func (s *streamCore) awaitMark(m *releaseMark, end time.Time) bool {
	for nap := admit.ShortNap; ; nap = nap.Take() {
		code := s.home().EventQuery(m.event)
		if code == rt.CodeCallback || code == driver.CUDA_ERROR_NOT_READY && !time.Now().Before(end) {
			return false
		}
		if code != driver.CUDA_ERROR_NOT_READY {
			break
		}
	}
	s.awaitReleases(m.event)
	s.ctx.shared.events.put(m.event)
	m.event = 0
	if s.mu.TryLock() {
		s.root().noticed = m.upTo
		s.mu.Unlock()
	}
	return true
}

// idleMark is how long an event on an idle stream may take. It may take longer if the stream is ordered after
// work of another one, such as the legacy stream.
const idleMark = 2 * time.Millisecond

// awaitReleases has the host wait for a completed event after releases. Later calls report an error.
func (s *streamCore) awaitReleases(e driver.CUevent) {
	_ = hostWaits.With(s.number, func() error { return driver.CuEventSynchronize(e) })
}

// markReleases records the mark, unless nothing was released or another call is using the stream. It leaves
// a foreign stream alone if package safe has released nothing there, as its owner may be beginning a capture.
// idle means that the stream had no work.
func (s *streamCore) markReleases(m *releaseMark) (idle bool) {
	if !s.mu.TryLock() {
		return false
	}
	if s.Closed() || !s.unnoticed() && (s.foreign || !s.known.Load()) {
		s.mu.Unlock()
		return false
	}
	a := admission{op: "notice", stream: s, flags: asks | locked}
	if a.admit() != nil {
		return false
	}
	defer a.leave(true)
	e, err := s.ctx.shared.events.get(s.ctx)
	if err != nil {
		return false
	}
	code := rt.Mark(s.callContext, s.raw, e)
	if idle = code == driver.CUDA_SUCCESS; idle {
		code = rt.Record(s.callContext, e, s.raw)
	}
	if code != driver.CUDA_SUCCESS && (idle || code != driver.CUDA_ERROR_NOT_READY) {
		s.ctx.shared.events.put(e)
		return false
	}
	m.event, m.upTo = e, s.root().releases
	return idle
}

// released notes that memory of a pool was freed on the stream, or may have been. mu is held.
func (s *streamCore) released() { s.root().releases++ }

// unnoticed returns whether the driver may not have noticed all releases on the stream. mu is held.
func (s *streamCore) unnoticed() bool {
	root := s.root()
	return root.noticed != root.releases
}

// dropMark gives the mark of a stream back that is over. A call that has it waits for no work.
func (s *streamCore) dropMark() {
	for nap := admit.ShortNap; !s.releaseMark.busy.CompareAndSwap(false, true); {
		nap = nap.Take()
	}
	if s.releaseMark.event != 0 {
		s.ctx.shared.events.put(s.releaseMark.event)
		s.releaseMark.event = 0
	}
}
