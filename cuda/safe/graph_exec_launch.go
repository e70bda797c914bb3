package safe

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Launch enqueues the graph's work on s. It starts when the work enqueued on s before and the
// previous launch of e have completed. s may belong to any context. Launch returns [ErrCapturing]
// if s captures; add a [ChildGraphNode] instead. Waits for the stream report faults of the work.
// Source: cuGraphLaunch.
func (e *GraphExec) Launch(s *Stream) error {
	return e.on("GraphExec.Launch", s, true, rt.GraphLaunch)
}

// Upload enqueues the upload of the executable to the device on s. Otherwise the first launch
// uploads it. It returns [ErrCapturing] if s captures. Source: cuGraphUpload.
func (e *GraphExec) Upload(s *Stream) error {
	return e.on("GraphExec.Upload", s, false, rt.GraphUpload)
}

// An execCall is rt.GraphLaunch or rt.GraphUpload.
type execCall func(driver.CUcontext, driver.CUgraphExec, driver.CUstream) driver.CUresult

// on enqueues a call with the executable. CUDA may have to allocate memory of the graph
// then.
func (e *GraphExec) on(op string, s *Stream, launches bool, call execCall) error {
	err := e.once(op, s, launches, call)
	if err != nil {
		err = retrying(err, func() error { return e.once(op, s, launches, call) })
	}
	return err
}

func (e *GraphExec) once(op string, s *Stream, launches bool, call execCall) error {
	c, err := e.openUnacquired(op)
	if err != nil {
		return err
	}
	sc, err := s.openUnacquired(op)
	if err != nil {
		return err
	}
	err = untilAllocated(op, func() error { return c.enqueue(op, sc, unacquired, launches, call) })
	runtime.KeepAlive(e) // as neither is acquired
	runtime.KeepAlive(s)
	return err
}

// untilAllocated repeats a launch while it returns lifetime.ErrLater: see allocating.
func untilAllocated(op string, launch func() error) error {
	for nap := admit.ShortNap; ; nap = nap.Take() {
		err := launch()
		switch {
		case err != lifetime.ErrLater:
			return err
		case rt.InCallback():
			return &Error{Op: op, Err: ErrInCallback}
		}
	}
}

// launch launches the executable on s, which are both acquired.
func (e *execCore) launch(op string, s *streamCore) error {
	return reclaiming(func() error {
		return untilAllocated(op, func() error {
			return e.enqueue(op, s, 0, true, rt.GraphLaunch)
		})
	})
}

// openUnacquired returns an open executable, without acquiring it: its lock keeps it from being destroyed, once
// the call has it. Until then the caller keeps e reachable.
func (e *GraphExec) openUnacquired(op string) (*execCore, error) {
	if e == nil || e.core == nil || e.core.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return e.core, nil
}

// enqueue admits call on the stream and makes it. flags tells whether the executable and the stream are
// unacquired. It returns lifetime.ErrLater if another call uses the closed stream of a release that the launch
// has to wait for: try again.
func (e *execCore) enqueue(op string, s *streamCore, flags admitFlags, launches bool, call execCall) (err error) {
	a := admission{op: op, stream: s, flags: enqueues | flags, places: e.work, while: &e.Handle}
	if err := a.admit(); err != nil {
		return err
	}
	slot := executables.Slot(s.number)
	if a.capture != nil {
		err = &Error{Op: op, Err: ErrCapturing}
	} else if err = e.enter(op, slot); err == nil {
		err = e.admitted(op, s, launches, call)
		e.leave(slot)
	}
	a.leave(err == nil) // not deferred, which takes longer
	return err
}

// admitted makes the call on s with the executable locked and its gate entered.
func (e *execCore) admitted(op string, s *streamCore, launches bool, call execCall) error {
	if !e.use(s) {
		return &Error{Op: op, Err: ErrClosed}
	}
	if err := e.unrevoked(op); err != nil {
		return err
	}
	e.note(s)
	// The context is current even where the handles suffice: while a profiler records, CUDA
	// crashes without one.
	if !launches || len(e.allocs) == 0 && len(e.freed) == 0 {
		return check(op, call(s.ctx.raw, e.raw, s.raw))
	}
	return e.allocating(op, s, func() driver.CUresult { return call(s.ctx.raw, e.raw, s.raw) })
}

