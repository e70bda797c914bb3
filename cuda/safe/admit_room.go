package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A call that adds work to a stream with a full queue blocks inside the driver, where
// it holds up most other calls of the process: beginning a capture, creating an event,
// destroying an executable. So the layer counts what is pending, and waits itself
// before the queue is full, with nothing locked.
const (
	// queueRoom is how much may be pending on a stream. The driver's queue takes 1,020
	// launches or copies; streams beyond CUDA_DEVICE_MAX_CONNECTIONS share one.
	queueRoom = 960
	// markEvery is after how much work an event is recorded that tells when it is done.
	markEvery = queueRoom / 16
	// mostOfGraph is what a launch of a graph counts at most: every memset and copy in it
	// takes a place, and so does the launch, but no kernel does.
	mostOfGraph = queueRoom / 4
)

// A backlog is the work pending on a queue, as far as it is known. The queue's mu
// guards it.
type backlog struct {
	pending int // all of it
	recent  int // what came after the last mark
	marks   []mark
	turn    mutex[turnRank] // of whoever waits for room
}

// A mark is an event of the layer's, after some work.
type mark struct {
	event driver.CUevent
	work  int
}

// hasRoom counts work that is about to be enqueued, unless there is no room for it.
func (s *streamCore) hasRoom(work int) bool {
	b := &s.backlog
	if b.recent >= markEvery {
		s.setMark()
	}
	if b.pending+work > queueRoom {
		s.retire()
	}
	if b.pending > 0 && b.pending+work > queueRoom {
		return false
	}
	b.pending += work
	b.recent += work
	return true
}

// setMark records an event after the work so far. Without one, as where memory is out, that
// work is no longer counted.
func (s *streamCore) setMark() {
	b, pool := &s.backlog, &s.ctx.shared.events
	e, err := pool.get(s.ctx)
	if err == nil && rt.Record(s.callContext, e, s.raw) == 0 {
		b.marks = append(b.marks, mark{e, b.recent})
	} else {
		if err == nil {
			pool.put(e)
		}
		b.pending -= b.recent
	}
	b.recent = 0
}

// retire forgets what is done. It asks the newest mark first, as a driver takes longer to
// answer that something is done.
func (s *streamCore) retire() {
	b := &s.backlog
	if b.recent > 0 && len(b.marks) == 0 {
		s.setMark()
	}
	for n := len(b.marks); n > 0; n /= 2 {
		if rt.EventQuery(s.callContext, b.marks[n-1].event, 0) != driver.CUDA_ERROR_NOT_READY {
			s.forgetMarks(n)
			return
		}
	}
}

// forgetMarks gives the first n marks back.
func (s *streamCore) forgetMarks(n int) {
	b := &s.backlog
	for _, m := range b.marks[:n] {
		b.pending -= m.work
		s.ctx.shared.events.put(m.event)
	}
	b.marks = append(b.marks[:0], b.marks[n:]...)
}

// forgetBacklog is for a stream whose work is done, or that is closed.
func (s *streamCore) forgetBacklog() {
	s.forgetMarks(len(s.backlog.marks))
	s.backlog.pending, s.backlog.recent = 0, 0
}

// awaitRoom is enterWork once there is room.
func (s *streamCore) awaitRoom(op string, work int) (*capturing, error) {
	if rt.InCallback() {
		return nil, &Error{Op: op, Err: ErrInCallback}
	}
	s.backlog.turn.Lock() // one of those that wait asks
	defer s.backlog.turn.Unlock()
	for nap := shortNap; ; nap = nap.take() {
		s.mu.Lock()
		capture, room, err := s.enteredWork(op, work)
		if room || err != nil {
			return capture, err
		}
	}
}
