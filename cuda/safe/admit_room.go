package safe

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A call that enqueues work on a full stream blocks in the driver, and blocks most other
// calls of the process with it: beginning a capture, creating an event, destroying an
// executable. This package therefore counts the pending work, and waits itself before the
// queue is full, with nothing locked.
const (
	// queueRoom is how much work may be pending on a stream. The driver's queue takes
	// 1,020 launches or copies; streams beyond CUDA_DEVICE_MAX_CONNECTIONS share one.
	queueRoom = 960
	// markEvery is the amount of work after which a mark is recorded: seldom enough to cost a call of
	// EnqueueRaw little, and often enough that the queue never runs empty while a call waits for room.
	markEvery = queueRoom / 4
	// mostOfCall is the most that a call counts. A launch of a graph counts the launch and each memset
	// and copy in it; kernels in it take no place.
	mostOfCall = queueRoom / 4
	// mostReserved is how much room calls may reserve that wait for room in other queues. The
	// rest is for those that do not.
	mostReserved = queueRoom / 4
	// prefetchPlaces is what a prefetch of managed memory of any size counts: the driver's
	// queue takes 56 of them.
	prefetchPlaces = queueRoom / 48
	// rawPlaces is what a call of EnqueueRaw counts that does not tell: more than most functions of libraries enqueue,
	// and little enough for many calls to be pending.
	rawPlaces = queueRoom / 32
)

// A backlog is the known pending work of a queue. The queue's mu guards it.
type backlog struct {
	pending int // total
	recent  int // since the last mark
	marks   []mark
	turn    admit.Mutex[admit.TurnRank] // held by the caller that polls for room

	reserved atomic.Int32 // places for calls that wait; the caller that polls adds its own
}

// A mark is an event that is recorded after some work.
type mark struct {
	event  driver.CUevent
	places int
}

// hasRoom counts work that is about to be enqueued, if there is room for it. Some of that may be reserved for the
// call.
func (s *streamCore) hasRoom(places, reserved int) bool {
	if !s.fits(places, reserved) {
		return false
	}
	s.count(places)
	return true
}

// count counts work that is about to be enqueued, and for which there is room.
func (s *streamCore) count(places int) {
	s.pending += places
	s.recent += places
	s.worked = true
}

// fits returns whether there is room for work.
func (s *streamCore) fits(places, reserved int) bool {
	if s.recent >= markEvery {
		s.setMark()
	}
	if !s.full(places, reserved) {
		return true
	}
	s.retire()
	return !s.full(places, reserved)
}

// full returns whether work has to wait, as far as is known.
func (b *backlog) full(places, reserved int) bool {
	return places > 0 && b.pending > 0 && b.pending+int(b.reserved.Load())-reserved+places > queueRoom
}

// reserve keeps places from other calls until unreserve.
func (b *backlog) reserve(places int) { b.reserved.Add(int32(places)) }

func (b *backlog) unreserve(places int) { b.reserve(-places) }

// giveBack is called if work was counted and then not enqueued, with the lock still held.
func (b *backlog) giveBack(places int) {
	b.pending -= places
	b.recent -= places
}

// setMark records an event after the work so far. If it cannot, for instance because
// memory is exhausted, that work is no longer counted.
func (s *streamCore) setMark() {
	b, pool := &s.backlog, &s.ctx.shared.events
	e, err := pool.get(s.ctx)
	recorded := err == nil && rt.Record(s.callContext, e, s.raw) == 0
	if err == nil && !recorded {
		pool.put(e)
	}
	switch {
	case recorded:
		b.marks = append(b.marks, mark{e, b.recent})
	case rt.InCallback(): // a later call sets the mark
		return
	default:
		b.pending -= b.recent
	}
	b.recent = 0
}

// retire removes completed work from the count. It queries the newest mark first, as the
// driver takes longer to report completed events.
func (s *streamCore) retire() {
	b := &s.backlog
	if b.recent > 0 && len(b.marks) == 0 {
		s.setMark()
	}
	for n := len(b.marks); n > 0; n /= 2 {
		switch rt.EventQuery(s.callContext, b.marks[n-1].event, 0) {
		case driver.CUDA_ERROR_NOT_READY:
		case rt.CodeCallback: // which does not tell
			return
		default:
			s.forgetMarks(n)
			return
		}
	}
}

// forgetMarks releases the first n marks.
func (s *streamCore) forgetMarks(n int) {
	b := &s.backlog
	for _, m := range b.marks[:n] {
		b.pending -= m.places
		s.ctx.shared.events.put(m.event)
	}
	b.marks = append(b.marks[:0], b.marks[n:]...)
}

// forgetBacklog resets the count of a stream whose work has completed, or that is closed.
func (s *streamCore) forgetBacklog() {
	s.forgetMarks(len(s.backlog.marks))
	s.backlog.pending, s.backlog.recent = 0, 0
}

// A launch blocks its thread while the driver's queue is full, so that many goroutines in
// launches would each hold a thread; beyond a few, more do not make launches faster. If
// none has returned within patience, more are admitted, because otherwise there could be
// a deadlock: a host function may wait for a goroutine that launches.
//
// A stream has one such call at a time. So with few streams there is nothing to count.
var enqueuing = admit.Limiter{Patience: admit.Patience}

// enterLimit enters enqueuing, if there are enough streams to reach its limit. mu is held until
// leaveLimit.
func (q *queue) enterLimit(a *admission) {
	if q.limited = a.flags&waits == 0 && listed.Load() > enqueuing.Limit(); q.limited {
		enqueuing.Enter()
	}
}

func (q *queue) leaveLimit() {
	if q.limited {
		enqueuing.Leave()
	}
}

// A crowd counts the streams that users have created in a context, until they are
// destroyed.
type crowd struct{ now, many atomic.Int32 }

const (
	smallCrowd = 24 // what the driver creates beside stuck work in any case
	mostCrowd  = 34 // at this number, it may block
)

// prepare makes the internal streams that releases, copies and allocations need, while the driver still
// creates one beside stuck work.
func (c *contextCore) prepare() {
	s := c.shared
	if s.crowd.now.Load() < smallCrowd/2 || s.prepared.Load() || rt.InCallback() || s.prepared.Swap(true) {
		return
	}
	for _, p := range []*streamPool{&s.releases, &s.copies, &s.heap.streams} {
		raw, err := p.get(c)
		if err != nil {
			s.prepared.Store(false)
			return
		}
		p.put(raw, math.MaxInt32)
	}
}

// room waits for closed streams to be destroyed if there are many: while work of the context
// is stuck, the driver blocks in creating the 35th stream. A program that needs more waits
// a few times at most.
func (c *crowd) room() {
	now := c.now.Load()
	if now < smallCrowd/2 { // not at once: streams that come and go around smallCrowd would wait each time
		c.many.Store(0)
	}
	if now < smallCrowd {
		return
	}
	for end := time.Now().Add(100 * lifetime.Retry); time.Now().Before(end); time.Sleep(lifetime.Retry) {
		if c.now.Load() < max(smallCrowd, c.many.Load()) || lifetime.Idle() || rt.InCallback() {
			return
		}
		lifetime.Reaper.Hurry()
	}
	if now = c.now.Load(); now < mostCrowd {
		c.many.Store(now + (mostCrowd-smallCrowd)/3)
	} else {
		c.many.Store(2 * now)
	}
}
