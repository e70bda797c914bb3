//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A resource is an object of another library whose release checks that all work that uses it
// has completed.
type resource struct {
	of    *safe.Resource
	state *resourceState // must not lead to of, or the collector never finds that dropped
}

// resourceState is what the release of a resource needs.
type resourceState struct {
	*releases
	inGraph mark // set by captured work

	mu       sync.Mutex
	expected []mark // set by work that was enqueued
	times    int    // that it was released
}

// releases count the resources of a world.
type releases struct {
	made, released atomic.Int64
	first          atomic.Pointer[fault]
	marks          *marks
}

// patience is how long a release may take once nothing needs the resource.
const patience = 10 * time.Second

func init() {
	add("resource", []kind{
		{name: "resource.new", weight: 6, run: func(t *task) error {
			r, err := t.newResource(t.device().x)
			return put(t, &t.resources, r, err)
		}},
		{name: "resource.use", weight: 10, run: func(t *task) error { return t.use(t.stream()) }, allow: contexts},
		{name: "resource.borrowed", weight: 4, run: useBorrowed, allow: contexts},
		{name: "resource.two", weight: 4, run: useOnTwo, allow: contexts},
		{name: "resource.capture", weight: 8, run: captureUse, allow: ended},
		{name: "resource.close", weight: 2, run: func(t *task) error { return t.resources.get(t.rng).Close() }},
		{name: "resource.revoke", weight: 2, run: func(t *task) error { t.resources.get(t.rng).object().Revoke(); return nil }},
		{name: "resource.drop", weight: 2, run: func(t *task) error { t.resources.swap(t.rng, nil); return nil }},
	})
}

func (w *world) newResource(x *safe.Context) (*resource, error) {
	s := &resourceState{releases: &w.releases, inGraph: w.releases.marks.take()}
	r, err := safe.NewResource(x, s.release)
	if err != nil {
		return nil, err
	}
	w.releases.made.Add(1)
	return &resource{r, s}, nil
}

// object returns the Resource, or nil for which every call must return ErrClosed.
func (r *resource) object() *safe.Resource {
	if r == nil {
		return nil
	}
	return r.of
}

func (r *resource) Close() error { return r.object().Close() }

// args are the resource and the memory that its work writes to beside other memory.
func (r *resource) args() []safe.Arg {
	if r == nil {
		return []safe.Arg{r.object().Arg()}
	}
	return []safe.Arg{r.of.Arg(), r.state.marks.memory.Arg()}
}

// mark enqueues by a raw call what tells whether the work before it has completed.
func (r *resource) mark(raw driver.CUstream) error {
	if r == nil {
		return nil
	}
	var status driver.CUstreamCaptureStatus
	if err := driver.CuStreamIsCapturing(raw, &status); err != nil {
		return err
	}
	if status != driver.CU_STREAM_CAPTURE_STATUS_NONE {
		return r.state.inGraph.set(raw)
	}
	m := r.state.marks.take()
	err := m.set(raw)
	if err == nil {
		r.state.expect(m)
	}
	return err
}

func (s *resourceState) expect(m mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected = append(s.expected, m)
}

// release is called by package safe, and must not call that.
func (s *resourceState) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times++; s.times > 1 {
		s.failed("a resource was released again")
		return
	}
	for _, m := range s.expected {
		if !m.isSet() {
			s.failed("a resource was released before work that uses it had completed")
			break
		}
	}
	s.released.Add(1)
}

func (s *resourceState) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times > 0
}

func (c *releases) failed(text string) {
	c.first.CompareAndSwap(nil, &fault{mismatch, "release", "-", text})
}

// check waits for the releases of all resources, which are closed or dropped, as is what
// retains them.
func (c *releases) check() *fault {
	if !settle(patience, func() bool { return c.first.Load() != nil || c.made.Load() == c.released.Load() }) {
		return &fault{leak, "release", "-", "a resource was not released"}
	}
	return c.first.Load()
}

// use enqueues work that uses a shared resource and a shared buffer.
func (t *task) use(s *safe.Stream) error {
	call, uses := t.useCall(s)
	return s.EnqueueRaw(call, uses...)
}

// useCall returns a function that makes raw calls, and what the work uses.
func (t *task) useCall(s *safe.Stream) (call func(driver.CUstream) error, uses []safe.Arg) {
	r, b := t.resources.get(t.rng), t.buffers.get(t.rng)
	work := t.rawCall(s, b)
	call = func(raw driver.CUstream) error { return errors.Join(work(raw), r.mark(raw)) }
	return call, append(r.args(), b.Arg())
}

// useBorrowed closes the borrowed stream at once.
func useBorrowed(t *task) error {
	s, err := t.stream().Borrow()
	if err != nil {
		return err
	}
	return errors.Join(t.use(s), s.Close())
}

// useOnTwo enqueues work by one call on two streams, in a random order.
func useOnTwo(t *task) error {
	s, other := t.stream(), t.stream()
	call, uses := t.useCall(s)
	raw, more := s.Raw(), t.resources.get(t.rng)
	on := []safe.RawWork{{Stream: s, Uses: uses}, {Stream: other, Uses: more.args()}} // the context of the first is current
	return safe.EnqueueRaw(func() error { return call(raw) }, on...)
}

// captureUse captures work that uses resources; other steps launch and change the graph.
func captureUse(t *task) error {
	s := t.stream()
	some, ended := t.working(s)
	work := func() error {
		for range 1 + t.n(2) {
			if err := t.use(s); !explained(err, contexts) {
				return err
			}
		}
		return some()
	}
	g, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: modes[t.n(3)]}, work)
	return t.keepGraph(g, ended(err))
}

// marks are words of pinned memory, each of which some work sets. Go owns the memory, so that
// a release can read it at any time.
type marks struct {
	memory  *safe.Pinned[uint64]
	words   []uint64
	address driver.CUdeviceptr
	next    atomic.Int64
}

// A mark is one of the words, or none if there are no more.
type mark struct {
	word    *uint64
	address driver.CUdeviceptr
}

func newMarks(x *safe.Context) (*marks, error) {
	memory, err := ownPages(x, 16)
	if err != nil {
		return nil, err
	}
	m := &marks{memory: memory, words: memory.Data()}
	return m, x.WithCurrent(func() error {
		return driver.CuMemHostGetDevicePointer(&m.address, unsafe.Pointer(&m.words[0]), 0)
	})
}

func (m *marks) take() mark {
	i := int(m.next.Add(1)) - 1
	if i >= len(m.words) {
		return mark{}
	}
	return mark{&m.words[i], m.address + driver.CUdeviceptr(8*i)}
}

func (m mark) set(raw driver.CUstream) error {
	if m.word == nil {
		return nil
	}
	return driver.CuMemsetD32Async(m.address, 1, 1, raw)
}

func (m mark) isSet() bool { return m.word == nil || atomic.LoadUint64(m.word) != 0 }

// clear takes the mark back. No work that sets it is pending.
func (m mark) clear() {
	if m.word != nil {
		atomic.StoreUint64(m.word, 0)
	}
}
