package safe

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// GraphExec is an instantiated graph, which can be launched any number of times. Any number of goroutines may use it at
// once. Its launches run one after another, even on different streams.
type GraphExec struct {
	core    *execCore
	cleanup lifetime.Cleanup
}

type execCore struct {
	lifetime.Handle
	ctx      *contextCore
	raw      driver.CUgraphExec
	launches streamUses
	last     pendingWork // the latest launches
	destroys admit.Destruction

	source    *graphCore
	autoFree  bool            // a launch frees what the one before has left allocated
	allocs    []*block        // that a launch allocates and leaves allocated, unless it frees it
	addresses []*graphAddress // of allocs and freed, each once, in order
	freed     []*block        // that nodes of a launch free
	takes     []*block        // those of freed that another graph allocates
	single    bool            // CUDA allows its graph one executable at a time, as it allocates or frees memory
	places    int             // operations that a launch adds to a stream's queue

	mu      admit.Mutex[admit.ExecRank] // one thread at a time may use an executable
	kept    *graphRetained
	known   map[*streamCore]struct{} // streams that the buffers know as their users
	latest  *streamCore              // the latest of known
	retired []releaser               // used by launches so far, not by later ones

	revocations int64 // of the process, when revoked was computed
	revoked     error // see unrevoked
}

// A releaser is a retained or a graphRetained.
type releaser interface{ release() }

// InstantiateOptions are the options of [Graph.InstantiateWith].
type InstantiateOptions struct {
	// AutoFreeOnLaunch makes each launch first free memory that the previous launch allocated and
	// nothing freed: see [AddAlloc]. Without it, CUDA refuses to launch while that memory is
	// allocated.
	AutoFreeOnLaunch bool
	// DeviceLaunch lets kernels launch the executable, too. It requires a driver for CUDA
	// 12.0 and a graph of kernel, copy, fill and child nodes only.
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

// Instantiate creates an executable of the graph in its present state: later changes of the graph do not affect it.
// From drivers for CUDA 12.0 on, if CUDA refuses, the error's Detail gives the reason and the node. It returns
// [ErrConditional] if the graph has conditional nodes and was instantiated before, [ErrNotSupported] if the graph
// allocates memory and has an executable that is open, and [ErrInvalidArgument] for a graph inside a node. Source:
// cuGraphInstantiateWithParams, before CUDA 12.0 cuGraphInstantiateWithFlags.
func (g *Graph) Instantiate() (*GraphExec, error) {
	return g.InstantiateWith(InstantiateOptions{})
}

// InstantiateWith creates an executable of the graph with options: see [Graph.Instantiate].
func (g *Graph) InstantiateWith(o InstantiateOptions) (*GraphExec, error) {
	const op = "Graph.Instantiate"
	c, err := g.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return c.executable(op, o)
}

func (g *graphCore) executable(op string, o InstantiateOptions) (*GraphExec, error) {
	e := &execCore{}
	if err := reclaiming(func() error { return e.make(op, g, o.flags()) }); err != nil {
		return nil, err
	}
	if err := e.Open(e, &e.ctx.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, e.Destroy(true)))
	}
	u := &GraphExec{core: e}
	u.cleanup.Watch(&e.Handle)
	return u, nil
}

