package safe

import (
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// A keepsake is what work of graphs needs: buffers, modules, events and Go
// functions. It is let go with the last graph or executable that has it.
type keepsake struct {
	mu      sync.Mutex
	refs    int
	objects []*handle
	room    [4]*handle
	at      map[*handle]struct{} // the objects, once there are many
	tokens  []uintptr
	inner   *holdings // of a graph that is part of another
	release []func()
}

// few objects are found without a map.
const few = 16

// newKeepsake makes one that somebody has.
func newKeepsake() *keepsake {
	k := &keepsake{refs: 1}
	k.objects = k.room[:0]
	return k
}

// keep keeps an object, which take marks. It fails if take does.
func (k *keepsake) keep(h *handle, take func() bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.has(h) {
		return true
	}
	if !take() {
		return false
	}
	k.objects = append(k.objects, h)
	switch {
	case k.at != nil:
		k.at[h] = struct{}{}
	case len(k.objects) > few:
		k.at = map[*handle]struct{}{}
		for _, h := range k.objects {
			k.at[h] = struct{}{}
		}
	}
	return true
}

func (k *keepsake) has(h *handle) bool {
	if k.at != nil {
		_, ok := k.at[h]
		return ok
	}
	for _, o := range k.objects {
		if o == h {
			return true
		}
	}
	return false
}

func (k *keepsake) token(token uintptr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens = append(k.tokens, token)
}

// noteAll has the buffers know that work on s, whose mu is held, uses them.
func (k *keepsake) noteAll(s *streamCore) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.objects {
		if b, ok := h.object.(*block); ok {
			b.note(s)
		}
	}
	if k.inner != nil {
		k.inner.noteAll(s)
	}
}

func (k *keepsake) share() *keepsake {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refs++
	return k
}

// drop lets everything go if nobody else needs it.
func (k *keepsake) drop() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refs--; k.refs > 0 {
		return
	}
	for _, h := range k.objects {
		h.unmark()
	}
	for _, t := range k.tokens {
		forget(t)
	}
	if k.inner != nil {
		k.inner.drop()
	}
	for _, f := range k.release {
		reaper.add(func() bool {
			guard(f)
			return false
		})
	}
	k.objects, k.at, k.tokens, k.inner, k.release = nil, nil, nil, nil, nil
}

// sameObjects tells whether k and o keep the same objects, and nothing else.
func (k *keepsake) sameObjects(o *keepsake) bool {
	if len(k.objects) != len(o.objects) || len(k.tokens)+len(o.tokens)+len(k.release)+len(o.release) > 0 || k.inner != nil || o.inner != nil {
		return false
	}
	for _, h := range o.objects {
		if !k.has(h) {
			return false
		}
	}
	return true
}

// holdings are the keepsakes of a graph or of an executable: one of what was
// captured, one of each node that was added or changed by hand.
type holdings struct {
	mu       sync.Mutex
	captured *keepsake
	user     *keepsake // what the user has added to the graph itself
	nodes    map[driver.CUgraphNode]*keepsake
}

func newHoldings() *holdings { return &holdings{captured: newKeepsake(), user: newKeepsake()} }

// renew makes holdings for what a graph is made into.
func (h *holdings) renew() *holdings { return &holdings{captured: newKeepsake(), user: h.user.share()} }

// set has a node need k, and returns what it needed so far. k may be nil.
func (h *holdings) set(n driver.CUgraphNode, k *keepsake) (before *keepsake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.nodes[n]
	switch {
	case k == nil:
		delete(h.nodes, n)
	case h.nodes == nil:
		h.nodes = map[driver.CUgraphNode]*keepsake{n: k}
	default:
		h.nodes[n] = k
	}
	return before
}

// share makes holdings of the same for another graph or executable.
func (h *holdings) share() *holdings {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &holdings{captured: h.captured.share(), user: h.user.share()}
	if len(h.nodes) > 0 {
		s.nodes = make(map[driver.CUgraphNode]*keepsake, len(h.nodes))
	}
	for n, k := range h.nodes {
		s.nodes[n] = k.share()
	}
	return s
}

func (h *holdings) noteAll(s *streamCore) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.captured.noteAll(s)
	for _, k := range h.nodes {
		k.noteAll(s)
	}
}

func (h *holdings) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.captured.drop()
	h.user.drop()
	for _, k := range h.nodes {
		k.drop()
	}
	h.captured, h.user, h.nodes = nil, nil, nil
}

// rename gives the nodes their names in another graph. One that has none there,
// because it is part of a part, keeps its own.
func (h *holdings) rename(name func(driver.CUgraphNode) (driver.CUgraphNode, error)) error {
	nodes := make(map[driver.CUgraphNode]*keepsake, len(h.nodes))
	for n, k := range h.nodes {
		own, err := name(n)
		if err == driver.CUDA_ERROR_INVALID_VALUE {
			own, err = n, nil
		}
		if err != nil {
			return err
		}
		nodes[own] = k
	}
	h.nodes = nodes
	return nil
}
