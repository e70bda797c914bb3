package safe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// The driver crashes, rather than returning an error, if a call meets a capture that
// another thread begins, extends or ends at the same moment. Every call that can see a
// capture is therefore admitted here, so that no capture changes between the check and
// the call:
//
//   - A call on a stream holds the stream's lock. So do the calls that begin or join a
//     capture.
//   - A captured call also holds the lock of the capture's graph. So does every other
//     call that changes the capture, above all its end.
//   - A call that can see captures of several streams enters a gate: that of the context
//     (for Context.Synchronize), of the context's legacy stream, or of a green context.
//     A capture keeps the gates of its streams closed until it has ended.
//   - A call on an event enters the event's gate, which is closed while the event's last
//     record is captured.
//   - A call with an executable enters a gate of the process, which excludes the
//     destruction of executables. Two gates of the same kind are for waits of the host,
//     beside the destruction of pools, and for copies between devices, beside changes of
//     access: see admit_calls.go.
//
// No lock is held during a call that may block indefinitely: work waits for room in a
// stream's queue before it is enqueued. Context.Synchronize blocks in its gate, and so
// does work if others fill a hardware queue that it shares; a capture waits for those
// with nothing locked.

// A queue is a stream of the driver. A Stream, the Streams borrowed from it, and all
// Streams for a context's legacy stream share one.
type queue struct {
	mu       mutex[streamRank]
	capture  atomic.Pointer[capturing] // begun by this package; changed with mu held, or by its end
	captures atomic.Uint32             // number of captures begun or joined; changed with mu held
	waiting  lockWaiters
	looked   sync.Mutex  // held by look
	shared   atomic.Bool // several Streams have it that do not retain each other
	limited  bool        // the call that has mu locked has entered enqueuing
	number   uint32      // in order of creation, in which the locks of several queues are taken
	ends     uint64      // number of ends that recordEnd has recorded; mu is held
	backlog
}

func newQueue() *queue { return &queue{number: queues.Add(1)} }

var queues atomic.Uint32

// A nap is the pause before the next try.
type nap time.Duration

const (
	shortNap = nap(20 * time.Microsecond)
	longNap  = nap(time.Millisecond)
)

func (n nap) take() nap {
	time.Sleep(time.Duration(n))
	return min(2*n, longNap)
}

func (s *streamCore) legacy() bool { return s.raw <= driver.CU_STREAM_LEGACY }

// enter admits a short call on the stream until leave. It returns the stream's capture,
// locked, or nil.
func (s *streamCore) enter(op string) (capture *capturing, err error) {
	if err := lock(op, &s.mu); err != nil {
		return nil, err
	}
	return s.entered(op)
}

// entered is enter with the stream locked.
func (s *streamCore) entered(op string) (capture *capturing, err error) {
	if s.legacy() && !s.ctx.shared.legacy.enter() {
		s.mu.Unlock()
		return nil, refuse(op, ErrCapturing, "a blocking stream of the context is capturing")
	}
	if capture, err = s.lockCapture(op); err != nil {
		s.leave(nil)
	}
	return capture, err
}

// enterAsk is enter for a call that would invalidate a capture of the stream.
func (s *streamCore) enterAsk(op string) error {
	if err := lock(op, &s.mu); err != nil {
		return err
	}
	return s.enteredAsk(op)
}

// enteredAsk is enterAsk with the stream locked.
func (s *streamCore) enteredAsk(op string) error {
	if c := s.capture.Load(); c != nil {
		s.mu.Unlock()
		return c.refuses(op, "")
	}
	_, err := s.entered(op)
	return err
}

// quick returns the stream, locked, for a short call in the common case, and nil
// otherwise. The call need not acquire the stream, as Destroy takes the lock.
func (s *Stream) quick() *streamCore {
	if s == nil || s.core == nil {
		return nil
	}
	c := s.core
	if c.legacy() || !c.mu.TryLock() {
		return nil
	}
	if c.Closed() || c.capture.Load() != nil {
		c.mu.Unlock()
		return nil
	}
	return c
}

func (s *streamCore) leave(capture *capturing) {
	capture.unlock()
	if s.legacy() {
		s.ctx.shared.legacy.leave()
	}
	s.mu.Unlock()
}

// enterWork is enter for a call that enqueues work, counted in places of the driver's
// queue. It waits until there is room for it, and limits how many goroutines enqueue work
// at once.
func (s *streamCore) enterWork(op string, work int) (capture *capturing, err error) {
	if err := lock(op, &s.mu); err != nil {
		return nil, err
	}
	capture, room, err := s.enteredWork(op, work)
	if room || err != nil {
		return capture, err
	}
	return s.awaitRoom(op, work)
}

// enterOpen is enterWork for a stream that is not acquired: the lock keeps it from being
// destroyed.
func (s *streamCore) enterOpen(op string, work int) (capture *capturing, err error) {
	capture, room, err := s.tryOpen(op, work)
	if room || err != nil {
		return capture, err
	}
	return s.awaitOpen(op, work)
}

