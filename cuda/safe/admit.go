package safe

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// The driver crashes, rather than returning an error, if a call meets a capture that
// another thread begins, extends or ends at the same moment. Every call that can see a
// capture is therefore admitted first, by an [admission] if it is on a stream, so that no capture changes
// between the check and the call:
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
//   - A call with an executable enters an exclusion of the process: executables are
//     destroyed without such calls. Two more exclusions are for waits of the host,
//     beside the destruction of pools, and for copies between devices, beside changes of
//     access.
//
// No lock is held during a call that may block indefinitely: work waits for room in a
// stream's queue before it is enqueued. Context.Synchronize blocks in its gate, and so
// does work if others fill a hardware queue that it shares; a capture waits for those
// with nothing locked.

// executables admits calls that launch or change executables of any graph. It excludes
// them while an executable is destroyed or a primary context released: the driver crashes
// if a launch, even of another graph, is in flight then. Calls that destroy a graph, a node or a stream, or copy or
// instantiate a graph, take its turn: two at once would corrupt the driver's heap, as copies and executables share
// parts of the graph that they come from.
var executables admit.Exclusion

// peerCopies admits copies between devices. It excludes them while a device gets or loses
// access to memory of another: a copy that the driver is just starting would access memory
// that is not mapped there. Copies that the driver has started are not affected.
var peerCopies admit.Exclusion

// hostWaits admits calls in which the host waits for work. The driver then goes through
// memory pools to free what was released, so no pool is destroyed meanwhile.
var hostWaits admit.Exclusion

// A queue is a stream of the driver. A Stream, the Streams borrowed from it, and all
// Streams for a context's legacy stream share one.
type queue struct {
	mu       admit.Mutex[admit.StreamRank]
	capture  atomic.Pointer[capturing] // begun by this package; changed with mu held, or by its end
	captures atomic.Uint32             // number of captures begun or joined; changed with mu held
	waiting  lockWaiters
	looked   admit.Leaf  // held by look
	shared   atomic.Bool // several Streams have it that do not retain each other
	limited  bool        // the call that has mu locked has entered enqueuing
	number   uint32      // in order of creation
	ends     uint64      // number of ends that recordEnd has recorded; mu is held
	backlog
}

func newQueue() *queue { return &queue{number: queues.Add(1)} }

var queues atomic.Uint32

func (s *streamCore) legacy() bool { return s.raw <= driver.CU_STREAM_LEGACY }

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

// An admission is a call of CUDA on a stream, from admit until leave.
type admission struct {
	op     string
	stream *streamCore
	flags  admitFlags
	places int              // of the driver's queue that the call takes, if it enqueues work
	while  *lifetime.Handle // of an unacquired call: what stays open with the stream while the call waits; or nil

	capture  *capturing // the stream's capture, locked, or nil: set by admit
	reserved int        // places that are kept for the call while it waits
}

type admitFlags uint8

const (
	enqueues   admitFlags = 1 << iota // work: the call waits for room in the queue, and may block in the driver
	asks                              // what would invalidate a capture: in one, admit returns ErrCapturing
	locked                            // the caller has locked the stream
	unacquired                        // neither the stream nor while is acquired: the stream's lock keeps it from being destroyed
	holds                             // while is acquired: set by admit, for leave
	waits                             // for other streams or processes: the limit does not count the call
)

// admit admits the call until leave. It returns an error if CUDA must not see the call now, and admits nothing
// then. It waits, with nothing locked, until there is room in the queue for work that is not captured.
func (a *admission) admit() error {
	if mu := &a.stream.mu; a.flags&locked == 0 {
		if admit.MayWait(mu); !mu.TryLock() { // lock would call it by an interface, which takes longer
			if err := lockTaken(a.op, mu); err != nil {
				return err
			}
		}
	}
	entered, err := a.enter()
	if entered || err != nil {
		return err
	}
	return a.await()
}

// enter admits the call on the stream, which is locked. Else it unlocks the stream: there is an error, or the
// call has to wait.
func (a *admission) enter() (entered bool, err error) {
	s := a.stream
	if a.flags&unacquired != 0 && s.Closed() {
		s.mu.Unlock()
		return false, &Error{Op: a.op, Err: ErrClosed}
	}
	if ok, err := a.enterStream(s); !ok {
		return false, err
	}
	if c := s.capture.Load(); c != nil {
		if err = a.enterCapture(c); err != nil {
			a.leaveStream(s)
			return false, err
		}
	}
	if a.flags&enqueues == 0 {
		return true, nil
	}
	// Only now is it known whether the work is captured: a capture that the stream has joined
	// may have ended meanwhile.
	if a.capture == nil && !s.hasRoom(a.places, a.reserved) {
		a.leaveStream(s)
		return false, nil
	}
	s.enterLimit(a)
	return true, nil
}

