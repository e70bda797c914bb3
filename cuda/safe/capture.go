package safe

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A capturing is the state that the streams of a capture share. Its lock is that of the
// graph, as CUDA allows one thread at a time to use a graph.
type capturing struct {
	lifetime.Handle                 // of the Capture
	ctx             context.Context // ends waits for calls in flight
	graph           *graphCore      // if new, raw is 0 until the end or the first added node
	given           bool            // the graph existed before
	origin          *streamCore
	mode            CaptureMode
	thread          int         // where the program calls End, 0 if it does not
	ended           atomic.Bool // cuStreamEndCapture has returned
	endless         atomic.Bool // CUDA would crash at the end: see finish

	// Guarded by the graph's lock:
	joined []*streamCore
	adding []*streamCore  // that have added nodes, by Stream.AddNode and the like
	events []*eventCore   // recorded in the capture
	gates  []*admit.Gate  // closed by the capture
	before *graphRetained // of a graph that is recaptured, until the end
	frees  []*block       // of earlier graphs that only nodes of the capture free
	over   bool
}

// join adds s, which waits for captured work, to the capture's streams. The graph is
// locked, and s is claimed.
func (c *capturing) join(s *streamCore, gates []*admit.Gate) {
	s.Retain() // until the end: destroying the stream would invalidate the capture
	c.joined = append(c.joined, s)
	c.gates = append(c.gates, gates...)
	c.retainsGreen(s)
}

// retainsEvent retains an event until the end: destroying it would affect the capture.
// The graph is locked.
func (c *capturing) retainsEvent(e *eventCore) {
	e.Retain()
	c.events = append(c.events, e)
}

// retainsAcquired retains an object that the caller has acquired.
func (c *capturing) retainsAcquired(h *lifetime.Handle) {
	if c != nil {
		c.retain(h)
	}
}

// retains retains an object for captured work, even one that was dropped since the call
// began. Without a capture it does nothing and returns true.
func (c *capturing) retains(h *lifetime.Handle) bool { return c == nil || c.retain(h) }

// retain retains an object. The graph is locked, so nothing else adds objects meanwhile, and
// most calls find theirs without another lock.
func (c *capturing) retain(h *lifetime.Handle) bool {
	k := c.graph.kept.captured
	return k.has(h) || k.retain(h, h.TryRetain)
}

// retainsGreen retains the green context of s, on which captured work of s will run. The
// graph is locked, and the caller has acquired s.
func (c *capturing) retainsGreen(s *streamCore) {
	if g := s.green; g != nil {
		c.retain(&g.Handle)
	}
}

// A Capture is a capture in progress: work enqueued on its stream, and on streams that
// wait for that work by events, becomes a graph. See [Stream.BeginCapture].
type Capture struct {
	c       *capturing
	into    *Graph // nil for a new graph
	cleanup lifetime.Cleanup
}

// Capture calls f and returns a graph of the work that f enqueues on the stream. The graph
// includes the work of other streams that join: each of them waits for captured work by an event,
// and before f returns the stream must wait for their work in the same way. The work does not run
// yet. The goroutine stays on its thread during f.
//
// The graph and its executables retain the buffers, modules, events and Go functions of
// the captured work. No call of this package invalidates a capture: calls that cannot be
// captured return [ErrCapturing]. The mode is [CaptureThreadLocal];
// [Stream.CaptureWith] takes others.
//
// To add nodes that calls on streams cannot express, such as loops, see [Stream.AddNode]
// and [Stream.AddWhile].
//
// If f returns an error, panics or ends its goroutine, Capture ends the capture and
// returns no graph. Source: cuStreamBeginCapture, cuStreamEndCapture.
func (s *Stream) Capture(f func() error) (*Graph, error) {
	return s.CaptureWith(context.Background(), CaptureOptions{}, f)
}

