// What graphs and executables retain. Needs no driver.

package safe

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// retains is a graphRetained and the object that each node should retain.
type retains struct {
	h    *graphRetained
	want map[driver.CUgraphNode]*lifetime.Handle
	rest []*lifetime.Handle // of nodes without a name
}

// found returns what each node retains.
func (r *retains) found() map[driver.CUgraphNode]*lifetime.Handle {
	all := map[driver.CUgraphNode]*lifetime.Handle{}
	for _, one := range r.h.nodes.single {
		all[one.node] = one.k.objects[0]
	}
	for _, run := range r.h.nodes.runs {
		for _, n := range run.nodes {
			all[n] = run.k.objects[0]
		}
	}
	return all
}

// clone is a copy, for other nodes if renamed is set, of which some have no name.
func (r *retains) clone(t *testing.T, renamed bool) *retains {
	o := &retains{r.h.share(), maps.Clone(r.want), slices.Clone(r.rest)}
	if !renamed {
		return o
	}
	name := func(n driver.CUgraphNode) (driver.CUgraphNode, error) {
		if n%5 == 0 {
			return 0, nil
		}
		return n + 1000, nil
	}
	require.NoError(t, o.h.rename(name))
	o.want = map[driver.CUgraphNode]*lifetime.Handle{}
	for n, h := range r.want {
		if own, _ := name(n); own != 0 {
			o.want[own] = h
		} else {
			o.rest = append(o.rest, h)
		}
	}
	return o
}

// change adds, changes or removes some nodes, which then retain the object.
func (r *retains) change(at *rand.Rand, next *driver.CUgraphNode, object *lifetime.Handle) {
	k := newRetained()
	k.add(object, func() bool { object.Retain(); return true })
	some := slices.Sorted(maps.Keys(r.want))
	if at.IntN(3) > 0 && len(some) > 0 {
		some = some[at.IntN(len(some)):]
	}
	switch at.IntN(6) {
	case 0:
		*next++
		some = []driver.CUgraphNode{*next}
		r.h.add(*next, k)
	case 1:
		some = nil
		for range at.IntN(4) {
			*next++
			some = append(some, *next)
		}
		r.h.addAll(some, k)
	case 2:
		r.h.setAll(some, k, (*retained).release)
	case 3: // some of them twice
		r.h.setAll(append(some, some[:len(some)/2]...), k, (*retained).release)
	case 4, 5:
		if some = some[:min(len(some), 1)]; len(some) == 0 {
			k.release()
		} else if at.IntN(2) == 0 {
			r.h.set(some[0], k).release()
		} else {
			k.release()
			r.h.set(some[0], nil).release()
			delete(r.want, some[0])
			some = nil
		}
	}
	for _, n := range some {
		r.want[n] = object
	}
}

// TestGraphRetained compares what nodes retain with a simple map, for a graph and what shares with
// it, such as executables. Nothing is released that a node retains, and all else is.
func TestGraphRetained(t *testing.T) {
	for seed := range uint64(500) {
		at := rand.New(rand.NewPCG(seed, 0))
		var next driver.CUgraphNode
		var objects [12]lifetime.Handle
		all := []*retains{{h: new(graphRoom).init(), want: map[driver.CUgraphNode]*lifetime.Handle{}}}
		for range 30 {
			r := all[at.IntN(len(all))]
			if len(all) < 4 && at.IntN(5) == 0 {
				all = append(all, r.clone(t, at.IntN(2) == 0))
			} else {
				r.change(at, &next, &objects[at.IntN(len(objects))])
			}
			var used []*lifetime.Handle
			for i, r := range all {
				require.True(t, maps.Equal(r.want, r.found()), "seed %d, retains %d", seed, i)
				used = slices.AppendSeq(append(used, r.rest...), maps.Values(r.want))
			}
			for i := range objects {
				require.Equal(t, slices.Contains(used, &objects[i]), objects[i].InUse(), "seed %d, object %d", seed, i)
			}
		}
		for _, r := range all {
			r.h.release()
		}
		for i := range objects {
			assert.False(t, objects[i].InUse(), "seed %d, object %d", seed, i)
		}
	}
}

// TestFreedMemoryOfTexture: a capture that has freed memory has freed it for a texture of it, too.
func TestFreedMemoryOfTexture(t *testing.T) {
	for name, own := range map[string]bool{"allocated by the capture": true, "allocated by another graph": false} {
		t.Run(name, func(t *testing.T) {
			c, b, other := &capturing{}, &block{graph: newGraphAllocation()}, &block{graph: newGraphAllocation()}
			texture := &block{of: b}
			assert.False(t, c.hasFreed(texture))
			if own {
				b.graph.capture = c
				b.graph.freed.Store(true)
			} else {
				c.frees = append(c.frees, b)
			}
			assert.True(t, c.hasFreed(b))
			assert.True(t, c.hasFreed(texture))
			assert.False(t, c.hasFreed(&block{of: other}))
			assert.False(t, (&capturing{}).hasFreed(texture), "in another capture")
		})
	}
}
