package safe

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// uses are the streams whose work uses something: the first few of them are
// found without a lock.
type streamUses struct {
	users [4]atomic.Pointer[streamCore]
	mu    sync.Mutex
	more  []*streamCore // beyond those, rarely
}

// note adds a stream, whose mu is held.
func (u *streamUses) note(s *streamCore) {
	for i := range u.users {
		if u.users[i].Load() == s {
			return
		}
	}
	u.remember(s)
	s.used = true
}

// remember adds a stream, in place of one whose work is over if there is one.
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

// only tells whether s is the only user there was.
func (u *streamUses) only(s *streamCore) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.users[0].Load() == s && u.users[1].Load() == nil && len(u.more) == 0
}

// points marks the ends of all work of the users. Where one of the streams
// captures there is no such end, and the error is rt.CodeCapturing. Without wait it is
// errLater where a stream is in use just now; on a thread of the driver it is
// rt.CodeCallback.
func (u *streamUses) markers(wait bool) ([]marker, error) {
	u.mu.Lock()
	users := append([]*streamCore(nil), u.more...)
	for i := range u.users {
		if user := u.users[i].Load(); user != nil {
			users = append(users, user)
		}
	}
	u.mu.Unlock()
	var points []marker
	for _, user := range users {
		p, done, err := user.mark(wait)
		switch {
		case err == nil && done:
		case err == nil:
			points = append(points, p)
		case err == rt.CodeCapturing || err == rt.CodeCallback || err == lifetime.ErrLater || IsFatal(err):
			endAll(points)
			return nil, err
		} // after any other error the stream is gone, by a reset or by other means
	}
	return points, nil
}

func endAll(points []marker) {
	for _, p := range points {
		p.end()
	}
}

// An ending is that of all work which uses something.
type pendingWork struct {
	points []marker
	marked bool
}

// over tells whether the work is over that was there when it was first asked, or
// a little later: a capturing stream has no end before its capture has. Without wait it
// waits for nothing, with it for the locks of streams at most.
func (e *pendingWork) over(u *streamUses, wait bool) bool {
	if !e.marked {
		points, err := u.markers(wait)
		if err == rt.CodeCapturing || err == rt.CodeCallback || err == lifetime.ErrLater {
			return false
		}
		e.points, e.marked = points, true // none where the process is lost: nothing runs
	}
	e.points = slices.DeleteFunc(e.points, func(p marker) bool {
		over := p.done() != driver.CUDA_ERROR_NOT_READY
		if over {
			p.end()
		}
		return over
	})
	return len(e.points) == 0
}

// wait waits for the work, once that is marked.
func (e *pendingWork) wait() {
	for _, p := range e.points {
		p.wait()
	}
}

// idle tells that a stream is over and so is its work. A stream that somebody
// else has locked is taken for busy: two that were waiting for each other's
// lock would wait for ever.
func (s *streamCore) idle() bool {
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	return s.over && s.tailDone() != driver.CUDA_ERROR_NOT_READY
}
