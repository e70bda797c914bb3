package safe

import (
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// A retained holds what the work of graphs needs: buffers, modules, events and Go
// functions. The last graph or executable that shares it releases them.
type retained struct {
	others  atomic.Int32 // owners besides the first
	mu      admit.Leaf   // guards objects and extras
	objects []*lifetime.Handle
	room    [4]*lifetime.Handle
	extras  *extras // nil for most: every node has a retained
}

// extras are what a retained holds besides a few objects.
type extras struct {
	at        map[*lifetime.Handle]struct{} // index of objects, once there are many
	tokens    []uintptr
	inner     *graphRetained // of a child graph
	onRelease []func()       // the user's
	allocs    []*block       // that the work allocates: closed by release
	freed     []*block       // that nodes of the work free
	next      *retained      // retained by this one
}

// few objects are searched without a map.
const few = 16

// newRetained returns one with a single owner.
func newRetained() *retained {
	k := &retained{}
	k.init()
	return k
}

func (k *retained) init() { k.objects = k.room[:0] }

// extra returns the extras to change. mu is held, or k is not shared yet.
func (k *retained) extra() *extras {
	if k.extras == nil {
		k.extras = &extras{}
	}
	return k.extras
}

// retain adds an object, for which take adds a reference. It fails if take does.
func (k *retained) retain(h *lifetime.Handle, take func() bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.add(h, take)
}

// add adds an object, for which take adds a reference. It returns false if take does. k is locked, or not shared yet.
func (k *retained) add(h *lifetime.Handle, take func() bool) bool {
	if k.has(h) {
		return true
	}
	if !take() {
		return false
	}
	k.objects = append(k.objects, h)
	if len(k.objects) <= few {
		return true
	}
	x := k.extra()
	if x.at == nil {
		x.at = map[*lifetime.Handle]struct{}{}
	}
	for _, h := range k.objects[len(x.at):] {
		x.at[h] = struct{}{}
	}
	return true
}

func (k *retained) has(h *lifetime.Handle) bool {
	if k.extras != nil && k.extras.at != nil {
		_, ok := k.extras.at[h]
		return ok
	}
	for _, o := range k.objects {
		if o == h {
			return true
		}
	}
	return false
}

// allocates adds memory that the work allocates.
func (k *retained) allocates(b *block) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.extra()
	x.allocs = append(x.allocs, b)
}

// frees adds memory that a node of the work frees.
func (k *retained) frees(b *block) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.extra()
	x.freed = append(x.freed, b)
	b.graph.freer.Store(k)
}

func (k *retained) token(token uintptr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.extra()
	x.tokens = append(x.tokens, token)
}

// eachBlock calls f for all retained memory.
func (k *retained) eachBlock(f func(*block)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.objects {
		if b, ok := h.Object().(*block); ok {
			f(b)
		}
	}
	if inner := k.inner(); inner != nil {
		inner.eachBlock(f)
	}
}

// inner is what a child graph retains, or nil. mu is held.
func (k *retained) inner() *graphRetained {
	if k.extras == nil {
		return nil
	}
	return k.extras.inner
}

func (k *retained) share() *retained {
	k.addOwners(1)
	return k
}

// addOwners changes the number of owners, of which one stays.
func (k *retained) addOwners(n int) { k.others.Add(int32(n)) }

// shared returns whether k has several owners.
func (k *retained) shared() bool { return k.others.Load() > 0 }

// release releases everything once there is no other owner.
func (k *retained) release() {
	if k == nil || k.others.Add(-1) >= 0 {
		return
	}
	for _, h := range k.objects {
		h.Release()
	}
	if k.extras != nil {
		for _, b := range k.extras.freed { // CUDA takes another node now
			b.graph.freer.CompareAndSwap(k, nil)
		}
		k.extras.release()
	}
	k.objects, k.extras = nil, nil
}

func (x *extras) release() {
	for _, t := range x.tokens {
		forget(t)
	}
	if x.inner != nil {
		x.inner.release()
	}
	for _, b := range x.allocs {
		b.CloseLater()
	}
	if len(x.onRelease) > 0 {
		go callAll(x.onRelease) // they may block
	}
	if next := x.next; next != nil {
		lifetime.Reaper.Add(func() bool { // not recursively: the chain may be long
			next.release()
			return false
		})
	}
}

// callAll calls functions of the user, and reports panics.
func callAll(all []func()) {
	for _, f := range all {
		if err := caughtApart(f); err != nil {
			lifetime.Report(err)
		}
	}
}

// sameObjects returns whether k and o retain the same objects and nothing else.
func (k *retained) sameObjects(o *retained) bool {
	other := o.content()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !other.plain || !k.plain() || len(k.objects) != len(other.objects) {
		return false
	}
	for _, h := range other.objects {
		if !k.has(h) {
			return false
		}
	}
	return true
}

// A content is what a retained holds at one moment.
type content struct {
	objects []*lifetime.Handle
	inner   *graphRetained
	allocs  []*block
	freed   []*block
	plain   bool // there is nothing but objects
}

func (k *retained) content() content {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := content{objects: k.objects, inner: k.inner(), plain: k.plain()}
	if k.extras != nil {
		c.allocs, c.freed = k.extras.allocs, k.extras.freed
	}
	return c
}

// plain returns whether k retains objects and nothing else. mu is held.
func (k *retained) plain() bool {
	x := k.extras
	return x == nil || len(x.tokens)+len(x.onRelease)+len(x.allocs)+len(x.freed) == 0 && x.inner == nil && x.next == nil
}

// extended returns a new retained that also retains k: it can be added to without changing
// k. It takes over the caller's reference to k.
func (k *retained) extended() *retained {
	own := newRetained()
	own.extra().next = k
	return own
}