// enterStream enters the gate of the legacy stream if s is one, until leaveStream. Else it unlocks the stream: there is
// an error, or the call has to wait.
func (a *admission) enterStream(s *streamCore) (ok bool, err error) {
	if s.legacy() {
		return a.enterLegacy(s)
	}
	return true, nil
}

// enterLegacy enters the gate of calls on the legacy stream, which see the captures of all blocking streams.
// Else it unlocks the stream: there is such a capture, or the call has to wait for one that waits to begin.
func (a *admission) enterLegacy(s *streamCore) (ok bool, err error) {
	gate := &s.ctx.shared.legacy
	if a.flags&enqueues != 0 {
		ok, err = admit.TryLong(gate)
	} else if ok = gate.Enter(); !ok {
		err = refuse(a.op, ErrCapturing, "a blocking stream of the context is capturing")
	}
	if !ok {
		s.mu.Unlock()
	}
	return ok, wrap(a.op, err)
}

func (a *admission) enterCapture(c *capturing) (err error) {
	if a.flags&asks != 0 {
		return c.refuses(a.op, "")
	}
	a.capture, err = a.stream.lockCapture(a.op)
	return err
}

// leaveStream leaves the gate of the legacy stream, and unlocks the stream.
func (a *admission) leaveStream(s *streamCore) {
	if s.legacy() {
		if gate := &s.ctx.shared.legacy; a.flags&enqueues != 0 {
			gate.LeaveLong()
		} else {
			gate.Leave()
		}
	}
	s.mu.Unlock()
}

// leave ends the call. done tells whether it has enqueued its work, which then takes its places.
func (a *admission) leave(done bool) {
	s := a.stream
	if a.flags&enqueues != 0 {
		if !done && a.capture == nil {
			s.giveBack(a.places)
		}
		s.leaveLimit()
	}
	a.capture.unlock()
	a.leaveStream(s)
	if a.flags&holds != 0 {
		a.while.Release()
	}
}

