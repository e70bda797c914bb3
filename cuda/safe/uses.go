package safe

import (
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// uses are the streams whose work uses something: the first few of them are
// found without a lock.
type uses struct {
	users [4]atomic.Pointer[streamCore]
	mu    sync.Mutex
	more  []*streamCore // beyond those, rarely
}

// note adds a stream, whose mu is held.
func (u *uses) note(s *streamCore) {
	for i := range u.users {
		if u.users[i].Load() == s {
			return
		}
	}
	u.remember(s)
	s.used = true
}

// remember adds a stream, in place of one whose work is over if there is one.
func (u *uses) remember(s *streamCore) {
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
func (u *uses) only(s *streamCore) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.users[0].Load() == s && u.users[1].Load() == nil && len(u.more) == 0
}

// points marks the ends of all work of the users. Where one of the streams
// captures there is no such end, and the error is rt.CodeCapturing.
func (u *uses) points() ([]point, error) {
	u.mu.Lock()
	users := append([]*streamCore(nil), u.more...)
	for i := range u.users {
		if user := u.users[i].Load(); user != nil {
			users = append(users, user)
		}
	}
	u.mu.Unlock()
	var points []point
	for _, user := range users {
		p, done, err := user.point()
		switch {
		case err == rt.CodeCapturing || IsFatal(err):
			endAll(points)
			return nil, err
		case err == nil && !done:
			points = append(points, p)
		} // after any other error the stream is gone, by a reset or by other means
	}
	return points, nil
}

func endAll(points []point) {
	for _, p := range points {
		p.end()
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