// make makes e an executable of a graph, which is acquired.
func (e *execCore) make(op string, c *graphCore, flags driver.CUgraphInstantiate_flags) error {
	if err := lock(op, c.mu); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if err := c.settled(op); err != nil {
		return err
	}
	if c.parent != nil {
		return refuse(op, ErrInvalidArgument, "the graph is inside a node of another; instantiate that one")
	}
	if c.conditional && c.executed {
		return refuse(op, ErrConditional, "such a graph can be instantiated only once")
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	allocs, freed := c.kept.memory()
	e.single = len(allocs)+len(freed) > 0
	err := executables.Serialize(func() error { return e.instantiate(op, c, left(slices.Clone(allocs)), flags) })
	if err = c.oneExecutable(op, err); err != nil {
		return wrap(op, err)
	}
	e.ctx, e.kept, e.source, c.executed = c.ctx, c.kept.share(), c, true
	e.setMemory(allocs, freed)
	return nil
}

// instantiate instantiates a graph whose launches leave allocs allocated.
func (e *execCore) instantiate(op string, g *graphCore, allocs []*block, flags driver.CUgraphInstantiate_flags) error {
	if slices.ContainsFunc(allocs, func(b *block) bool { return b.graph.home != nil }) {
		flags |= driver.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
	}
	e.autoFree = flags&driver.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH != 0
	i := rt.Instantiation{Home: g.ctx.home(), Graph: g.raw, Flags: uint64(flags)}
	i.CallContext = g.ctx.raw
	code := i.Do()
	e.raw, e.places = i.Exec, graphPlaces(&i)
	if code == 0 || i.Result == driver.CUDA_GRAPH_INSTANTIATE_SUCCESS {
		return check(op, code)
	}
	detail := i.Result.String()
	if i.Failed != 0 {
		var n Node
		err := g.ctx.withCurrent(func() (err error) {
			n, err = g.node(i.Failed)
			return err
		})
		if err == nil {
			detail += fmt.Sprint(" at ", n)
		}
	}
	return refuse(op, code, "%s", detail)
}

// graphPlaces returns how much a launch of the graph counts in a stream's queue. A graph in a
// node may have any number of nodes.
func graphPlaces(i *rt.Instantiation) int {
	if i.Graphs > 0 {
		return mostOfCall
	}
	return int(min(i.Nodes-i.Kernels, mostOfCall-1)) + 1
}

func (e *execCore) Kind() string { return "GraphExec" }

// Destroy destroys the executable once its last launch is over, and releases the objects that
// its launches used. CUDA would defer the destruction itself, but might then destroy it while
// another executable is launched.
func (e *execCore) Destroy(wait bool) error {
	if !e.last.over(&e.launches, false) {
		return lifetime.ErrLater
	}
	err := executables.Destroy(wait, e.destroy)
	if !lifetime.Postponed(err) {
		e.kept.release()
	}
	return err
}

// destroy destroys the executable with its graph locked: the two share parts.
func (e *execCore) destroy(wait, inTurn bool) error {
	destroy := func() error {
		return released("GraphExec.Close", e.ctx.home().DestroyExec(e.raw))
	}
	switch {
	case wait && !inTurn && e.single: // or the graph could not be instantiated after Close
		e.source.mu.Lock()
	case !patiently(wait, e.source.mu.TryLock): // who has it may wait for the turn
		return lifetime.ErrLater
	}
	defer e.source.mu.Unlock()
	if inTurn {
		return e.destroys.TryInTurn(&executables, destroy)
	}
	return e.destroys.Try(&executables, false, destroy)
}

func (e *GraphExec) acquire(op string) (*execCore, error) {
	if e == nil || e.core == nil || !e.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return e.core, nil
}

// Close destroys the executable once its launches have completed, without waiting for them. Then it releases the
// objects that they use. Closing again does nothing. Source: cuGraphExecDestroy.
func (e *GraphExec) Close() error {
	if e == nil || e.core == nil {
		return nil
	}
	e.cleanup.Stop()
	return e.core.Close()
}

// Raw returns the executable's handle for calls to package driver, or 0 once it is closed.
// Only one thread at a time may use the handle.
func (e *GraphExec) Raw() driver.CUgraphExec {
	if e == nil || e.core == nil || e.core.Closed() {
		return 0
	}
	return e.core.raw
}

// UpdateError is the reason why [GraphExec.Update] failed.
type UpdateError struct {
	Result driver.CUgraphExecUpdateResult
	Node   Node // the node that differs, of the graph or of one inside its nodes; the zero Node if there is none
	From   Node // if an edge to Node differs, the node that it comes from
}

func (e *UpdateError) Error() string {
	text := e.Result.String()
	if e.Node.raw != 0 {
		text += fmt.Sprintf(" at %v", e.Node)
	}
	if e.From.raw != 0 {
		text += fmt.Sprintf(", an edge from %v", e.From)
	}
	if why := updateReasons[e.Result]; why != "" {
		text += ": " + why
	}
	return text
}

// updateReasons say in words what a result says.
var updateReasons = map[driver.CUgraphExecUpdateResult]string{
	driver.CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED:            "the graphs differ in the number of nodes or in their edges, so instantiate the new graph",
	driver.CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED:           "the nodes are of different types, so instantiate the new graph",
	driver.CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED:            "the kernel is another, so instantiate the new graph",
	driver.CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED:          "a parameter differs that cannot change in an executable, so instantiate the new graph",
	driver.CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED:               "nodes of this type cannot be updated, so instantiate the new graph",
	driver.CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE: "the kernel is one that cannot replace the other, so instantiate the new graph",
	driver.CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED:          "a launch attribute differs that cannot change in an executable, so instantiate the new graph",
}

// Unwrap returns driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE.
func (e *UpdateError) Unwrap() error { return driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE }

// Update changes the parameters of all nodes of the executable to those of g, which must have the
// same nodes and edges: it is cheaper than a new [Graph.Instantiate]. It affects later launches;
// the objects that launches in progress use stay retained until they have completed. If g differs
// in more than CUDA can update, the error wraps an [*UpdateError] and the executable is
// unchanged. Work captured on a stream of another green context, or of none, is such a
// difference. Source: cuGraphExecUpdate.
func (e *GraphExec) Update(g *Graph) error {
	const op = "GraphExec.Update"
	c, err := e.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return g.whole(op, func(g *graphCore) error {
		if err := c.enter(op, executables.Slot(0)); err != nil {
			return err
		}
		defer c.leave(executables.Slot(0))
		if err := c.update(g); err != nil {
			return err
		}
		before := c.kept
		c.kept = g.keptByCopy()
		allocs, freed := c.kept.memory()
		c.setMemory(allocs, freed)
		if c.kept.same(before) {
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
	u := &UpdateError{Result: info.Result, Node: g.find(info.ErrorNode), From: g.find(info.ErrorFromNode)}
	return &Error{Op: "GraphExec.Update", Code: driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, Err: u}
}

// changed releases what launches so far may use once they have completed. mu is held.
func (e *execCore) changed(before releaser) {
	e.forgetUsers()
	e.retired = append(e.retired, before)
	if len(e.retired) == 1 {
		lifetime.Reaper.Add(e.retire)
	}
}

// replaced notes that nodes retain something else than before, which may be nil. mu is held.
func (e *execCore) replaced(before *retained) {
	if before == nil {
		e.forgetUsers()
	} else {
		e.changed(before)
	}
}

// forgetUsers has the next launch on each stream record that as a user of all buffers, and
// look for revoked resources.
func (e *execCore) forgetUsers() { e.known, e.latest, e.revocations = nil, nil, 0 }

// retire starts the release of the objects retired so far.
func (e *execCore) retire() (again bool) {
	if !e.mu.TryLock() { // its holder may be waiting for room in a stream's queue
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

// String describes the executable for messages.
func (e *GraphExec) String() string {
	if e == nil || e.core == nil {
		return neverOpened("GraphExec")
	}
	return handleText("GraphExec", e.core.raw, e.core.ctx.device, e.core.Closed())
}

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
	a := admission{op: op, stream: s, flags: enqueues | flags, places: e.places, while: &e.Handle}
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
		for _, p := range e.addresses[:locked] {
			p.mu.Unlock()
		}
	}()
	for _, p := range e.addresses { // or the notes of two launches could come in another order than these
		if err := lock(op, &p.mu); err != nil {
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
// memory that is not. CUDA returns the same code, but crashes while a profiler records. The addresses
// are locked.
func (e *execCore) balanced(op string) error {
	for _, b := range e.allocs {
		if b.graph.address.present.Load() != nil && !e.autoFree {
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
	own := make(map[*block]bool, len(allocs))
	for _, b := range allocs {
		own[b] = true
	}
	e.takes = slices.DeleteFunc(slices.Clone(freed), func(b *block) bool { return own[b] })
	e.allocs, e.freed, e.addresses = left(allocs), freed, nil
	for _, b := range slices.Concat(e.allocs, freed) {
		e.addresses = append(e.addresses, b.graph.address)
	}
	slices.SortFunc(e.addresses, func(a, b *graphAddress) int { return cmp.Compare(a.number, b.number) })
	e.addresses = slices.Compact(e.addresses)
}

// launched notes that a launch has allocated and freed its memory, whose addresses are locked. mu
// is held.
func (e *execCore) launched() {
	for _, b := range e.allocs {
		b.graph.address.forgetFree()
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
