package library

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
)

// workspaces are memory that libraries work in. A workspace belongs to one stream, whose order keeps
// its calls apart; in a capture it belongs to one stream of that capture, and the graph
// retains it, so that no other graph gets it. A limited number of streams have one at the
// same time: a further stream gets the memory of the one that was used least recently, in the
// order that CUDA's memory pool sees to. In a capture each stream has one, however many they are: what another stream
// would get is memory more, as the graph retains the old one, too.
type workspaces struct {
	x     *safe.Context
	leave func()     // releases what keeps x usable
	pool  *safe.Pool // nil if the device has no pools
	size  int
	limit int

	key   driver.CUcontext // of shared ones
	users int              // shared.Mutex is held

	mu    sync.Mutex // a leaf: guards the fields below
	all   []*workspace
	clock uint64
}

type workspace struct {
	number  uint64 // unique in the process
	memory  *safe.Buffer[byte]
	address driver.CUdeviceptr        // of memory
	stream  weak.Pointer[safe.Stream] // weak, so that dropped streams are collected
	key     uintptr                   // its address, to compare first
	raw     driver.CUstream           // its handle: several safe.Streams may have it, as those that borrow it
	capture uint64                    // the ID of the capture, or 0
	size    uint64                    // of memory
	used    uint64                    // when, by the clock; mu is held
	calls   atomic.Int32              // in flight; more begin with mu held
	kept    atomic.Bool               // in all; changes with mu held
}

var numbers atomic.Uint64 // of workspaces

// everything is the release threshold of a pool that keeps its memory, until a call finds too little.
const everything = math.MaxUint64

// mostKept is the largest workspace that a stream keeps after a call. Larger ones go back to
// the pool, where other streams find them, so that 16 streams do not hold 16 of them.
const mostKept = 64 << 20

// newWorkspaces returns workspaces of at least size bytes for the last limit streams that had work.
func newWorkspaces(x *safe.Context, size, limit int) (*workspaces, error) {
	w := &workspaces{size: size, limit: limit}
	var err error
	var in *safe.Resource
	if in, w.leave, err = hold(x); err != nil {
		return nil, err
	}
	w.x = in.Context()
	w.pool, err = safe.NewPool(w.x)
	if errors.Is(err, safe.ErrNotSupported) {
		return w, nil
	}
	if err == nil {
		err = w.pool.SetAttribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, everything)
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	pool, leave := w.pool, w.leave
	kept := lifetime.OnMakeRoom(func() { _ = pool.Trim(0) }) // the call that needs the memory has an error of its own
	w.leave = func() { kept(); leave() }
	return w, nil
}

// close closes the memory. Work and graphs that use it keep it.
func (w *workspaces) close() (err error) {
	w.mu.Lock()
	all := w.all
	w.all = nil
	w.mu.Unlock()
	for _, s := range all {
		err = errors.Join(err, s.memory.Close())
	}
	if w.pool != nil {
		err = errors.Join(err, w.pool.Close())
	}
	w.leave()
	return err
}

func (w *workspaces) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// lost tells whether the program has closed all memory of the context.
func (w *workspaces) lost() bool { return w.pool != nil && w.pool.Raw() == 0 }

// of returns whether w belongs to s.
func (w *workspace) of(s *safe.Stream) bool {
	return w.key == uintptr(unsafe.Pointer(s)) && w.stream.Value() == s
}

// last returns the workspace that s used last, for one call, or nil. It has size bytes. If that was in a capture, it returns
// nil: the stream may be in the next one, whose graph would retain the memory.
func (w *workspaces) last(s *safe.Stream, size int) *workspace {
	w.mu.Lock()
	defer w.mu.Unlock()
	var last *workspace
	for _, have := range w.all {
		if have.of(s) && (last == nil || have.used > last.used) {
			last = have
		}
	}
	if last != nil && (last.capture != 0 || last.size < uint64(size)) {
		last = nil
	}
	if last != nil {
		w.call(last)
	}
	return last
}

// call begins a call with a workspace. mu is held.
func (w *workspaces) call(space *workspace) {
	space.calls.Add(1)
	w.use(space)
}

// use makes a workspace the one that was used last. mu is held.
func (w *workspaces) use(space *workspace) {
	w.clock++
	space.used = w.clock
}

// take returns a workspace of size bytes for one call on s, whose handle is raw, in a capture or in none. It
// allocates if there is none, and closes those of captures that are over.
func (w *workspaces) take(s *safe.Stream, raw driver.CUstream, capture uint64, size int) (*workspace, error) {
	space := &workspace{number: numbers.Add(1), stream: weak.Make(s), key: uintptr(unsafe.Pointer(s)), raw: raw, capture: capture}
	space.calls.Store(1)
	if have := w.find(space, size); have != nil {
		return have, nil
	}
	if err := w.prune(raw, capture); err != nil {
		return nil, err
	}
	size = max(size, w.size)
	var err error
	if capture != 0 || w.pool == nil { // memory of a stream's order would become a node, which limits the graph
		space.memory, err = safe.NewBuffer[byte](w.x, size)
	} else {
		space.memory, err = safe.NewBufferFrom[byte](w.pool, s, size)
	}
	if err != nil {
		return nil, err
	}
	space.address, space.size = space.memory.Raw(), space.memory.Size()
	if capture == 0 && size > max(mostKept, w.size) {
		return space, nil
	}
	if err := w.keep(space); err != nil {
		return nil, errors.Join(err, space.put())
	}
	return space, nil
}

