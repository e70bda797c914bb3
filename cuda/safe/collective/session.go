package collective

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/safe"
)

// A session is what communicators share that fail together: those of one [Open], or the one
// of a [Join], and all that were split from them.
type session struct {
	peers   members // the other processes, or nil
	leaving sync.Once

	over atomic.Bool // err or left is set

	mu    sync.Mutex // a leaf: guards the fields below
	comms map[*core]struct{}
	err   error // why it has failed
	left  error // that a rank of another process has ended in order
}

// members are the ranks in other processes.
type members interface {
	fail(cause error)          // tells them that this rank has failed
	leave()                    // tells them that this rank ends in order
	end()                      // ends the connections, and waits until everything is sent
	deserted() <-chan struct{} // closed when no other rank is left
}

func newSession() *session { return &session{comms: map[*core]struct{}{}} }

// add makes c fail with the session.
func (s *session) add(c *core) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.comms[c] = struct{}{}
	return nil
}

// remove undoes add. After the last one the session ends.
func (s *session) remove(c *core) {
	s.mu.Lock()
	delete(s.comms, c)
	last, failed := len(s.comms) == 0, s.err != nil
	s.mu.Unlock()
	if !last || s.peers == nil {
		return
	}
	if !failed {
		s.leave()
	}
	s.peers.end()
}

// leave tells the other processes, once, that this one ends in order.
func (s *session) leave() {
	if s.peers != nil {
		s.leaving.Do(s.peers.leave)
	}
}

// ends notes that c ends in order. With all communicators that are left, it tells that the other processes: none can
// have calls or work any more. It returns whether c is the only one left.
func (s *session) ends(c *core) (only bool) {
	s.mu.Lock()
	c.ends.Store(true)
	_, all := s.comms[c]
	only = all && len(s.comms) == 1
	for o := range s.comms {
		all = all && (o.ends.Load() || o.err() != nil)
	}
	s.mu.Unlock()
	if all {
		s.leave()
	}
	return only
}

// fail aborts all communicators because of an error in this process, and tells the others.
func (s *session) fail(cause error) {
	text := errors.New(cause.Error()) // now, as the program's Error must not run under mu
	s.end(cause, func() {
		if s.peers != nil {
			s.peers.fail(text)
		}
	})
}

// lose aborts all communicators because of another process.
func (s *session) lose(cause error) { s.end(cause, func() {}) }

// end aborts all communicators, once. All of them have the error when it returns, also to the
// second caller. It calls tell before anyone can learn of it, as the connections may end then.
func (s *session) end(cause error, tell func()) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	tell()
	s.err = &abortError{cause}
	s.over.Store(true)
	comms := s.comms
	s.comms = map[*core]struct{}{}
	for c := range comms {
		c.leave(s.err)
	}
	s.mu.Unlock()
	for c := range comms {
		c.begin()
	}
}

// goes notes that a rank of another process has ended in order: nothing can be enqueued any
// more, but enqueued work completes.
func (s *session) goes(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == nil {
		s.left = &PeerError{rank, "it has closed the communicator"}
		s.over.Store(true)
	}
}

// deserted returns errDeserted if all ranks of other processes have ended in order.
func (s *session) deserted() error {
	if s.peers == nil {
		return nil
	}
	select {
	case <-s.peers.deserted():
		return errDeserted
	default:
		return nil
	}
}

// usable returns the error of operations if the session has ended.
func (s *session) usable() error {
	if !s.over.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return s.left
}

// sameDevice refuses a stream or memory of another device.
func sameDevice(op, what string, got, want safe.Device) error {
	if got == want {
		return nil
	}
	return refuse(op, safe.ErrContextMismatch, "%s is on %v, the communicator on %v", what, got, want)
}
