package safe

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// streamUses are the streams whose work uses an object. The first few are found without a
// lock.
type streamUses struct {
	users [4]atomic.Pointer[streamCore]
	mu    sync.Mutex
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