// CaptureWith captures as [Stream.Capture] does, with options and a limit to its waits. Before a capture begins, it
// waits for calls in flight that it would disturb: launches on a stream whose queue is full, [Context.Synchronize],
// and, if the stream is a blocking one, calls on the legacy default stream. If ctx ends during this wait, CaptureWith
// returns its cause. ctx also limits the wait of [Stream.WaitEvent] on a stream that is about to join, and otherwise
// has no effect on a capture that has begun.
func (s *Stream) CaptureWith(ctx context.Context, o CaptureOptions, f func() error) (*Graph, error) {
	g, err := s.captureFunc(ctx, "Stream.Capture", o.Mode, nil, f)
	if err != nil {
		return nil, err
	}
	return g.user(), nil
}

// CaptureTo calls f and adds the work that f enqueues on the stream to an existing graph, as [Stream.Capture] does to a
// new one. The first captured work depends on o.Dependencies. If the capture fails, CUDA destroys the graph, and its
// methods then return [ErrGraphLost]. If f itself returns an error, the work captured before stays in the graph. It
// needs a driver for CUDA 12.3. Source: cuStreamBeginCaptureToGraph.
func (s *Stream) CaptureTo(g *Graph, o CaptureToOptions, f func() error) error {
	_, err := s.captureFunc(context.Background(), "Stream.CaptureTo", o.Mode, o.target(g), f)
	return err
}

// Recapture captures the work of g again with other arguments, which replace the arguments in g. f must enqueue the
// same kinds of work in the same order, with the same dependencies. Then call [GraphExec.Update] with g to change its
// executables. If the work differs in anything else, or if the capture fails, the methods of g return [ErrGraphLost]. g
// must not be a child of another graph. It returns [ErrNotSupported] with a driver before CUDA 13.3. Source:
// cuStreamBeginRecaptureToGraph, without a callback.
func (s *Stream) Recapture(g *Graph, o CaptureOptions, f func() error) error {
	_, err := s.captureFunc(context.Background(), "Stream.Recapture", o.Mode, &target{graph: g, again: true}, f)
	return err
}

// target is the graph to capture into.
type target struct {
	graph *Graph
	deps  []Node
	data  []driver.CUgraphEdgeData
	again bool // its nodes get new arguments
}

func (s *Stream) captureFunc(ctx context.Context, op string, mode CaptureMode, into *target, f func() error) (g *graphCore, err error) {
	if f == nil {
		return nil, noFunction(op)
	}
	c, err := s.begin(ctx, op, mode, into, false)
	if err != nil {
		return nil, err
	}
	completed := false
	defer func() {
		made, open, ended := c.endAll(op)
		if open {
			err = errors.Join(err, refuse(op, ErrCapturing, "the function returned during a capture into a body of its graph"))
		}
		if completed && err == nil {
			g, err = made, ended
			return
		}
		if made != nil && into == nil {
			c.c.discard()
			made.Close()
		}
		if ended != nil && (into != nil || c.c.endless.Load()) {
			err = errors.Join(err, ended) // the graph is lost, or the stream
		}
	}()
	err = f()
	completed = true
	return nil, err
}

// CaptureExecutable captures as [Stream.Capture] does, and instantiates the graph: see [Graph.Instantiate].
func (s *Stream) CaptureExecutable(f func() error) (*GraphExec, error) {
	const op = "Stream.CaptureExecutable"
	g, err := s.captureFunc(context.Background(), op, CaptureThreadLocal, nil, f)
	if err != nil {
		return nil, err
	}
	e, err := g.executable(op, InstantiateOptions{})
	if err := g.Close(); err != nil {
		lifetime.Report(err)
	}
	return e, err
}

// BeginCapture begins a capture that lasts until [Capture.End]. The goroutine stays on its thread until then and must
// call End itself, except in [CaptureRelaxed]: see [Stream.BeginCaptureWith]. Prefer [Stream.Capture], which cannot
// leave a capture open.
//
// If the program drops a Capture without End, the garbage collector ends the capture, on any thread. Unless the mode is
// relaxed, CUDA then destroys the graph, even an existing graph that was captured into. The goroutine stays on its
// thread. See also [TrackLeaks].
func (s *Stream) BeginCapture() (*Capture, error) {
	return s.BeginCaptureWith(context.Background(), CaptureOptions{})
}

