package safe

import (
	"slices"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// inOrder sorts streams as locks of several queues are taken, and leaves one stream of each queue.
func inOrder(streams []*streamCore) []*streamCore {
	slices.SortFunc(streams, func(a, b *streamCore) int { return admit.Order(&a.mu, &b.mu) })
	return slices.CompactFunc(streams, func(a, b *streamCore) bool { return a.queue == b.queue })
}

// admitAll admits a call that enqueues work on several streams, until leaveAll. The streams are inOrder, and the
// call's own is the first of them. At most one capture may have them.
func (a *admission) admitAll(streams []*streamCore) error {
	if len(streams) == 1 {
		return a.admit()
	}
	entered, err := a.enterAll(streams, nil)
	switch {
	case entered || err != nil:
		return err
	case rt.InCallback():
		return &Error{Op: a.op, Err: ErrInCallback}
	}
	return a.awaitAll(streams)
}

// leaveAll ends the call on all streams, as leave does on one.
func (a *admission) leaveAll(streams []*streamCore, done bool) {
	if len(streams) == 1 {
		a.leave(done)
		return
	}
	if !done {
		a.giveBackAll(streams)
	}
	for _, s := range streams[1:] {
		a.leaveStream(s)
	}
	a.leave(true) // given back above: the capture may have some of the streams only
}

// enterAll admits the call unless it has to wait, or there is an error: it unlocks the streams then. Some of the
// streams have room reserved for the call.
func (a *admission) enterAll(streams, reserved []*streamCore) (entered bool, err error) {
	n, err := a.enterStreams(streams)
	if n == len(streams) {
		if a.capture, err = lockCaptureOf(a.op, streams); err == nil {
			if a.roomForAll(streams, reserved) {
				a.stream.enterLimit(a)
				return true, nil
			}
			a.capture.unlock()
			a.capture = nil
		}
	}
	for _, s := range streams[:n] {
		a.leaveStream(s)
	}
	return false, err
}

// enterStreams locks the streams. Only the first n are locked if there is an error, or if the call has to wait
// for a capture that waits to begin.
func (a *admission) enterStreams(streams []*streamCore) (n int, err error) {
	for i, s := range streams {
		if err := lock(a.op, &s.mu); err != nil {
			return i, err
		}
		if ok, err := a.enterStream(s); !ok {
			return i, err
		}
	}
	return len(streams), nil
}

// awaitAll admits the call once there is room on all streams. Nothing is locked while it waits for room on a
// stream, but it keeps the room that it has found on others: it would seldom find room on all of them at once.
func (a *admission) awaitAll(streams []*streamCore) error {
	var reserved []*streamCore
	defer func() {
		for _, s := range reserved {
			s.backlog.unreserve(a.places)
		}
	}()
	for nap := admit.ShortNap; ; nap = nap.Take() {
		for _, s := range streams {
			if slices.Contains(reserved, s) {
				continue
			}
			switch ok, err := a.reserve(s); {
			case err != nil:
				return err
			case ok:
				reserved = append(reserved, s)
			}
		}
		if entered, err := a.enterAll(streams, reserved); entered || err != nil {
			return err
		}
	}
}

// reserve waits until there is room for the call on the stream, and keeps it from other calls until unreserve. It
// fails without a wait if the stream is capturing, whose work needs no room, or if other calls have reserved much.
func (a *admission) reserve(s *streamCore) (reserved bool, err error) {
	s.backlog.turn.Lock()
	defer s.backlog.turn.Unlock()
	if int(s.reserved.Load())+a.places > mostReserved {
		return false, nil
	}
	s.backlog.reserve(a.places)
	defer func() {
		if !reserved {
			s.backlog.unreserve(a.places)
		}
	}()
	for nap := admit.ShortNap; ; nap = nap.Take() {
		s.mu.Lock()
		ok, err := a.enterStream(s)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		captures := s.capture.Load() != nil
		reserved = !captures && s.fits(a.places, a.places)
		a.leaveStream(s)
		if reserved || captures {
			return reserved, nil
		}
	}
}

// roomForAll counts the work on the streams that are not capturing, if there is room on all
// of them.
func (a *admission) roomForAll(streams, reserved []*streamCore) bool {
	for i, s := range streams {
		switch {
		case a.captures(s):
		case slices.Contains(reserved, s):
			s.count(a.places)
		case !s.hasRoom(a.places, 0):
			a.giveBackAll(streams[:i])
			return false
		}
	}
	return true
}

// giveBackAll gives back the places that roomForAll has counted.
func (a *admission) giveBackAll(streams []*streamCore) {
	for _, s := range streams {
		if !a.captures(s) {
			s.giveBack(a.places)
		}
	}
}

// captures tells whether the call's work on the stream is captured. That does not change until leaveAll. A capture that is
// not locked is over, and leaves its streams one after another.
func (a *admission) captures(s *streamCore) bool {
	return a.capture != nil && s.capture.Load() == a.capture
}

// lockCaptureOf locks the graph of the capture that some of the streams take part in.
func lockCaptureOf(op string, streams []*streamCore) (*capturing, error) {
	var part *streamCore
	var of *capturing
	for _, s := range streams {
		c := s.capture.Load()
		switch {
		case c == nil:
		case part == nil:
			part, of = s, c
		case c != of:
			return nil, refuse(op, ErrCapturing, "the streams take part in different captures")
		}
	}
	if part == nil {
		return nil, nil
	}
	admit.Between()
	return part.lockCapture(op)
}
