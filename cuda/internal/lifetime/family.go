package lifetime

import (
	"errors"
	"sync"
)

// A family is the objects that users hold and that have a common outermost parent: a list,
// so that adding and removing allocates nothing.
type family struct {
	mu     sync.Mutex // a leaf: guards the list
	newest *Handle
}

// member is a place in the list of a family.
type member struct {
	in           bool
	newer, older *Handle
}

func (f *family) add(h *Handle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.in, h.older = true, f.newest
	if h.older != nil {
		h.older.newer = h
	}
	f.newest = h
}

func (f *family) remove(h *Handle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !h.in {
		return
	}
	if h.newer != nil {
		h.newer.older = h.older
	} else {
		f.newest = h.older
	}
	if h.older != nil {
		h.older.newer = h.newer
	}
	h.member = member{}
}

// OpenKind returns the kind of an open object whose outermost parent is h, or of h, "" for none.
func (h *Handle) OpenKind() string {
	h.family.mu.Lock()
	defer h.family.mu.Unlock()
	for m := h.family.newest; m != nil; m = m.older {
		if !m.Closed() {
			return m.Object().Kind()
		}
	}
	if !h.Closed() {
		return h.Object().Kind()
	}
	return ""
}

// CloseFamily closes the objects that users hold and whose outermost parent is h, newest
// first, and joins the errors. h itself stays open.
func (h *Handle) CloseFamily() error {
	var all []*Handle
	h.family.mu.Lock()
	for m := h.family.newest; m != nil; m = m.older {
		all = append(all, m)
	}
	h.family.mu.Unlock()
	var err error
	for _, m := range all {
		err = errors.Join(err, m.Close())
	}
	return err
}
