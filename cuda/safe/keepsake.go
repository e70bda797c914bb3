package safe

import "sync"

// A keepsake is what a graph and its executables need: buffers, modules, events
// and Go functions. It is let go with the last of them.
type keepsake struct {
	mu     sync.Mutex
	refs   int
	marks  map[*handle]struct{}
	tokens []uintptr
}

// keep keeps an object, which take marks. It fails if take does.
func (k *keepsake) keep(h *handle, take func() bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.marks[h]; ok {
		return true
	}
	if !take() {
		return false
	}
	if k.marks == nil {
		k.marks = map[*handle]struct{}{}
	}
	k.marks[h] = struct{}{}
	return true
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
	for h := range k.marks {
		if b, ok := h.object.(*block); ok {
			b.note(s)
		}
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refs--; k.refs > 0 {
		return
	}
	for h := range k.marks {
		h.unmark()
	}
	for _, t := range k.tokens {
		forget(t)
	}
	k.marks, k.tokens = nil, nil
}
