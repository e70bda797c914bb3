package safe

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// ResetPrimary destroys everything in the device's primary context in this process:
// streams, memory and modules, including those of other libraries. Objects of this
// package that were made in the context then return [ErrReset], and closing them does
// nothing. Contexts opened afterwards are new.
//
// ResetPrimary waits for calls in flight on streams, events, green contexts and executables of
// this package, and for pending destruction of closed or dropped objects. It returns [ErrCapturing] while a
// stream of the device is capturing. Nothing else may be in flight in the context: CUDA
// crashes if an allocation, or a call of package driver or of another library, coincides
// with a reset. For the same reason, synchronize every stream and then close every object
// before you reset the context by other means: the release of an object whose work is
// pending follows in the background. Source: cuDevicePrimaryCtxReset.
func (d Device) ResetPrimary() error {
	const op = "Device.ResetPrimary"
	if err := rt.Init(); err != nil {
		return wrap(op, err)
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	frees := pausedFrees(d.raw)
	frees.Lock() // first, as it may wait for work on the device: the reaper goes on meanwhile
	defer frees.Unlock()
	lifetime.Paused.Lock()
	defer lifetime.Paused.Unlock()
	queues := d.queues()
	for _, q := range queues {
		q.mu.second().Lock()
		defer q.mu.Unlock()
	}
	for _, q := range queues {
		if q.capture.Load() != nil {
			return refuse(op, ErrCapturing, "a stream of %v is capturing", d)
		}
	}
	poller.pause()
	defer poller.resume()
	for _, s := range d.noteReset() {
		s.asking.wait()
	}
	revocations.Add(1)
	var err error
	executables.whenAlone(func() { err = driver.CuDevicePrimaryCtxReset(d.raw) })
	return wrap(op, err)
}

// pausedFrees keeps the frees of all contexts of the device from running while it is locked.
func pausedFrees(d driver.CUdevice) *sync.RWMutex {
	all, _ := freesOf.LoadOrStore(d, &sync.RWMutex{})
	return all.(*sync.RWMutex)
}

var freesOf sync.Map // driver.CUdevice -> *sync.RWMutex

// noteReset makes calls on objects in the primary context return ErrReset.
func (d Device) noteReset() (noted []*contextState) {
	states.Lock()
	defer states.Unlock()
	for _, s := range states.of {
		if s.primary.Load() && s.device == d.raw {
			s.reset.Store(true)
			noted = append(noted, s)
		}
	}
	return noted
}

// queries counts calls with events in flight that hold no lock of the context's streams, most of
// them queries. It is striped, so that goroutines with different events seldom share a cache line.
type queries [8]struct {
	n atomic.Int32
	_ [60]byte
}

func (q *queries) of(e driver.CUevent) *atomic.Int32 {
	return &q[(e>>4^e>>8)%driver.CUevent(len(q))].n
}

// wait waits for the calls in flight.
func (q *queries) wait() {
	for i := range q {
		for q[i].n.Load() > 0 {
			runtime.Gosched()
		}
	}
}

// startQuery counts a query of an event, or another call with it, which ends with Add(-1). It
// returns nil if the context was reset.
func (s *contextState) startQuery(e driver.CUevent) *atomic.Int32 {
	n := s.asking.of(e)
	n.Add(1)
	if s.reset.Load() {
		n.Add(-1)
		return nil
	}
	return n
}

// asking calls f with the context current, unless it was reset. A reset waits for f, which
// calls the driver with a stream or an event and may hold no lock.
func (c *contextCore) asking(f func() error) error {
	n := c.shared.startQuery(0)
	if n == nil {
		return rt.CodeReset
	}
	defer n.Add(-1)
	return c.withCurrent(f)
}

// eventQuery queries an event for up to spin nanoseconds, unless the context was reset.
// A reset waits for it.
func (c *contextCore) eventQuery(callContext driver.CUcontext, e driver.CUevent, spin int64) driver.CUresult {
	n := c.shared.startQuery(e)
	if n == nil {
		return rt.CodeReset
	}
	code := rt.EventQuery(callContext, e, spin)
	n.Add(-1)
	return code
}

// homeQuery is eventQuery that also detects resets by other code.
func (c *contextCore) homeQuery(home rt.Home, e driver.CUevent) driver.CUresult {
	n := c.shared.startQuery(e)
	if n == nil {
		return rt.CodeReset
	}
	defer n.Add(-1)
	return home.EventQuery(e)
}

// queues returns the queues of all streams in the device's primary context, in order.
func (d Device) queues() []*queue {
	states.Lock()
	defer states.Unlock()
	all := map[*queue]struct{}{}
	for _, s := range states.of {
		for _, c := range s.live() {
			if c.ctx.device.raw == d.raw && c.ctx.shared.primary.Load() {
				all[c.queue] = struct{}{}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b *queue) int { return cmp.Compare(a.number, b.number) })
}