// await admits the call once it need not wait any more. It keeps the stream and what the call uses open until
// then, and what the call uses until leave. Meanwhile, calls that need less room do not take it.
func (a *admission) await() (err error) {
	if rt.InCallback() {
		return &Error{Op: a.op, Err: ErrInCallback}
	}
	s := a.stream
	if a.flags&unacquired != 0 {
		if !s.Acquire() {
			return &Error{Op: a.op, Err: ErrClosed}
		}
		defer s.Release()
		if a.while != nil {
			if !a.while.Acquire() {
				return &Error{Op: a.op, Err: ErrClosed}
			}
			defer func() {
				if err != nil {
					a.while.Release()
				} else {
					a.flags |= holds
				}
			}()
		}
		a.flags &^= unacquired
	}
	s.backlog.turn.Lock() // one waiter polls for all
	defer s.backlog.turn.Unlock()
	a.reserved = a.places
	s.backlog.reserve(a.places)
	defer s.backlog.unreserve(a.places)
	for nap := admit.ShortNap; ; nap = nap.Take() {
		s.mu.Lock()
		if entered, err := a.enter(); entered || err != nil {
			return err
		}
	}
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

// unlock unlocks the graph of a capture that lockCapture has returned, which may be nil.
func (c *capturing) unlock() {
	if c != nil {
		c.graph.mu.Unlock()
	}
}

// gates returns the gates of all calls that would see a capture of the stream.
func (s *streamCore) gates(mode CaptureMode) []*admit.Gate {
	gates := []*admit.Gate{&s.ctx.shared.whole}
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
var synchronizing admit.Gate

// claim makes the stream part of c: it locks the stream, closes its gates and waits until
// no call that would see the capture is in flight. It waits for long calls with nothing
// locked, until the capture's context ends.
func (s *streamCore) claim(op string, c *capturing) (gates []*admit.Gate, err error) {
	gates = s.gates(c.mode)
	for locked := false; !locked; {
		if err := s.lockContext(c.ctx, op); err != nil {
			return nil, err
		}
		if admit.Want(gates) {
			break
		}
		s.mu.Unlock()
		if err := admit.Settle(c.ctx, gates); err != nil {
			return nil, &Error{Op: op, Err: err}
		}
		if locked = s.lockSoon(c.ctx); !locked {
			admit.Unwant(gates)
		}
	}
	if other := s.capture.Load(); other != nil {
		admit.Unwant(gates)
		s.mu.Unlock()
		return nil, other.refuses(op, "the stream is already capturing")
	}
	admit.Between()
	for _, g := range gates {
		g.Close()
	}
	admit.Between()
	admit.Unwant(gates)
	s.capture.Store(c)
	s.captures.Add(1)
	return gates, nil
}

// lockSoon locks the queue within admit.Patience. Who has it locked may wait for a long call that the caller keeps
// out.
func (q *queue) lockSoon(ctx context.Context) bool {
	soon, end := context.WithTimeout(ctx, admit.Patience)
	defer end()
	return q.lockContext(soon, "") == nil
}

// disclaim undoes claim.
func (s *streamCore) disclaim(gates []*admit.Gate) {
	s.capture.Store(nil)
	admit.OpenAll(gates)
	s.mu.Unlock()
}

// enqueue enqueues work that uses blocks and takes places in the driver's queue: call
// calls the driver. uncapturable is the reason why the work cannot be captured, "" if it
// can. In a capture the graph retains the blocks.
func (s *streamCore) enqueue(op string, places int, blocks []*block, uncapturable string, call func() error) error {
	a := admission{op: op, stream: s, flags: enqueues, places: places}
	if err := a.admit(); err != nil {
		return err
	}
	done := false
	defer func() { a.leave(done) }()
	if err := s.uses(op, a.capture, blocks, uncapturable); err != nil {
		return err
	}
	err := wrap(op, call())
	done = err == nil
	return err
}

// uses records the stream as a user of the blocks, for a call that is admitted. capture is the admission's; the graph
// retains the blocks. The blocks need not be acquired: a block that is closed meanwhile finds the stream among its
// users, or uses finds the block closed.
func (s *streamCore) uses(op string, capture *capturing, blocks []*block, uncapturable string) error {
	if uncapturable != "" && (capture != nil || s.capturing()) {
		return refuse(op, ErrCapturing, "%s", uncapturable)
	}
	for _, b := range blocks {
		if b.usual(s, capture) {
			continue
		}
		b.note(s)
		if b.Over() || !b.usableIn(capture) || !capture.retains(&b.Handle) {
			return b.unusable(op)
		}
	}
	return nil
}

// inParts calls enqueue for parts of n pieces of work, with at most so many each that they fit
// into the driver's queue: in a call that enqueues more on a stuck stream, the driver blocks.
func inParts(n, most int, enqueue func(from, to int) error) error {
	for from := 0; from < n; from += most {
		if err := enqueue(from, min(from+most, n)); err != nil {
			return err
		}
	}
	return nil
}

// enqueueCurrent admits and enqueues work as enqueue does, with the context current in call.
func (s *streamCore) enqueueCurrent(op string, places int, blocks []*block, uncapturable string, call func() error) error {
	return s.enqueue(op, places, blocks, uncapturable, func() error {
		// The legacy stream cannot be used while a blocking stream captures.
		if s.legacy() && s.capturing() {
			return rt.CodeCapturing
		}
		return s.ctx.withCurrent(call)
	})
}

// lockWaiters are the goroutines that wait for a queue's lock with a context that may
// end. One goroutine waits for the lock in their place and hands it to the first of them,
// so that a canceled wait leaves no lock to take.
type lockWaiters struct {
	mu      admit.Leaf // guards turns and serving
	turns   []chan struct{}
	serving bool
}

// lockContext locks the queue, or returns the cause if ctx ends first. The holder may be
// in a call that blocks indefinitely.
func (q *queue) lockContext(ctx context.Context, op string) error {
	if q.mu.TryLock() {
		return nil
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	if ctx.Done() == nil {
		q.mu.Lock()
		return nil
	}
	turn := q.join()
	select {
	case <-turn:
		q.mu.TakeOver()
		return nil
	case <-ctx.Done():
		if !q.waiting.remove(turn) {
			<-turn
			q.mu.TakeOver()
			q.mu.Unlock()
		}
		return &Error{Op: op, Err: context.Cause(ctx)}
	}
}

// join adds a waiter. Its channel receives a value when it owns the lock.
func (q *queue) join() chan struct{} {
	w := &q.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	turn := make(chan struct{}, 1)
	w.turns = append(w.turns, turn)
	if !w.serving {
		w.serving = true
		go q.serve()
	}
	return turn
}

// remove removes a waiter. It returns false if the waiter already owns the lock.
func (w *lockWaiters) remove(turn chan struct{}) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.turns, turn)
	if i < 0 {
		return false
	}
	w.turns = slices.Delete(w.turns, i, i+1)
	return true
}

// serve hands the lock to one waiter after another until there are none.
func (q *queue) serve() {
	for more := true; more; {
		q.mu.Lock()
		var turn chan struct{}
		if turn, more = q.waiting.next(); turn == nil {
			q.mu.Unlock()
			continue
		}
		q.mu.HandOver()
		turn <- struct{}{}
	}
}

// next removes and returns the first waiter, or nil, and whether more follow.
func (w *lockWaiters) next() (turn chan struct{}, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.turns) > 0 {
		turn, w.turns = w.turns[0], w.turns[1:]
	}
	w.serving = len(w.turns) > 0
	return turn, w.serving
}
