package safe

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// GraphExec is a graph that can be launched. Any number of goroutines may use it
// at once; its launches run one after another.
type GraphExec struct {
	core    *execCore
	cleanup runtime.Cleanup
}

type execCore struct {
	lifetime.Handle
	ctx       *contextCore
	raw       driver.CUgraphExec
	launches  streamUses
	destroyed bool
	destroys  destruction
	err       error       // of that
	last      pendingWork // of the last launches

	source *graphCore
	work   int // that a launch adds to a stream's queue

	mu      mutex[execRank] // CUDA wants one thread at a time
	kept    *graphRetained
	known   map[*streamCore]struct{} // that the buffers know as their users
	latest  *streamCore              // one of those
	retired []releaser               // what launches so far may use, and later ones do not
}

// A dropper is a keepsake, or holdings.
type releaser interface{ release() }

// InstantiateOptions are the options of [Graph.InstantiateWith].
type InstantiateOptions struct {
	// AutoFreeOnLaunch frees memory that the graph allocated and did not free before the
	// executable is launched again, which CUDA refuses otherwise.
	AutoFreeOnLaunch bool
	// DeviceLaunch allows kernels to launch the executable, too. It needs a driver of CUDA
	// 12.0 and a graph whose nodes are kernels, copies, fills and child graphs.
	DeviceLaunch bool
	// UseNodePriority runs each kernel node with the priority set in its attributes,
	// instead of the priority of the stream that the executable is launched on.
	UseNodePriority bool
}

func (o InstantiateOptions) flags() (flags driver.CUgraphInstantiate_flags) {
	if o.AutoFreeOnLaunch {
		flags |= driver.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
	}
	if o.DeviceLaunch {
		flags |= driver.CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
	}
	if o.UseNodePriority {
		flags |= driver.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
	}
	return flags
}

// Instantiate makes an executable of the graph as it is now. If CUDA refuses, the
// error's Detail says why and, from CUDA 12.0 on, names the node. Source:
// cuGraphInstantiateWithParams, cuGraphInstantiateWithFlags.
func (g *Graph) Instantiate() (*GraphExec, error) {
	return g.InstantiateWith(InstantiateOptions{})
}

// InstantiateWith is [Graph.Instantiate] with options.
func (g *Graph) InstantiateWith(o InstantiateOptions) (*GraphExec, error) {
	const op = "Graph.Instantiate"
	e := &execCore{}
	err := g.change(op, func(c *graphCore) error {
		if c.of != nil {
			return refuse(op, ErrInvalidArgument, "the graph is a part of another")
		}
		if c.conditional && c.executed {
			return refuse(op, ErrConditional, "there can be one executable of it")
		}
		stripe := &executables.stripes[0]
		if err := stripe.enter(&executables); err != nil {
			return err
		}
		err := e.instantiate(op, c, o.flags())
		stripe.leave()
		if err != nil {
			return err
		}
		e.ctx, e.kept, e.source, c.executed = c.ctx, c.kept.share(), c, true
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := e.Open(e, &e.ctx.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, e.Destroy(true)))
	}
	u := &GraphExec{core: e}
	u.cleanup = lifetime.Cleanup(u, &e.Handle)
	return u, nil
}

func (e *execCore) instantiate(op string, g *graphCore, flags driver.CUgraphInstantiate_flags) error {
	var nodes uint64
	if err := driver.CuGraphGetNodes(g.raw, nil, &nodes); err != nil {
		return err
	}
	e.work = int(min(nodes, mostOfGraph-1)) + 1
	p := driver.CUDA_GRAPH_INSTANTIATE_PARAMS{Flags: uint64(flags)}
	err := driver.CuGraphInstantiateWithParams(&e.raw, g.raw, &p)
	if errors.Is(err, ErrNotSupported) {
		return driver.CuGraphInstantiateWithFlags(&e.raw, g.raw, uint64(flags))
	}
	var code driver.CUresult
	if err == nil || !errors.As(err, &code) || p.Result_out == driver.CUDA_GRAPH_INSTANTIATE_SUCCESS {
		return err
	}
	detail := p.Result_out.String()
	if p.HErrNode_out != 0 {
		if n, err := g.node(p.HErrNode_out); err == nil {
			detail += " at " + n.String()
		}
	}
	return refuse(op, code, "%s", detail)
}

func (e *execCore) Kind() string { return "GraphExec" }

// destroy destroys the executable, which CUDA does behind its last launch, and
// lets go what the launches use when they are over.
func (e *execCore) Destroy(bool) error {
	if !e.destroyed {
		err := e.destroys.try(func() error {
			return e.ctx.destroying("GraphExec.Close", func() error { return driver.CuGraphExecDestroy(e.raw) })
		})
		if err == lifetime.ErrLater {
			return err
		}
		e.destroyed, e.err = true, err
	}
	if !e.last.over(&e.launches, false) {
		return lifetime.ErrLater
	}
	e.kept.release()
	return e.err
}

func (e *GraphExec) acquire(op string) (*execCore, error) {
	if e == nil || e.core == nil || !e.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return e.core, nil
}

// Close destroys the executable. Launches that are under way go on, and what they
// use is kept until they are over. Closing again does nothing.
// Source: cuGraphExecDestroy.
func (e *GraphExec) Close() error {
	if e == nil || e.core == nil {
		return nil
	}
	e.cleanup.Stop()
	return e.core.Close()
}

