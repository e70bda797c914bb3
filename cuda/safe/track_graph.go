package safe

import (
	"iter"
	"slices"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
)

// graphRetained holds everything that a graph or an executable retains: a retained for
// captured work, one for what the user added, and one for each node that was added or
// changed individually.
type graphRetained struct {
	mu       admit.Leaf // guards all fields
	captured *retained
	user     *retained
	nodes    *nodeTable // may be shared
}

// graphRoom is a graphRetained and what it refers to, in one allocation.
type graphRoom struct {
	graphRetained
	retained [2]retained
	table    nodeTable
}

func (r *graphRoom) init() *graphRetained {
	r.captured, r.user, r.nodes = &r.retained[0], &r.retained[1], &r.table
	r.captured.init()
	r.user.init()
	return &r.graphRetained
}

// renew returns the graphRetained for a graph that is about to be recaptured. Only what
// the user added stays.
func (h *graphRetained) renew() *graphRetained {
	return &graphRetained{captured: newRetained(), user: h.user.share(), nodes: &nodeTable{}}
}

// separate has the graph alone retain the needs of later captures: executables, clones and
// parents share those of earlier ones.
func (h *graphRetained) separate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.captured.shared() {
		return
	}
	t := h.ownNodes()
	t.rest = append(t.rest, h.captured)
	h.captured = newRetained()
}

// add makes a new node retain k.
func (h *graphRetained) add(n driver.CUgraphNode, k *retained) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.ownNodes()
	t.single = append(t.single, nodeRetained{n, k})
}

// of returns what node n alone retains, or with the nodes that were changed together with it; nil
// for nothing.
func (h *graphRetained) of(n driver.CUgraphNode) *retained {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.ownNodes()
	t.apart()
	if i, ok := t.find(n); ok {
		return t.single[i].k
	}
	return nil
}

// set makes node n retain k, which may be nil, and returns what it retained before.
func (h *graphRetained) set(n driver.CUgraphNode, k *retained) (before *retained) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.ownNodes()
	t.apart()
	if k == nil {
		return t.remove(n)
	}
	return t.set(n, k)
}

// addAll makes new nodes retain k, whose reference it takes over.
func (h *graphRetained) addAll(nodes []driver.CUgraphNode, k *retained) {
	if len(nodes) == 0 {
		k.release()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.ownNodes()
	if len(nodes) == 1 {
		t.single = append(t.single, nodeRetained{nodes[0], k})
		return
	}
	if len(t.runs) == few {
		t.apart()
	}
	t.runs = append(t.runs, nodesRetained{slices.Clone(nodes), k})
}

// setAll makes nodes retain k, whose reference it takes over, and calls f with what each, or all
// of them together, retained before, unless that is the same. That may be nil.
func (h *graphRetained) setAll(nodes []driver.CUgraphNode, k *retained, f func(before *retained)) {
	if len(nodes) == 0 {
		k.release()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range h.nodes.runs {
		if !slices.Equal(r.nodes, nodes) {
			continue
		}
		if k.sameObjects(r.k) {
			k.release()
			return
		}
		h.ownNodes().runs[i].k = k
		f(r.k)
		return
	}
	t := h.ownNodes()
	t.apart()
	k.addOwners(len(nodes) - 1)
	var latest *retained // compared last
	same, others := false, 0
	for _, n := range nodes {
		before := t.set(n, k)
		if before != nil && before != latest {
			latest, same = before, k.sameObjects(before)
		}
		if before != nil && before != k {
			others++
		}
		if before != nil && same {
			before.release()
		} else {
			f(before)
		}
	}
	if others == len(nodes) && others == len(t.single) { // the next change of all is faster
		t.single, t.index, t.indexed = nil, nil, 0
		t.runs = append(t.runs, nodesRetained{slices.Clone(nodes), k})
		k.addOwners(1 - len(nodes))
	}
}

// ownNodes returns the table for a change. mu is held.
func (h *graphRetained) ownNodes() *nodeTable {
	t := h.nodes
	if t.others.Load() > 0 {
		t = t.copy(func(n driver.CUgraphNode) driver.CUgraphNode { return n })
		h.nodes.release()
		h.nodes = t
	}
	t.all = nil
	return t
}

// share returns a graphRetained of the same objects for another graph or executable.
func (h *graphRetained) share() *graphRetained {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes.others.Add(1)
	return &graphRetained{captured: h.captured.share(), user: h.user.share(), nodes: h.nodes}
}

// has returns whether k is of the graph's captured work or of one of its nodes.
func (h *graphRetained) has(k *retained) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for of := range h.nodes.each() {
		if of == k {
			return true
		}
	}
	return h.captured == k
}

// memory returns the memory that the nodes allocate, and that they free.
func (h *graphRetained) memory() (allocs, freed []*block) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes.objects()
	c := h.captured.content()
	return slices.Concat(c.allocs, h.nodes.allocs), slices.Concat(c.freed, h.nodes.freed)
}

// noteAll registers s, whose mu is held, as a user of all retained memory.
func (h *graphRetained) noteAll(s *streamCore) {
	h.eachBlock(func(b *block) { b.note(s) })
}

// eachBlock calls f for all retained memory.
func (h *graphRetained) eachBlock(f func(*block)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.captured.eachBlock(f)
	h.nodes.objects().eachBlock(f)
	for _, inner := range h.nodes.inner {
		inner.eachBlock(f)
	}
}

// same returns whether h and o retain the same objects and nothing else.
func (h *graphRetained) same(o *graphRetained) bool {
	if h.captured != o.captured && !h.captured.sameObjects(o.captured) {
		return false
	}
	if h.user != o.user && !h.user.sameObjects(o.user) {
		return false
	}
	if h.nodes == o.nodes {
		return true
	}
	return h.nodes.objects().sameObjects(o.nodes.objects()) && h.nodes.plain && o.nodes.plain
}

func (h *graphRetained) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.captured.release()
	h.user.release()
	h.nodes.release()
	h.captured, h.user, h.nodes = nil, nil, nil
}

// rename replaces the nodes by their counterparts in another graph. name returns 0 for
// nodes of child graphs, whose objects then stay retained as long as the graph.
func (h *graphRetained) rename(name func(driver.CUgraphNode) (driver.CUgraphNode, error)) error {
	var failed error
	t := h.nodes.copy(func(n driver.CUgraphNode) driver.CUgraphNode {
		own, err := name(n)
		if err != nil {
			failed = err
		}
		return own
	})
	h.nodes.release()
	h.nodes = t
	return failed
}

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

	mu     admit.Leaf       // guards the fields below
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
