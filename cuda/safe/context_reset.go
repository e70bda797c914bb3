package safe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// ResetPrimary destroys everything in the device's primary context in this process:
// streams, memory and modules, including those of other libraries. Objects of this
// package that were made in the context then return [ErrReset], and closing them does
// nothing, unless CUDA keeps what they have: see [Module.Close]. Contexts opened afterwards are new.
//
// ResetPrimary waits for the work of the context, as CUDA does: it cannot end a kernel that
// hangs. It also waits for calls of this package in flight, with objects of the context and
// with executables, and for pending destruction of closed or dropped objects. It returns
// [ErrCapturing] while a stream of the device is capturing. CUDA resets no device that has green
// contexts: ResetPrimary then returns driver.CUDA_ERROR_NOT_PERMITTED, and destroys nothing. A
// green context ends after Close and after the last of its streams and their graphs. If one that
// other code has created is in the way, calls have returned ErrReset until ResetPrimary returns, but
// waits that had begun go on.
//
// Nothing else may be in flight in the context: CUDA crashes if a call of package driver or of
// another library coincides with a reset, also in a function of [Context.WithCurrent]. For the
// same reason, synchronize every stream and then close every object before you reset the context
// by other means: the release of an object whose work is pending follows in the background. Work on
// other devices that uses memory of the context must have completed, or it faults. While other code
// has work in the context, launches of executables wait for it, too, on every device.
// Source: cuDevicePrimaryCtxReset.
func (d Device) ResetPrimary() error {
	const op = "Device.ResetPrimary"
	if err := initialize(); err != nil {
		return wrap(op, err)
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	resets := resetting(d.raw)
	resets.Lock() // which may wait for work on the device
	defer resets.Unlock()
	if err := d.greensEnded(op); err != nil { // no new ones are made meanwhile
		return err
	}
	noted, err := d.revoke(op)
	if err != nil {
		return err
	}
	// From here on, calls return ErrReset: with nothing locked that they need, wait for earlier ones.
	for _, s := range noted {
		s.calls.wait()
		s.awaitEvents()
		s.awaitWork()
	}
	revocations.Add(1)
	for done := false; !done; {
		if done, err = d.tryReset(noted); !done {
			time.Sleep(windowShare * lastWindow)
		}
	}
	for _, s := range noted {
		if !s.reset.Load() {
			s.concludeBorrowed()
		}
	}
	revocations.Add(1)
	return wrap(op, err)
}

// A resetMark says whether a context was reset.
type resetMark struct{ state atomic.Int32 }

const (
	notReset int32 = iota
	resetNoted
	resetBegun // the poller queries no events of the context
	resetDone
)

// Load returns whether calls return ErrReset.
func (m *resetMark) Load() bool { return m.state.Load() != notReset }

// noted returns whether the reset still waits, or is under way.
func (m *resetMark) noted() bool {
	s := m.state.Load()
	return s == resetNoted || s == resetBegun
}

// begun returns whether the reset is under way.
func (m *resetMark) begun() bool { return m.state.Load() == resetBegun }

// done returns whether the reset is over, and with it all work of the context: after the note, the
// work runs on for as long as the reset waits.
func (m *resetMark) done() bool { return m.state.Load() == resetDone }

// tryReset resets the context with the reaper paused, unless launches are in flight. The reaper,
// which never waits for the turn, goes on while an instantiation has it.
func (d Device) tryReset(noted []*contextState) (done bool, err error) {
	executables.turn.Lock()
	defer executables.turn.Unlock()
	lifetime.Paused.Lock()
	defer lifetime.Paused.Unlock()
	done = executables.aloneInTurn(lastWindow, func() {
		markAll(noted, resetBegun)
		poller.pass() // only now: until then, waits end with the work
		err = hostWaits.with(0, func() error {
			return inMode("", CaptureRelaxed, func() error { return driver.CuDevicePrimaryCtxReset(d.raw) })
		})
		outcome := resetDone
		if errors.Is(err, driver.CUDA_ERROR_NOT_PERMITTED) { // a green context of other code
			outcome = notReset
		}
		markAll(noted, outcome)
		poller.alarm.Wake()
	})
	return done, err
}

func markAll(noted []*contextState, state int32) {
	for _, s := range noted {
		s.reset.state.Store(state)
	}
}

// betweenResets waits for a reset of the device in progress, and keeps others waiting until leave.
func (d Device) betweenResets(op string) (leave func(), err error) {
	resets := resetting(d.raw)
	if !resets.TryRLock() {
		if rt.InCallback() {
			return nil, &Error{Op: op, Err: ErrInCallback}
		}
		resets.RLock()
	}
	return resets.RUnlock, nil
}

// resetting is locked during a reset of the device. It keeps frees of all contexts of the device
// from running, and contexts from being made, green ones too, or ended: the reset would not know them.
func resetting(d driver.CUdevice) *sync.RWMutex {
	of, _ := resettings.LoadOrStore(d, &sync.RWMutex{})
	return of.(*sync.RWMutex)
}

var resettings sync.Map // driver.CUdevice -> *sync.RWMutex

// revoke makes calls on objects in the primary context return ErrReset, and returns the states of
// the context. Calls that hold the lock of a stream have returned then.
func (d Device) revoke(op string) (noted []*contextState, err error) {
	limit := patience
	for all := false; !all && err == nil; {
		queues := d.queues()
		if !lockAll(queues, limit) {
			limit *= 2
			continue
		}
		if slices.ContainsFunc(queues, func(q *queue) bool { return q.capture.Load() != nil }) {
			err = refuse(op, ErrCapturing, "a stream of %v is capturing", d)
		} else {
			noted, all = d.noteReset(queues)
		}
		unlockAll(queues)
	}
	return noted, err
}

// lockAll locks queues, in order, within limit. If that fails, a call may have a queue locked that waits
// for calls on the others: lockAll then waits for it with nothing locked, and returns false.
func lockAll(queues []*queue, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for i, q := range queues {
		if q.lockContext(ctx, "") != nil {
			unlockAll(queues[:i])
			q.mu.Lock()
			defer q.mu.Unlock()
			return false
		}
	}
	return true
}

func unlockAll(queues []*queue) {
	for _, q := range queues {
		q.mu.Unlock()
	}
}

// greensEnded returns an error if a green context is in use, and waits for those that are being
// destroyed.
func (d Device) greensEnded(op string) error {
	for {
		greens := d.greens()
		switch {
		case len(greens) == 0:
			return nil
		case slices.ContainsFunc(greens, func(g *greenCore) bool { return !g.Over() }):
			err := failed(op, driver.CUDA_ERROR_NOT_PERMITTED)
			err.Detail = fmt.Sprintf("%v has a green context: close it, its streams and their graphs first", d)
			return err
		}
		time.Sleep(lifetime.Retry)
	}
}

// greens returns the green contexts of the device that are not destroyed.
func (d Device) greens() (greens []*greenCore) {
	states.Lock()
	defer states.Unlock()
	for _, s := range d.primaries() {
		s.mu.Lock()
		greens = slices.AppendSeq(greens, maps.Values(s.greens))
		s.mu.Unlock()
	}
	return greens
}

// primaries returns the states of the device's primary context, without those of before a reset.
// states is locked.
func (d Device) primaries() (primaries []*contextState) {
	for _, s := range states.of {
		if s.primary.Load() && s.device == d.raw && !s.reset.done() {
			primaries = append(primaries, s)
		}
	}
	return primaries
}

// noteReset notes the reset unless there is a stream whose queue is not among those that are
// locked: the lock of another one may have been waited for, while the program made a new stream.
func (d Device) noteReset(locked []*queue) (noted []*contextState, all bool) {
	states.Lock()
	defer states.Unlock()
	for _, s := range d.primaries() {
		s.mu.Lock() // until it is noted: no stream is listed meanwhile
		defer s.mu.Unlock()
		for c := range s.streams {
			if _, ok := slices.BinarySearchFunc(locked, c.queue, inOrder); !ok {
				return nil, false
			}
		}
		noted = append(noted, s)
	}
	markAll(noted, resetNoted)
	return noted, true
}

// callCount counts calls in flight that hold no lock of the context's streams, such as queries of
// events. It is striped, so that goroutines with different objects seldom share a cache line.
type callCount [8]struct {
	n atomic.Int32
	_ [60]byte
}

func (c *callCount) of(key uintptr) *atomic.Int32 { return &c[(key>>4^key>>8)%uintptr(len(c))].n }

// wait waits for the calls in flight.
func (c *callCount) wait() {
	between()
	for i := range c {
		for nap := shortNap; c[i].n.Load() > 0; {
			nap = nap.take()
		}
	}
}

// awaitEvents waits for the calls with events that have not begun one: see Event.quick.
func (s *contextState) awaitEvents() {
	s.mu.Lock()
	events := slices.AppendSeq(slices.Clone(s.former), maps.Values(s.known))
	s.mu.Unlock()
	for _, e := range events {
		for nap := shortNap; !e.unused(); {
			nap = nap.take()
		}
	}
}

// awaitWork waits for the work of the context's streams. CUDA would do so in the reset, but launches of
// executables and releases on every device would then wait, too.
func (s *contextState) awaitWork() {
	for _, c := range append(s.live(), s.closed.all()...) {
		for nap := shortNap; c.working(); {
			nap = nap.take()
		}
	}
}

// working returns whether the stream has work, also while a reset waits.
func (s *streamCore) working() bool {
	if !s.mu.TryLock() {
		return true
	}
	defer s.mu.Unlock()
	if s.home().Check() != 0 { // a reset by other code
		return false
	}
	var code driver.CUresult
	switch {
	case !s.mayWork():
	case s.over:
		code = rt.EventQuery(s.callContext, s.tail, 0)
	default:
		code = rt.Query(s.callContext, s.raw, 0)
	}
	return code == driver.CUDA_ERROR_NOT_READY
}

// begin counts a call until end: a reset waits for it, so it must not wait for one. The key is an
// event, the address of an object, or 0. begin returns false if the context was reset.
func (s *contextState) begin(key uintptr) bool {
	n := s.calls.of(key)
	n.Add(1)
	between()
	if s.reset.Load() {
		n.Add(-1)
		return false
	}
	return true
}

func (s *contextState) end(key uintptr) { s.calls.of(key).Add(-1) }

// destroyed is for an object that cannot be destroyed because begin has failed: it returns nil if the
// reset has done that, or lifetime.ErrLater while it waits.
func (s *contextState) destroyed() error {
	if s.reset.done() {
		return nil
	}
	return lifetime.ErrLater
}

// attempt calls f, which returns rt.CodeReset after a reset. waits tells that a reset was only noted: the
// context's work runs on, and CUDA may refuse the reset, or has done so by now.
func (s *contextState) attempt(f func() error) (waits bool, err error) {
	if !s.begin(0) {
		return !s.reset.done(), rt.CodeReset
	}
	defer s.end(0) // until then, a reset that f has met does not go on
	err = f()
	return s.reset.noted(), err
}

// beginFrom is begin for a call in context from that uses an object of c, until endFrom. If both are
// the same, the caller keeps a reset away by other means.
func (c *contextCore) beginFrom(from *contextCore, key uintptr) bool {
	return c.same(from) || c.shared.begin(key)
}

func (c *contextCore) endFrom(from *contextCore, key uintptr) {
	if !c.same(from) {
		c.shared.end(key)
	}
}

// eventQuery queries an event for up to spin nanoseconds, unless the context was reset.
// A reset waits for it.
func (c *contextCore) eventQuery(callContext driver.CUcontext, e driver.CUevent, spin int64) driver.CUresult {
	if !c.shared.begin(uintptr(e)) {
		return rt.CodeReset
	}
	code := rt.EventQuery(callContext, e, spin)
	c.shared.end(uintptr(e))
	return code
}

// homeQuery is eventQuery that also detects resets by other code. It returns
// driver.CUDA_ERROR_NOT_READY until a reset is over.
func (c *contextCore) homeQuery(home rt.Home, e driver.CUevent) driver.CUresult {
	if !c.shared.begin(uintptr(e)) {
		if !c.shared.reset.done() {
			return driver.CUDA_ERROR_NOT_READY
		}
		return rt.CodeReset
	}
	defer c.shared.end(uintptr(e))
	return home.EventQuery(e)
}

// queues returns the queues of all streams in the device's primary context, in order.
func (d Device) queues() []*queue {
	states.Lock()
	defer states.Unlock()
	all := map[*queue]struct{}{}
	for _, s := range d.primaries() {
		for _, c := range s.live() {
			all[c.queue] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(all), inOrder)
}

// inOrder compares queues by the order in which they are locked.
func inOrder(a, b *queue) int { return cmp.Compare(a.number, b.number) }