// beside returns whether two workspaces belong to one stream, in one capture or in none. In a capture, a handle stands for
// one stream, as none of them is destroyed before its end. Elsewhere a safe.Stream does, with its handle: the program may
// write another stream into it.
func (w *workspace) beside(other *workspace) bool {
	if w.capture != other.capture || w.raw != other.raw {
		return false
	}
	return w.capture != 0 || w.key == other.key && w.stream == other.stream
}

// find returns a workspace of size bytes for what a new one would be for, or nil.
func (w *workspaces) find(like *workspace, size int) *workspace {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, have := range w.all {
		if have.size >= uint64(size) && have.beside(like) {
			w.call(have)
			return have
		}
	}
	return nil
}

// keep adds a workspace in the place of a smaller one of its stream, or of an idle one if there
// are too many that belong to no capture. If all are in use, the new one serves a single call.
func (w *workspaces) keep(space *workspace) error {
	w.mu.Lock()
	var least, smaller *workspace
	n := 0
	for _, have := range w.all {
		if (have.capture != 0) != (space.capture != 0) {
			continue
		}
		n++
		if have.calls.Load() > 0 {
			continue
		}
		if have.beside(space) {
			smaller = have
		}
		if least == nil || have.used < least.used {
			least = have
		}
	}
	full := smaller != nil || space.capture == 0 && n >= w.limit
	if smaller != nil {
		least = smaller
	}
	if !full || least != nil {
		space.kept.Store(true)
		w.all = append(w.all, space)
		w.use(space)
	}
	if full && least != nil {
		w.drop(least)
	} else {
		least = nil
	}
	w.mu.Unlock()
	if least == nil {
		return nil
	}
	return least.memory.Close() // in the order of its stream; of a capture, with the graph
}

// drop removes a workspace. mu is held.
func (w *workspaces) drop(space *workspace) {
	w.all = slices.DeleteFunc(w.all, func(have *workspace) bool { return have == space })
	space.kept.Store(false)
}

// put ends a call. It closes a workspace that nothing keeps.
func (space *workspace) put() error {
	if space.calls.Add(-1) == 0 && !space.kept.Load() {
		return space.memory.Close() // again, perhaps, if it was dropped meanwhile
	}
	return nil
}

// prune closes workspaces of captures that are over. The stream with the handle raw is in capture, or in none; without
// one, raw is 0.
func (w *workspaces) prune(raw driver.CUstream, capture uint64) (err error) {
	var captured []*workspace
	w.mu.Lock()
	for _, have := range w.all {
		if have.capture != 0 && have.capture != capture && have.calls.Load() == 0 {
			captured = append(captured, have)
		}
	}
	w.mu.Unlock()
	for _, have := range captured {
		if have.raw != raw && have.capturing() {
			continue
		}
		w.mu.Lock()
		idle := have.calls.Load() == 0 && have.kept.Load()
		if idle {
			w.drop(have)
		}
		w.mu.Unlock()
		if idle {
			err = errors.Join(err, have.memory.Close())
		}
	}
	return err
}

// capturing returns whether the workspace's stream is capturing still.
func (w *workspace) capturing() bool {
	s := w.stream.Value()
	if s == nil {
		return false
	}
	status, err := s.CaptureStatus()
	return err == nil && status == driver.CU_STREAM_CAPTURE_STATUS_ACTIVE
}

// captureOf returns the ID of the capture that the stream takes part in, or 0. It is for
// functions that enqueue work, when no capture begins or ends.
func (c *Call) captureOf(raw driver.CUstream) (uint64, error) {
	status, err := c.stream.CaptureStatus()
	if err != nil { // the stream is being closed, or CUDA has returned an error
		err = driver.CuStreamIsCapturing(raw, &status)
	}
	if err != nil || status == driver.CU_STREAM_CAPTURE_STATUS_NONE {
		return 0, err
	}
	var id uint64
	err = driver.CuStreamGetCaptureInfo_v2(raw, &status, &id, nil, nil, nil)
	if errors.Is(err, driver.CUDA_ERROR_LOSSY_QUERY) {
		err = driver.CuStreamGetCaptureInfo_v3(raw, &status, &id, nil, nil, nil, nil)
	}
	if err == nil && status != driver.CU_STREAM_CAPTURE_STATUS_ACTIVE {
		err = driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
	}
	return id, err
}