// tryOpen is enterOpen that does not wait for room.
func (s *streamCore) tryOpen(op string, work int) (capture *capturing, room bool, err error) {
	if err := lock(op, &s.mu); err != nil {
		return nil, false, err
	}
	if s.Closed() {
		s.mu.Unlock()
		return nil, false, &Error{Op: op, Err: ErrClosed}
	}
	return s.enteredWork(op, work)
}

// awaitOpen is enterOpen once there is room. The stream stays open meanwhile.
func (s *streamCore) awaitOpen(op string, work int) (*capturing, error) {
	if !s.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	defer s.Release()
	return s.awaitRoom(op, work)
}

// enteredWork is enterWork with the stream locked. It unlocks the stream if it does not admit
// the work: there is an error, or no room yet.
func (s *streamCore) enteredWork(op string, work int) (capture *capturing, room bool, err error) {
	if ok, err := s.admitWork(op); !ok {
		return nil, false, err
	}
	if capture, err = s.lockCapture(op); err != nil {
		s.unlockWork(nil)
		return nil, false, err
	}
	// Only now is it known whether the work is captured: a capture that the stream has joined
	// may have ended meanwhile.
	if capture == nil && !s.hasRoom(work) {
		s.unlockWork(nil)
		return nil, false, nil
	}
	s.enterLimit()
	return capture, true, nil
}

// admitWork is enteredWork without the lock of the capture, the room in the queue, and the
// limit on goroutines that enqueue: unlockWork undoes it. It unlocks the stream if there is
// an error, or if captures wait to begin that the legacy stream would see: the caller waits
// for them with nothing locked.
func (s *streamCore) admitWork(op string) (ok bool, err error) {
	if !s.legacy() {
		return true, nil
	}
	if ok, err = tryLong(&s.ctx.shared.legacy); !ok {
		s.mu.Unlock()
	}
	return ok, wrap(op, err)
}

func (s *streamCore) leaveWork(capture *capturing) {
	s.leaveLimit()
	s.unlockWork(capture)
}

// unlockWork undoes enteredWork but for the limit on goroutines that enqueue.
func (s *streamCore) unlockWork(capture *capturing) {
	capture.unlock()
	if s.legacy() {
		s.ctx.shared.legacy.leaveLong()
	}
	s.mu.Unlock()
}

// lockCapture locks the graph of the stream's capture, if there is one. The stream is
// locked, so no capture can begin.
func (s *streamCore) lockCapture(op string) (*capturing, error) {
	c := s.capture.Load()
	if c == nil {
		return nil, nil
	}
	if err := lock(op, c.graph.mu); err != nil {
		return nil, err
	}
	if !c.over {
		return c, nil
	}
	c.graph.mu.Unlock()
	if c.endless.Load() {
		return nil, c.refuses(op, "")
	}
	return nil, nil
}

// refuses returns the error of a call that is not possible while the capture is open.
func (c *capturing) refuses(op, why string) error {
	if c.endless.Load() {
		return refuse(op, ErrGraphLost, "the stream is in a capture that CUDA cannot end: %s", unusable)
	}
	return &Error{Op: op, Err: ErrCapturing, Detail: why}
}

// unlock undoes lockCapture.
func (c *capturing) unlock() {
	if c != nil {
		c.graph.mu.Unlock()
	}
}

// gates returns the gates of all calls that would see a capture of the stream.
func (s *streamCore) gates(mode CaptureMode) []*gate {
	gates := []*gate{&s.ctx.shared.whole}
	if !s.nonBlocking {
		gates = append(gates, &s.ctx.shared.legacy)
	}
	if s.green != nil {
		gates = append(gates, &s.green.gate)
	}
	if mode == CaptureGlobal {
		gates = append(gates, &synchronizing)
	}
	return gates
}

// synchronizing admits Context.Synchronize, of any context, while no capture of mode
// GLOBAL is open.
var synchronizing gate

// claim makes the stream part of c: it locks the stream, closes its gates and waits until
// no call that would see the capture is in flight. It waits for long calls with nothing
// locked, until the capture's context ends.
func (s *streamCore) claim(op string, c *capturing) (gates []*gate, err error) {
	gates = s.gates(c.mode)
	for locked := false; !locked; {
		if err := s.lockContext(c.ctx, op); err != nil {
			return nil, err
		}
		if want(gates) {
			break
		}
		s.mu.Unlock()
		if err := settle(c.ctx, op, gates); err != nil {
			return nil, err
		}
		if locked = s.mu.TryLock(); !locked {
			unwant(gates)
		}
	}
	if other := s.capture.Load(); other != nil {
		unwant(gates)
		s.mu.Unlock()
		return nil, other.refuses(op, "the stream is already capturing")
	}
	between()
	for _, g := range gates {
		g.close()
	}
	between()
	unwant(gates)
	s.capture.Store(c)
	s.captures.Add(1)
	return gates, nil
}

// disclaim undoes claim.
func (s *streamCore) disclaim(gates []*gate) {
	s.capture.Store(nil)
	openAll(gates)
	s.mu.Unlock()
}
