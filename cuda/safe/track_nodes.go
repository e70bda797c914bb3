package safe

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// A nodeTable has a retained for each node. Several graphRetained may share a table; it
// is changed only while it has one owner.
type nodeTable struct {
	others  atomic.Int32               // owners besides the first
	runs    []nodesRetained            // of nodes that were added or changed together
	single  []nodeRetained             // of all others
	index   map[driver.CUgraphNode]int // where they are; only a change looks for one
	indexed int                        // how many of single are in index
	found   int                        // the one of single that was found last
	rest    []*retained                // of nodes whose handles are unknown here, and of earlier captures

	mu     sync.Mutex
	all    *retained        // the objects of all nodes, each once; nil until needed
	inner  []*graphRetained // valid with all: of child graphs
	allocs []*block         // valid with all: the memory that the nodes allocate
	freed  []*block         // valid with all: the memory that they free
	plain  bool             // valid with all: there is nothing but objects
}

// nodeRetained is what one node retains.
type nodeRetained struct {
	node driver.CUgraphNode
	k    *retained
}

// nodesRetained is what several nodes retain together.
type nodesRetained struct {
	nodes []driver.CUgraphNode
	k     *retained
}

// apart makes the nodes of all runs single ones.
func (t *nodeTable) apart() {
	for _, r := range t.runs {
		r.k.addOwners(len(r.nodes) - 1)
		for _, n := range r.nodes {
			t.single = append(t.single, nodeRetained{n, r.k})
		}
	}
	t.runs = nil
}

// find returns where a node is in single. Programs mostly change one node, or all in order.
func (t *nodeTable) find(n driver.CUgraphNode) (i int, ok bool) {
	for i := t.found; i < min(t.found+2, len(t.single)); i++ {
		if t.single[i].node == n {
			t.found = i
			return i, true
		}
	}
	t.complete()
	if i, ok = t.index[n]; ok {
		t.found = i
	}
	return i, ok
}

// complete adds the nodes that index lacks.
func (t *nodeTable) complete() {
	if t.index == nil {
		t.index = make(map[driver.CUgraphNode]int, len(t.single))
	}
	for ; t.indexed < len(t.single); t.indexed++ {
		t.index[t.single[t.indexed].node] = t.indexed
	}
}

// set makes a node that is in no run retain k, and returns what it retained before.
func (t *nodeTable) set(n driver.CUgraphNode, k *retained) (before *retained) {
	i, ok := t.find(n)
	if !ok {
		t.single = append(t.single, nodeRetained{n, k})
		return nil
	}
	before, t.single[i].k = t.single[i].k, k
	return before
}

// remove removes a node that is in no run, and returns what it retained.
func (t *nodeTable) remove(n driver.CUgraphNode) (before *retained) {
	i, ok := t.find(n)
	if !ok {
		return nil
	}
	t.complete()
	before = t.single[i].k
	last := len(t.single) - 1
	t.single[i] = t.single[last]
	t.index[t.single[i].node] = i
	delete(t.index, n)
	t.single[last] = nodeRetained{}
	t.single, t.indexed = t.single[:last], last
	return before
}

// copy returns a table of the same retained objects for other node handles.
func (t *nodeTable) copy(name func(driver.CUgraphNode) driver.CUgraphNode) *nodeTable {
	c := &nodeTable{}
	for _, r := range t.runs {
		own := make([]driver.CUgraphNode, 0, len(r.nodes))
		for _, n := range r.nodes {
			if n = name(n); n != 0 {
				own = append(own, n)
			}
		}
		if len(own) > 0 {
			c.runs = append(c.runs, nodesRetained{own, r.k.share()})
		}
		if len(own) < len(r.nodes) {
			c.rest = append(c.rest, r.k.share())
		}
	}
	c.single = make([]nodeRetained, 0, len(t.single))
	for _, r := range t.single {
		if own := name(r.node); own != 0 {
			c.single = append(c.single, nodeRetained{own, r.k.share()})
		} else {
			c.rest = append(c.rest, r.k.share())
		}
	}
	for _, k := range t.rest {
		c.rest = append(c.rest, k.share())
	}
	return c
}

// objects returns the objects of all nodes.
func (t *nodeTable) objects() *retained {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all != nil {
		return t.all
	}
	t.all, t.inner, t.allocs, t.freed, t.plain = newRetained(), nil, nil, nil, true
	listed := map[*retained]struct{}{} // nodes may share one
	for k := range t.each() {
		if _, ok := listed[k]; !ok {
			listed[k] = struct{}{}
			t.list(k)
		}
	}
	return t.all
}

// each yields what all nodes retain.
func (t *nodeTable) each() iter.Seq[*retained] {
	return func(yield func(*retained) bool) {
		for _, r := range t.runs {
			if !yield(r.k) {
				return
			}
		}
		for _, r := range t.single {
			if !yield(r.k) {
				return
			}
		}
		for _, k := range t.rest {
			if !yield(k) {
				return
			}
		}
	}
}

// list adds what k retains to the lists of all nodes. mu is held.
func (t *nodeTable) list(k *retained) {
	c := k.content()
	for _, h := range c.objects {
		t.all.retain(h, func() bool { return true }) // k retains it
	}
	if c.inner != nil {
		t.inner = append(t.inner, c.inner)
	}
	t.allocs, t.freed = append(t.allocs, c.allocs...), append(t.freed, c.freed...)
	t.plain = t.plain && c.plain
}

func (t *nodeTable) release() {
	if t.others.Add(-1) >= 0 {
		return
	}
	for k := range t.each() {
		k.release()
	}
}
