package safe

import (
	"slices"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// graphRetained holds everything that a graph or an executable retains: a retained for
// captured work, one for what the user added, and one for each node that was added or
// changed individually.
type graphRetained struct {
	mu       sync.Mutex
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

// noteAll registers s, whose mu is held, as a user of all retained buffers.
func (h *graphRetained) noteAll(s *streamCore) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.captured.noteAll(s)
	h.nodes.objects().noteAll(s)
	for _, inner := range h.nodes.inner {
		inner.noteAll(s)
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
