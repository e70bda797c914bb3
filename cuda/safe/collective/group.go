package collective

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Calls collects operations that NCCL gets as one group: see [Group].
type Calls struct {
	last atomic.Pointer[Comm] // that In has returned
	mu   sync.Mutex           // a leaf: guards the fields below, and changes of last
	all  *batch               // nil when f of Group has returned
	room Comm                 // of the first one: most groups have no other
}

// A batch is operations that NCCL gets at once.
type batch struct {
	calls   []call
	on      []safe.RawWork // one for each stream
	uses    []safe.Arg     // of on, with registrations
	cores   []*core
	enqueue func() error // pass
	prepare func(driver.CUstream) []safe.RawCall
	direct  []safe.RawCall // what prepare has returned
	listed  uint64         // version of on
	passed  bool           // NCCL was called
}

// batches keeps them, for reuse of their memory.
var batches = sync.Pool{New: func() any {
	b := &batch{calls: make([]call, 0, 1), on: make([]safe.RawWork, 0, 1), cores: make([]*core, 0, 1)}
	b.enqueue, b.prepare = b.pass, b.prepared
	return b
}}

// forget puts an empty batch back.
func (b *batch) forget() {
	clear(b.calls)
	clear(b.on)
	clear(b.uses)
	clear(b.cores)
	b.calls, b.on, b.uses, b.cores = b.calls[:0], b.on[:0], b.uses[:0], b.cores[:0]
	batches.Put(b)
}

// Group calls f, which adds operations by [Comm.In], and then enqueues all of them as one
// group. One goroutine that serves several GPUs needs it, because an operation waits for the
// other ranks:
//
//	err := collective.Group(func(g *collective.Calls) error {
//		for i, c := range comms {
//			if err := collective.AllReduce(c.In(g), streams[i], sums[i], values[i], collective.Sum); err != nil {
//				return err
//			}
//		}
//		return nil
//	})
//
// It also makes messages in both directions safe, such as a [Send] to and a [Recv] from the
// same rank, and lets NCCL merge many small operations. All ranks must group their operations
// alike, or they may wait forever.
//
// If f returns an error, Group enqueues nothing and returns it. Operations on several
// streams must all be outside captures or in the same capture: otherwise Group returns [safe.ErrCapturing]. The work of
// a group begins once all streams of a rank have come to it, and all of them wait for its end.
// Source: ncclGroupStart, ncclGroupEnd.
func Group(f func(*Calls) error) error {
	const op = "collective.Group"
	if f == nil {
		return refuse(op, safe.ErrInvalidArgument, "the function is nil")
	}
	b := batches.Get().(*batch)
	defer b.forget()
	err := b.collect(f)
	if err != nil || len(b.calls) == 0 {
		return err
	}
	return b.run(op)
}

// collect calls f. After it, also after a panic, no operation can be added.
func (b *batch) collect(f func(*Calls) error) error {
	g := &Calls{all: b}
	defer func() {
		g.mu.Lock()
		g.all = nil
		g.mu.Unlock()
	}()
	return f(g)
}

// In returns the communicator for operations that join a group: see [Group]. They are
// checked at once, and enqueued when the function of Group returns.
func (c *Comm) In(g *Calls) *Comm {
	if c == nil || c.core == nil {
		return nil
	}
	whole := c
	if c.whole != nil {
		whole = c.whole
	}
	if g == nil {
		return &Comm{core: c.core, whole: whole}
	}
	if last := g.last.Load(); last != nil && last.whole == whole && last.core == c.core { // the program may have written another Comm there
		return last
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	in := &g.room
	if g.last.Load() != nil {
		in = new(Comm)
	}
	*in = Comm{core: c.core, calls: g, whole: whole}
	g.last.Store(in)
	return in
}

// errOver says why an operation cannot be added to a group that has ended.
var errOver = errors.New("the function of Group has returned")

// add adds an operation.
func (g *Calls) add(op string, k *call) error {
	g.mu.Lock()
	all := g.all
	if all != nil {
		all.calls = append(all.calls, *k)
	}
	g.mu.Unlock()
	if all == nil {
		return refuse(op, safe.ErrInvalidArgument, "%v", errOver)
	}
	return nil
}

// start enqueues the call, or adds it to the group of c.
func (k *call) start(op string, c *Comm) error {
	if c.calls != nil {
		return c.calls.add(op, k)
	}
	b := batches.Get().(*batch)
	defer b.forget()
	b.calls = append(b.calls, *k)
	return b.run(op)
}
