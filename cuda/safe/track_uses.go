package safe

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// streamUses are the streams whose work uses an object. The first few are found without a
// lock.
type streamUses struct {
	users [4]atomic.Pointer[streamCore]
	mu    admit.Leaf    // guards more
	more  []*streamCore // beyond users, rarely
}

// note adds a stream, whose mu is held.
func (u *streamUses) note(s *streamCore) {
	for i := range u.users {
		if u.users[i].Load() == s {
			return
		}
	}
	admit.Between() // what the caller does before and after
	u.remember(s)
	admit.Between()
	s.used = true
}

// remember adds a stream, in the place of an idle one if there is one.
func (u *streamUses) remember(s *streamCore) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, user := range u.more {
		if user == s {
			return
		}
	}
	for i := range u.users {
		if user := u.users[i].Load(); user == nil || user.idle() {
			u.users[i].Store(s)
			return
		}
	}
	for i, user := range u.more {
		if user.idle() {
			u.more[i] = s
			return
		}
	}
	u.more = append(u.more, s)
}

// only returns whether s is the only user there ever was. The places of users are filled in
// order, and before those of more.
func (u *streamUses) only(s *streamCore) bool {
	return u.users[0].Load() == s && u.users[1].Load() == nil
}

// streams returns all users.
func (u *streamUses) streams() []*streamCore {
	u.mu.Lock()
	defer u.mu.Unlock()
	users := append([]*streamCore(nil), u.more...)
	for i := range u.users {
		if user := u.users[i].Load(); user != nil {
			users = append(users, user)
		}
	}
	return users
}

// markers marks the ends of the current work of all users. It returns rt.CodeCapturing if
// one of the streams is capturing, and rt.CodeCallback on a thread of the driver. Without wait, it
// returns lifetime.ErrLater if another call is using one of the streams.
func (u *streamUses) markers(wait bool) ([]marker, error) {
	var markers []marker
	for _, user := range u.streams() {
		m, done, err := user.mark(wait)
		switch {
		case err == nil && done:
		case err == nil:
			markers = append(markers, m)
		case err == rt.CodeCapturing || err == rt.CodeCallback || err == lifetime.ErrLater || IsFatal(err):
			endAll(markers)
			return nil, err
		} // after any other error the stream no longer exists, for instance after a reset by other code
	}
	return markers, nil
}

func endAll(markers []marker) {
	for _, m := range markers {
		m.end()
	}
}

// pendingWork is the work that uses an object.
type pendingWork struct {
	markers []marker
	marked  bool
}

// over returns whether the work that was pending at the first call, or soon after, has
// completed. Work of a capturing stream counts as pending until the capture ends. With
// wait, it may wait for locks of streams; otherwise it does not wait.
func (e *pendingWork) over(u *streamUses, wait bool) bool {
	if !e.marked {
		admit.Between()
		markers, err := u.markers(wait)
		if err == rt.CodeCapturing || err == rt.CodeCallback || err == lifetime.ErrLater {
			return false
		}
		e.markers, e.marked = markers, true // none if CUDA is lost: nothing runs
	}
	e.markers = slices.DeleteFunc(e.markers, func(m marker) bool {
		over := m.done() != driver.CUDA_ERROR_NOT_READY
		if over {
			m.end()
		}
		return over
	})
	return len(e.markers) == 0
}

// wait waits for the work, once over has marked it.
func (e *pendingWork) wait() {
	for _, m := range e.markers {
		m.wait()
	}
}

// idle returns whether the stream is closed and its work has completed. A stream that is
// locked counts as busy: two callers waiting for each other's lock would deadlock.
func (s *streamCore) idle() bool {
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	return s.over && s.tailDone() != driver.CUDA_ERROR_NOT_READY
}

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
