//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

func init() {
	add("contexts", []kind{
		{name: "contexts.new", weight: 3, run: newTenant, allow: contexts},
		{name: "contexts.launch", weight: 6, run: func(t *task) error { return t.tenants.get(t.rng).launch(t) }, allow: allocated},
		{name: "contexts.module", weight: 3, run: func(t *task) error { return t.tenants.get(t.rng).load(t) }, allow: contexts},
		{name: "contexts.close", weight: 2, run: func(t *task) error { return put(t, &t.tenants, &tenant{}, nil) }},
	})
}

// allocated is what a launch returns while its memory is allocated, and a release while it is not.
var allocated = []error{driver.CUDA_ERROR_INVALID_VALUE, safe.ErrNotAllocated}

// A tenant has objects of each kind in a context that may be its own, and a graph that leaves memory
// allocated. They end in any order.
type tenant struct {
	x       *safe.Context
	s       *safe.Stream
	pool    *safe.Pool
	pooled  *safe.Buffer[float32]
	g       *safe.Graph
	e       *safe.GraphExec
	room    *safe.Buffer[float32] // of a launch of e
	borrows bool                  // x is another's
	order   int
}

func newTenant(t *task) error {
	n := &tenant{x: t.device().x, borrows: t.yes(40), order: t.n(100)}
	var err error
	if !n.borrows {
		if n.x, err = safe.NewContext(t.device().x.Device()); err != nil {
			return err
		}
	}
	return put(t, &t.tenants, n, errors.Join(n.fill(t), n.launch(t)))
}

func (n *tenant) fill(t *task) (err error) {
	if n.s, err = safe.NewStreamWith(n.x, safe.StreamOptions{NonBlocking: t.yes(50)}); err != nil {
		return err
	}
	if n.pool, err = safe.NewPool(n.x); err != nil {
		return err
	}
	if n.pooled, err = safe.NewBufferFrom[float32](n.pool, n.s, length); err != nil {
		return err
	}
	if n.g, err = safe.NewGraph(n.x); err != nil {
		return err
	}
	room, node, err := safe.AddAlloc[float32](n.g, length<<t.n(12))
	if err != nil {
		return err
	}
	n.room = room
	if _, err = n.g.Add(safe.FillNode(room, 7), node); err != nil {
		return err
	}
	n.e, err = n.g.InstantiateWith(safe.InstantiateOptions{AutoFreeOnLaunch: t.yes(50)})
	return err
}

// launch launches the graph, whose memory is then allocated until the tenant ends, or freed.
func (n *tenant) launch(t *task) error {
	if n == nil || n.e == nil {
		return nil
	}
	err := errors.Join(n.e.Launch(n.s), n.pooled.FillAsync(n.s, 3))
	if err == nil && t.yes(30) {
		err = n.room.FreeAsync(n.s)
	}
	return err
}

// load loads a module, and launches a kernel of it perhaps.
func (n *tenant) load(t *task) error {
	if n == nil || n.x == nil {
		return nil
	}
	m, err := safe.Load(n.x, kernelsPTX)
	if err != nil {
		return err
	}
	if k, found := m.Kernel("nothing"); found == nil && t.yes(60) {
		err = k.Launch(n.s, one)
	}
	return errors.Join(err, m.Close())
}

// Close closes everything, from one of its objects on.
func (n *tenant) Close() error {
	if n == nil || n.x == nil {
		return nil
	}
	all := []closer{n.room, n.g, n.e, n.pooled, n.pool, n.s}
	if !n.borrows {
		all = append(all, n.x)
	}
	var errs []error
	for i := range all {
		errs = append(errs, all[(i+n.order)%len(all)].Close())
		if n.order%7 == 0 {
			time.Sleep(time.Duration(n.order) * time.Microsecond)
		}
	}
	return errors.Join(errs...)
}