// BeginCaptureWith begins a capture with options, as [Stream.BeginCapture] does. ctx limits its wait: see
// [Stream.CaptureWith].
func (s *Stream) BeginCaptureWith(ctx context.Context, o CaptureOptions) (*Capture, error) {
	return s.begin(ctx, "Stream.BeginCapture", o.Mode, nil, true)
}

// BeginCaptureTo begins a capture into an existing graph, which lasts until [Capture.End]: see [Stream.CaptureTo] for
// the graph, and [Stream.BeginCapture] for the goroutine.
func (s *Stream) BeginCaptureTo(g *Graph, o CaptureToOptions) (*Capture, error) {
	return s.begin(context.Background(), "Stream.BeginCaptureTo", o.Mode, o.target(g), true)
}

// begin begins a capture. handed says that the program gets the Capture: it calls End, or drops it
// and the garbage collector ends the capture.
func (s *Stream) begin(ctx context.Context, op string, mode CaptureMode, into *target, handed bool) (*Capture, error) {
	if err := mode.check(op); err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, noContext(op)
	}
	sc, err := s.acquire(op)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	c := &capturing{ctx: ctx, origin: sc, mode: mode, given: into != nil}
	capture := &Capture{c: c}
	if handed {
		c.thread = rt.Thread()
	}
	if into == nil {
		err = c.beginNew(op)
	} else {
		capture.into = into.graph
		err = into.begin(op, c)
	}
	if err == nil {
		err = c.Open(c, nil)
	}
	if err != nil {
		runtime.UnlockOSThread()
		sc.Release()
		return nil, wrap(op, err)
	}
	if mode == CaptureRelaxed {
		runtime.UnlockOSThread()
	}
	if handed {
		capture.cleanup.Watch(&c.Handle)
	}
	return capture, nil
}

// beginNew begins a capture into a new graph, which is live from now on: the program may
// get graphs that are inside nodes of it.
func (c *capturing) beginNew(op string) error {
	s := c.origin
	g := newGraphCore(s.ctx)
	if err := g.Open(g, &s.ctx.Handle); err != nil {
		return err
	}
	c.graph = g
	err := c.begin(op, func() error {
		switch code := s.ctx.home().BeginCapture(s.raw, c.mode.raw()); code {
		case 0:
			return nil
		case rt.CodeCapturing:
			return capturedElsewhere(op)
		default:
			return code
		}
	})
	if err != nil {
		g.destroyed = true // there never was one
		g.Close()
	}
	return err
}

func capturedElsewhere(op string) error {
	return refuse(op, ErrCapturing, "the stream is in a capture that this package did not begin")
}

