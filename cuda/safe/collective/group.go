package collective

import (
	"errors"
	"slices"
	"sync"

	"github.com/cudabind/cudabind/cuda/safe"
)

// Calls collects operations that NCCL gets as one group: see [Group].
type Calls struct {
	mu    sync.Mutex // a leaf: guards over and calls until f has returned
	over  bool       // f of Group has returned
	calls []call

	on      []safe.RawWork
	uses    []safe.Arg // of on, with registrations
	cores   []*core
	enqueue func() error // pass
	listed  uint64       // version of on
	passed  bool         // NCCL was called
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
// streams must all be outside of captures or in the same capture. NCCL enqueues the work of
// a group where the first of the streams of a rank stands; order other streams by events.
// Source: ncclGroupStart, ncclGroupEnd.
func Group(f func(*Calls) error) error {
	const op = "collective.Group"
	if f == nil {
		return refuse(op, safe.ErrInvalidArgument, "the function is nil")
	}
	g := &Calls{}
	g.enqueue = g.pass
	err := g.collect(f)
	if err != nil || len(g.calls) == 0 {
		return err
	}
	return g.run(op)
}

// collect calls f. After it, also after a panic, no operation can be added.
func (g *Calls) collect(f func(*Calls) error) error {
	defer func() {
		g.mu.Lock()
		g.over = true
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
	return &Comm{core: c.core, calls: g, whole: whole}
}

// errOver is returned for operations of a group that has ended.
var errOver = errors.New("the function of Group has returned")

// add adds an operation.
func (g *Calls) add(op string, k *call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return refuse(op, safe.ErrInvalidArgument, "%v", errOver)
	}
	g.calls = append(g.calls, *k)
	return nil
}

// singles are groups of one operation, for reuse of their memory.
var singles = sync.Pool{New: func() any {
	g := &Calls{calls: make([]call, 0, 1), on: make([]safe.RawWork, 0, 1), cores: make([]*core, 0, 1)}
	g.enqueue = g.pass
	return g
}}

// start enqueues the call, or adds it to the group of c.
func (k *call) start(op string, c *Comm) error {
	if c.calls != nil {
		return c.calls.add(op, k)
	}
	g := singles.Get().(*Calls)
	g.calls = append(g.calls, *k)
	err := g.run(op)
	clear(g.calls)
	clear(g.on)
	clear(g.uses)
	clear(g.cores)
	g.calls, g.on, g.uses, g.cores = g.calls[:0], g.on[:0], g.uses[:0], slices.Delete(g.cores, 0, len(g.cores))
	singles.Put(g)
	return err
}
