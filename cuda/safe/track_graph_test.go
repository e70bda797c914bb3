// What graphs and executables retain. Needs no driver.

package safe

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/require"
)

// retains is a graphRetained and what it should hold.
type retains struct {
	h    *graphRetained
	want map[driver.CUgraphNode]*retained
	rest []*retained // of nodes without a name
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
	o.want = map[driver.CUgraphNode]*retained{}
	for n, k := range r.want {
		if own, _ := name(n); own != 0 {
			o.want[own] = k
		} else {
			o.rest = append(o.rest, k)
		}
	}
	return o
}

// found returns what each node retains.
func (r *retains) found() map[driver.CUgraphNode]*retained {
	all := maps.Clone(r.h.nodes.of)
	if all == nil {
		all = map[driver.CUgraphNode]*retained{}
	}
	for _, run := range r.h.nodes.runs {
		for _, n := range run.nodes {
			all[n] = run.k
		}
	}
	return all
}

// change adds, changes or removes some nodes. It returns what they retain from now on.
func (r *retains) change(at *rand.Rand, next *driver.CUgraphNode) *retained {
	k := newRetained()
	some := slices.Sorted(maps.Keys(r.want))
	if at.IntN(3) > 0 && len(some) > 0 {
		some = some[at.IntN(len(some)):]
	}
	switch at.IntN(5) {
	case 0: // one node
		*next++
		some = []driver.CUgraphNode{*next}
		r.h.set(*next, k)
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
	case 4:
		if len(some) > 0 {
			r.h.set(some[0], nil).release()
			delete(r.want, some[0])
		}
		k.release()
		return k
	}
	for _, n := range some {
		r.want[n] = k
	}
	return k
}

// TestGraphRetained compares what nodes retain with a simple map, for a graph and what shares with
// it, such as executables. Nothing is released that a node retains, and all else is.
func TestGraphRetained(t *testing.T) {
	for seed := range uint64(500) {
		at := rand.New(rand.NewPCG(seed, 0))
		var next driver.CUgraphNode
		all := []*retains{{h: newGraphRetained(), want: map[driver.CUgraphNode]*retained{}}}
		var made []*retained
		for range 30 {
			r := all[at.IntN(len(all))]
			if len(all) < 4 && at.IntN(5) == 0 {
				all = append(all, r.clone(t, at.IntN(2) == 0))
			} else {
				made = append(made, r.change(at, &next))
			}
			used := map[*retained]bool{}
			for i, r := range all {
				require.True(t, maps.Equal(r.want, r.found()), "seed %d, retains %d", seed, i)
				for _, k := range slices.AppendSeq(slices.Clone(r.rest), maps.Values(r.want)) {
					used[k] = true
				}
			}
			for i, k := range made {
				require.Equal(t, used[k], k.refs > 0, "seed %d: change %d", seed, i)
			}
		}
		for _, r := range all {
			r.h.release()
		}
		for i, k := range made {
			require.Zero(t, k.refs, "seed %d: change %d", seed, i)
		}
	}
}