// begin claims the stream and begins the capture with call.
func (c *capturing) begin(op string, call func() error) error {
	s := c.origin
	switch {
	case rt.InCallback():
		return &Error{Op: op, Err: ErrInCallback}
	case s.legacy():
		return refuse(op, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy default stream cannot capture; use another stream")
	}
	gates, err := s.claim(op, c)
	if err != nil {
		return err
	}
	c.graph.mu.Lock()
	err = call()
	if err == nil {
		c.gates = gates
		top := c.graph.top()
		top.captures = append(top.captures, c)
		c.retainsGreen(s)
	}
	c.graph.mu.Unlock()
	if err != nil {
		s.disclaim(gates)
		return err
	}
	s.mu.Unlock()
	return nil
}

// begin begins a capture into the graph, and acquires the graph until the end.
func (t *target) begin(op string, c *capturing) error {
	g, err := t.graph.acquire(op)
	if err != nil {
		return err
	}
	c.graph = g
	err = c.begin(op, func() error {
		if c.origin.capturing() {
			return capturedElsewhere(op)
		}
		changeable := g.changeable
		if t.again {
			changeable = g.settled
		}
		if err := changeable(op); err != nil {
			return err
		}
		return c.origin.ctx.withCurrent(func() error { return c.intoGraph(op, t) })
	})
	if err != nil {
		g.Release()
	}
	return err
}

// intoGraph begins to capture into the graph, which is locked.
func (c *capturing) intoGraph(op string, t *target) error {
	if t.again {
		if c.graph.parent != nil {
			return refuse(op, ErrInvalidArgument, "the graph is a child of another graph")
		}
		return c.again()
	}
	deps, data, err := c.graph.dependencies(op, t.deps, t.data)
	if err != nil {
		return err
	}
	c.graph.kept.separate()
	return driver.CuStreamBeginCaptureToGraph(c.origin.raw, c.graph.raw, unsafe.SliceData(deps), unsafe.SliceData(data), uint64(len(deps)), c.mode.raw())
}

// again begins to recapture the graph. What its nodes used before stays retained until
// the end.
func (c *capturing) again() error {
	g := c.graph
	err := driver.CuStreamBeginRecaptureToGraph(c.origin.raw, c.mode.raw(), g.raw, 0, 0)
	if err == nil {
		c.before, g.kept = g.kept, g.kept.renew()
		for _, p := range g.inner {
			p.kept = g.kept
		}
	}
	return err
}

// String describes the capture for messages.
func (c *Capture) String() string {
	if c == nil || c.c == nil {
		return neverOpened("Capture")
	}
	return "Capture of " + c.c.origin.text() + closedText(c.c.ended.Load())
}

// A CaptureMode says which calls to package driver, and to other libraries, CUDA rejects during a capture because they
// could depend on captured work, such as cuMemAlloc and cuEventQuery. No mode affects calls of this package.
type CaptureMode int

const (
	// CaptureThreadLocal rejects them on the thread that captures.
	CaptureThreadLocal CaptureMode = iota
	// CaptureGlobal rejects them on every thread of the process.
	CaptureGlobal
	// CaptureRelaxed rejects none. Any goroutine may end the capture.
	CaptureRelaxed
)

func (m CaptureMode) raw() driver.CUstreamCaptureMode {
	switch m {
	case CaptureGlobal:
		return driver.CU_STREAM_CAPTURE_MODE_GLOBAL
	case CaptureRelaxed:
		return driver.CU_STREAM_CAPTURE_MODE_RELAXED
	}
	return driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
}

// check returns an error if there is no such mode.
func (m CaptureMode) check(op string) error {
	if m < CaptureThreadLocal || m > CaptureRelaxed {
		return refuse(op, ErrInvalidArgument, "capture mode %d does not exist", m)
	}
	return nil
}

// CaptureOptions are the options of [Stream.CaptureWith].
type CaptureOptions struct {
	Mode CaptureMode
}

// CaptureToOptions are the options of [Stream.CaptureTo].
type CaptureToOptions struct {
	Mode CaptureMode
	// Dependencies are nodes of the graph that the first captured work depends on.
	Dependencies []Node
	// EdgeData is the data of the edges from Dependencies, one each; nil for plain edges.
	EdgeData []driver.CUgraphEdgeData
}

func (o CaptureToOptions) target(g *Graph) *target {
	return &target{graph: g, deps: o.Dependencies, data: o.EdgeData}
}

// WithCaptureMode calls f with another capture mode for its thread. The mode decides which calls
// of package driver and of other libraries CUDA rejects in f, and which captures of other threads
// such calls invalidate. It does not affect calls of this package. The goroutine stays on its
// thread during f. WithCaptureMode restores the previous mode even if f panics. Source:
// cuThreadExchangeStreamCaptureMode.
func WithCaptureMode(mode CaptureMode, f func() error) error {
	const op = "WithCaptureMode"
	if err := mode.check(op); err != nil {
		return err
	}
	if f == nil {
		return noFunction(op)
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	if err := initialize(); err != nil {
		return wrap(op, err)
	}
	return inMode(op, mode, f)
}

// inMode calls f in a capture mode of the thread, to which it locks the goroutine.
func inMode(op string, mode CaptureMode, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	raw := mode.raw()
	if err := driver.CuThreadExchangeStreamCaptureMode(&raw); err != nil {
		return wrap(op, err)
	}
	defer driver.CuThreadExchangeStreamCaptureMode(&raw)
	return f()
}
