package safe

import (
	"sync"
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
	release []func()  // of the user's
	next    *keepsake // that this one keeps
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
	if len(k.release) > 0 {
		go callAll(k.release) // which may take as long as they like
	}
	if next := k.next; next != nil {
		reaper.add(func() bool { // there may be a long row of them
			next.drop()
			return false
		})
	}
	k.objects, k.at, k.tokens, k.inner, k.release, k.next = nil, nil, nil, nil, nil, nil
}

// callAll calls functions of the user's, and reports those that panic.
func callAll(all []func()) {
	for _, f := range all {
		if err := caught(f); err != nil {
			reportLater(err)
		}
	}
}

// sameObjects tells whether k and o keep the same objects, and nothing else.
func (k *keepsake) sameObjects(o *keepsake) bool {
	objects, plain := o.content()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !plain || !k.plain() || len(k.objects) != len(objects) {
		return false
	}
	for _, h := range objects {
		if !k.has(h) {
			return false
		}
	}
	return true
}

// content are the objects so far, and whether there is nothing else.
func (k *keepsake) content() (objects []*handle, plain bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.objects, k.plain()
}

// plain tells that k keeps objects, and nothing else. mu is held.
func (k *keepsake) plain() bool {
	return len(k.tokens)+len(k.release) == 0 && k.inner == nil && k.next == nil
}
