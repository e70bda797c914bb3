package safe

import (
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Launch enqueues the graph's work on s. It starts when the work enqueued on s before has
// completed and the previous launch of e has. s may belong to any context. Launch returns
// [ErrCapturing] if s captures; add a [ChildGraphNode] instead. Waits for the stream report
// faults of the work. Source: cuGraphLaunch.
func (e *GraphExec) Launch(s *Stream) error {
	return e.on("GraphExec.Launch", s, true, func(raw driver.CUgraphExec, stream driver.CUstream, set driver.CUcontext) driver.CUresult {
		return rt.GraphLaunch(set, raw, stream)
	})
}

// Upload enqueues on s the preparation of the executable on the device, which the first
// launch does otherwise. It returns [ErrCapturing] if s captures. Source: cuGraphUpload.
func (e *GraphExec) Upload(s *Stream) error {
	return e.on("GraphExec.Upload", s, false, func(raw driver.CUgraphExec, stream driver.CUstream, set driver.CUcontext) driver.CUresult {
		return rt.GraphUpload(set, raw, stream)
	})
}

// on enqueues a call with the executable. CUDA may have to allocate memory of the graph
// then.
func (e *GraphExec) on(op string, s *Stream, launches bool, call func(driver.CUgraphExec, driver.CUstream, driver.CUcontext) driver.CUresult) error {
	return reclaiming(func() error { return e.once(op, s, launches, call) })
}

func (e *GraphExec) once(op string, s *Stream, launches bool, call func(driver.CUgraphExec, driver.CUstream, driver.CUcontext) driver.CUresult) error {
	c, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	sc, err := s.lockable(op)
	if err != nil {
		return err
	}
	err = c.enqueue(op, sc, launches, call)
	runtime.KeepAlive(s) // as it is not acquired
	return err
}

// enqueue is GraphExec.on for an executable that is acquired, and a stream that is not.
func (e *execCore) enqueue(op string, s *streamCore, launches bool, call func(driver.CUgraphExec, driver.CUstream, driver.CUcontext) driver.CUresult) error {
	capture, err := s.enterOpen(op, e.work)
	if err != nil {
		return err
	}
	defer s.leaveWork(capture)
	if capture != nil {
		return &Error{Op: op, Err: ErrCapturing}
	}
	stripe := executables.stripe(s)
	if err := e.enter(op, stripe); err != nil {
		return err
	}
	defer e.leave(stripe)
	if err := e.unrevoked(op); err != nil {
		return err
	}
	e.note(s)
	if !launches || len(e.allocs) == 0 && len(e.freed) == 0 {
		return check(op, call(e.raw, s.raw, s.callContext))
	}
	return e.allocating(op, s, func() driver.CUresult { return call(e.raw, s.raw, s.callContext) })
}

// allocating makes a launch on s that allocates or frees memory, after releases of what the one
// before has allocated. mu of both is held.
func (e *execCore) allocating(op string, s *streamCore, launch func() driver.CUresult) error {
	locked := 0
	defer func() {
		for _, p := range e.places[:locked] {
			p.mu.Unlock()
		}
	}()
	for _, p := range e.places { // CUDA allows one executable of a graph that allocates: no other one locks them
		if err := lock(op, p.mu.second()); err != nil {
			return err
		}
		locked++
		if code := p.afterFree(s); code != 0 {
			return check(op, code)
		}
	}
	code := launch()
	if code == 0 {
		e.launched()
	}
	return check(op, code)
}

// setMemory notes which memory a launch allocates, and which its nodes free. mu is held.
func (e *execCore) setMemory(allocs, freed []*block) {
	e.allocs, e.freed, e.places = allocs, freed, nil
	listed := map[*graphPlace]struct{}{}
	for _, b := range allocs {
		if _, ok := listed[b.graph.place]; !ok {
			listed[b.graph.place] = struct{}{}
			e.places = append(e.places, b.graph.place)
		}
	}
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
func (e *execCore) enter(op string, s *stripe) error {
	if err := lock(op, &e.mu); err != nil {
		return err
	}
	err := s.enter(&executables)
	if err == nil && e.ctx.shared.reset.Load() { // not before, as a reset closes the gate
		s.leave()
		err = rt.CodeReset
	}
	if err != nil {
		e.mu.Unlock()
	}
	return wrap(op, err)
}

func (e *execCore) leave(s *stripe) {
	s.leave()
	e.mu.Unlock()
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