// allocating makes a launch on s that allocates or frees memory, after releases of what the one
// before has allocated. mu of both is held. It returns lifetime.ErrLater while another call uses the closed
// stream of such a release.
func (e *execCore) allocating(op string, s *streamCore, launch func() driver.CUresult) error {
	locked := 0
	defer func() {
		for _, p := range e.places[:locked] {
			p.mu.Unlock()
		}
	}()
	for _, p := range e.places { // or the notes of two launches could come in another order than these
		if err := lock(op, p.mu.Second()); err != nil {
			return err
		}
		locked++
		switch code := p.afterFree(s); code {
		case 0:
		case driver.CUDA_ERROR_NOT_READY:
			return lifetime.ErrLater
		default:
			return check(op, code)
		}
	}
	if err := e.balanced(op); err != nil {
		return err
	}
	code := launch()
	if code == 0 {
		e.launched()
	}
	return check(op, code)
}

// balanced returns an error if the launch would allocate memory that is still allocated, or free
// memory that is not. CUDA returns the same code, but crashes while a profiler records. The places
// of the memory are locked.
func (e *execCore) balanced(op string) error {
	for _, b := range e.allocs {
		if b.graph.place.present.Load() != nil && !e.autoFree {
			return refuse(op, driver.CUDA_ERROR_INVALID_VALUE, "the memory that an earlier launch has allocated is not freed: see AddAlloc")
		}
	}
	for _, b := range e.takes {
		if !b.graph.present() {
			return refuse(op, driver.CUDA_ERROR_INVALID_VALUE, "the memory that the graph frees is not allocated: launch the graph that allocates it before")
		}
	}
	return nil
}

// setMemory notes which memory the nodes of the graph allocate, and which they free. mu is held.
func (e *execCore) setMemory(allocs, freed []*block) {
	e.takes = slices.DeleteFunc(slices.Clone(freed), func(b *block) bool { return slices.Contains(allocs, b) })
	e.allocs, e.freed, e.places = left(allocs), freed, nil
	for _, b := range slices.Concat(e.allocs, freed) {
		e.places = append(e.places, b.graph.place)
	}
	slices.SortFunc(e.places, func(a, b *graphPlace) int { return cmp.Compare(a.number, b.number) })
	e.places = slices.Compact(e.places)
}

// launched notes that a launch has allocated and freed its memory, whose places are locked. mu
// is held.
func (e *execCore) launched() {
	for _, b := range e.allocs {
		b.graph.place.forgetFree()
		b.graph.appear()
	}
	for _, b := range e.freed {
		b.graph.vanish()
	}
}

// enter locks the executable for a call until leave.
func (e *execCore) enter(op string, s *admit.Slot) error {
	if err := lock(op, &e.mu); err != nil {
		return err
	}
	err := s.Enter(&executables)
	if err != nil {
		e.mu.Unlock()
	}
	return wrap(op, err)
}

func (e *execCore) leave(s *admit.Slot) {
	s.Leave()
	e.mu.Unlock()
}

// use records s as a user of the executable, and reports whether that is open, or acquired by a
// call that waited. mu of both is held, that of s until the launch is enqueued. So the launch need
// not acquire the executable: Close sets the closed bit, and then Destroy marks the work of every
// user, for which it locks the user. Either it finds s among them, and waits for the launch, or use
// finds the executable closed.
func (e *execCore) use(s *streamCore) bool {
	if e.latest != s {
		e.launches.note(s)
	}
	return !e.Over()
}

// note records s as a user of the objects that a launch uses. mu of both is held.
func (e *execCore) note(s *streamCore) {
	if e.latest == s {
		return
	}
	e.latest = s
	e.launches.note(s)
	if _, ok := e.known[s]; ok {
		return
	}
	if e.known == nil || len(e.known) > 64 {
		e.known = map[*streamCore]struct{}{}
	}
	e.known[s] = struct{}{}
	e.kept.noteAll(s)
}