// Raw is the executable for calls of package driver. It is 0 once that is
// closed, and to be used by one thread at a time.
func (e *GraphExec) Raw() driver.CUgraphExec {
	if e == nil || e.core == nil || e.core.Closed() {
		return 0
	}
	return e.core.raw
}

// Launch puts the work of the graph on a stream. Any context's stream will do. A
// capturing stream is [ErrCapturing]. Source: cuGraphLaunch.
func (e *GraphExec) Launch(s *Stream) error {
	return e.on("GraphExec.Launch", s, func(raw driver.CUgraphExec, stream driver.CUstream, set driver.CUcontext) driver.CUresult {
		enqueuing.enter()
		defer enqueuing.leave()
		return rt.GraphLaunch(set, raw, stream)
	})
}

// Upload puts what the first launch would prepare on the device, in the order of
// a stream. Source: cuGraphUpload.
func (e *GraphExec) Upload(s *Stream) error {
	return e.on("GraphExec.Upload", s, func(raw driver.CUgraphExec, stream driver.CUstream, set driver.CUcontext) driver.CUresult {
		return rt.GraphUpload(set, raw, stream)
	})
}

func (e *GraphExec) on(op string, s *Stream, call func(driver.CUgraphExec, driver.CUstream, driver.CUcontext) driver.CUresult) error {
	c, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	sc, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer sc.Release()
	capture, err := sc.enterWork(op, c.work)
	if err != nil {
		return err
	}
	defer sc.leaveWork(capture)
	if capture != nil {
		return &Error{Op: op, Err: ErrCapturing}
	}
	if err := c.enter(op, executables.stripe(sc)); err != nil {
		return err
	}
	defer c.leave(executables.stripe(sc))
	c.note(sc)
	return check(op, call(c.raw, sc.raw, sc.callContext))
}

// enter locks the executable for a call until leave.
func (e *execCore) enter(op string, s *stripe) error {
	if e.ctx.shared.reset.Load() {
		return &Error{Op: op, Err: ErrReset}
	}
	if err := lock(op, &e.mu); err != nil {
		return err
	}
	err := s.enter(&executables)
	if err != nil {
		e.mu.Unlock()
	}
	return wrap(op, err)
}

func (e *execCore) leave(s *stripe) {
	s.leave()
	e.mu.Unlock()
}

// note has everything know that a launch on s uses it. Both mu are held.
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

// UpdateError says why an executable cannot be made like a graph.
type UpdateError struct {
	Result driver.CUgraphExecUpdateResult
	Node   Node // of the graph; its Raw is 0 where no node is to blame
	From   Node // where an edge differs, the node of the graph that it comes from
}

func (e *UpdateError) Error() string {
	text := e.Result.String()
	if e.Node.raw != 0 {
		text += fmt.Sprintf(" at %v", e.Node)
	}
	if e.From.raw != 0 {
		text += fmt.Sprintf(", an edge from %v", e.From)
	}
	return text
}

// Unwrap returns driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE.
func (e *UpdateError) Unwrap() error { return driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE }

// Update makes the executable do what g does, which must have the same nodes and
// edges and may have other arguments. Launches that are under way are not
// changed, and what they use is kept until they are over. Where that is not
// possible the error holds an [*UpdateError], and the executable is as before.
// Source: cuGraphExecUpdate.
func (e *GraphExec) Update(g *Graph) error {
	const op = "GraphExec.Update"
	c, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return g.change(op, func(g *graphCore) error {
		if err := c.enter(op, &executables.stripes[0]); err != nil {
			return err
		}
		defer c.leave(&executables.stripes[0])
		if err := c.update(g); err != nil {
			return err
		}
		before := c.kept
		c.kept = g.kept.share()
		if c.kept.same(before) {
			c.forgetUsers() // there may be more captured by now
			before.release()
		} else {
			c.changed(before)
		}
		return nil
	})
}

func (e *execCore) update(g *graphCore) error {
	var info driver.CUgraphExecUpdateResultInfo
	err := driver.CuGraphExecUpdate(e.raw, g.raw, &info)
	if errors.Is(err, ErrNotSupported) { // before CUDA 12.0
		err = driver.CuGraphExecUpdate_v1(e.raw, g.raw, &info.ErrorNode, &info.Result)
	}
	if err == nil || !errors.Is(err, driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
		return err
	}
	u := &UpdateError{Result: info.Result}
	if info.ErrorNode != 0 {
		u.Node, _ = g.node(info.ErrorNode)
	}
	if info.ErrorFromNode != 0 {
		u.From, _ = g.node(info.ErrorFromNode)
	}
	return &Error{Op: "GraphExec.Update", Code: driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, Err: u}
}

// changed lets go what launches so far may use, when they are over. mu is held.
func (e *execCore) changed(before releaser) {
	e.forgetUsers()
	e.retired = append(e.retired, before)
	if len(e.retired) == 1 {
		lifetime.Reaper.Add(e.retire)
	}
}

// forgetUsers has the next launch on any stream tell all buffers.
func (e *execCore) forgetUsers() { e.known, e.latest = nil, nil }

// retire begins to let go what has been retired until now.
func (e *execCore) retire() (again bool) {
	if !e.mu.TryLock() { // whoever has it may be waiting for room on a stream
		return true
	}
	retired := e.retired
	e.retired = nil
	e.mu.Unlock()
	var last pendingWork
	lifetime.Reaper.Add(func() bool {
		if !last.over(&e.launches, false) {
			return true
		}
		for _, r := range retired {
			r.release()
		}
		return false
	})
	return false
}
