package safe

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A capturing is the state that the streams of a capture share. Its lock is that of the
// graph, as CUDA allows one thread at a time to use a graph.
type capturing struct {
	ctx    context.Context // ends waits for calls in flight
	graph  *graphCore      // raw is 0 until the end if the graph is new
	origin *streamCore
	mode   CaptureMode
	thread int
	ended  atomic.Bool // cuStreamEndCapture has returned

	// Guarded by the graph's lock:
	joined []*streamCore
	events []*eventCore   // recorded in the capture
	gates  []*gate        // closed by the capture
	before *graphRetained // of a graph that is recaptured, until the end
	over   bool
}

// join adds s, which waits for captured work, to the capture's streams. The graph is
// locked, and s is claimed.
func (c *capturing) join(s *streamCore, gates []*gate) {
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
		c.graph.kept.captured.retain(h, h.TryRetain)
	}
}

// retains retains an object for captured work, even one that was dropped since the call
// began. Without a capture it does nothing and returns true.
func (c *capturing) retains(h *lifetime.Handle) bool {
	return c == nil || c.graph.kept.captured.retain(h, h.TryRetain)
}

// retainsGreen retains the green context of s, on which captured work of s will run. The
// graph is locked, and the caller has acquired s.
func (c *capturing) retainsGreen(s *streamCore) {
	if g := s.green; g != nil {
		c.graph.kept.captured.retain(&g.Handle, g.TryRetain)
	}
}

// A Capture is a capture in progress: work enqueued on its stream, and on streams that
// wait for that work by events, becomes a graph. See [Stream.BeginCapture].
type Capture struct {
	c    *capturing
	into *Graph // nil for a new graph
}

// Capture calls f and returns a graph of the work that f enqueues on the stream. The
// graph includes the work of other streams that join: each waits for captured work by an
// event, and the stream in turn must wait for theirs before f returns. The work does not
// run yet. The goroutine stays on its thread during f.
//
// The graph and its executables retain the buffers, modules, events and Go functions of
// the captured work. No call of this package invalidates a capture: calls that cannot be
// captured return [ErrCapturing]. The mode is [CaptureThreadLocal];
// [Stream.CaptureContext] takes others.
//
// If f returns an error, panics or ends its goroutine, Capture ends the capture and
// returns no graph. Source: cuStreamBeginCapture, cuStreamEndCapture.
func (s *Stream) Capture(f func() error) (*Graph, error) {
	return s.CaptureContext(context.Background(), CaptureOptions{}, f)
}

// CaptureContext is [Stream.Capture] with options and a limit to its waits. Before a
// capture begins, it waits for calls in flight that it would disturb: launches on a
// stream whose queue is full, [Context.Synchronize], and, if the stream is a blocking
// one, calls on the legacy default stream. If ctx ends during this wait, CaptureContext
// returns its cause; so does [Stream.WaitEvent] on a stream that is about to join. ctx
// has no effect on a capture that has begun.
func (s *Stream) CaptureContext(ctx context.Context, o CaptureOptions, f func() error) (*Graph, error) {
	return s.captureFunc(ctx, "Stream.Capture", o.Mode, nil, f)
}

// CaptureTo is [Stream.Capture] into an existing graph: the first captured work depends
// on o.Dependencies. If the capture fails, CUDA destroys the graph, and its methods then
// return [ErrGraphLost]. If f itself returns an error, the work captured before stays in
// the graph. It needs a driver for CUDA 12.3. Source: cuStreamBeginCaptureToGraph.
func (s *Stream) CaptureTo(g *Graph, o CaptureToOptions, f func() error) error {
	_, err := s.captureFunc(context.Background(), "Stream.CaptureTo", o.Mode, o.target(g), f)
	return err
}

// Recapture captures the work of g once more with other arguments, which replace those in
// g. f must enqueue the same kinds of work in the same order, with the same dependencies.
// Then call [GraphExec.Update] with g to change its executables. If the work differs
// otherwise, or the capture fails, the methods of g return [ErrGraphLost]. g must not be
// a child of another graph. It returns [ErrNotSupported] with a driver before CUDA 13.3.
// Source: cuStreamBeginRecaptureToGraph, without a callback.
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

func (s *Stream) captureFunc(ctx context.Context, op string, mode CaptureMode, into *target, f func() error) (g *Graph, err error) {
	c, err := s.begin(ctx, op, mode, into)
	if err != nil {
		return nil, err
	}
	completed := false
	defer func() {
		made, ended := c.end(op)
		if completed && err == nil {
			g, err = made, ended
			return
		}
		if made != nil && into == nil {
			made.Close()
		}
		if into != nil && ended != nil {
			err = errors.Join(err, ended) // the graph is lost
		}
	}()
	err = f()
	completed = true
	return nil, err
}

// CaptureExecutable is [Stream.Capture] followed by [Graph.Instantiate].
func (s *Stream) CaptureExecutable(f func() error) (*GraphExec, error) {
	const op = "Stream.CaptureExecutable"
	g, err := s.captureFunc(context.Background(), op, CaptureThreadLocal, nil, f)
	if err != nil {
		return nil, err
	}
	e, err := g.Instantiate()
	if err := g.Close(); err != nil {
		lifetime.ReportLater(err)
	}
	return e, wrap(op, err)
}

// BeginCapture begins a capture that lasts until [Capture.End]. The goroutine stays on
// its thread until then and must call End itself, except in [CaptureRelaxed]: see
// [Stream.BeginCaptureContext]. Prefer [Stream.Capture], which cannot leave a capture
// open.
func (s *Stream) BeginCapture() (*Capture, error) {
	return s.BeginCaptureContext(context.Background(), CaptureOptions{})
}

// BeginCaptureContext is [Stream.BeginCapture] with options. ctx limits its wait: see
// [Stream.CaptureContext].
func (s *Stream) BeginCaptureContext(ctx context.Context, o CaptureOptions) (*Capture, error) {
	return s.begin(ctx, "Stream.BeginCapture", o.Mode, nil)
}

// BeginCaptureTo begins a capture into an existing graph that lasts until [Capture.End]:
// see [Stream.CaptureTo].
func (s *Stream) BeginCaptureTo(g *Graph, o CaptureToOptions) (*Capture, error) {
	return s.begin(context.Background(), "Stream.BeginCaptureTo", o.Mode, o.target(g))
}

func (s *Stream) begin(ctx context.Context, op string, mode CaptureMode, into *target) (*Capture, error) {
	if err := mode.check(op); err != nil {
		return nil, err
	}
	sc, err := s.acquire(op)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	c := &capturing{ctx: ctx, origin: sc, mode: mode, thread: rt.Thread()}
	capture := &Capture{c: c}
	if into == nil {
		c.graph = newGraphCore(sc.ctx)
		err = c.begin(op, func() error { return driver.CuStreamBeginCapture(sc.raw, mode.raw()) })
	} else {
		capture.into = into.graph
		err = into.begin(op, c)
	}
	if err != nil {
		runtime.UnlockOSThread()
		sc.Release()
		return nil, wrap(op, err)
	}
	if mode == CaptureRelaxed {
		runtime.UnlockOSThread()
	}
	return capture, nil
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
	if s.capturing() {
		s.disclaim(gates)
		return refuse(op, ErrCapturing, "the stream is in a capture that this package did not begin")
	}
	c.graph.mu.Lock()
	err = s.ctx.withCurrent(call)
	if err == nil {
		c.gates = gates
		c.graph.top().capturing = true
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
		if err := g.changeable(op); err != nil {
			return err
		}
		return c.intoGraph(op, t)
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

// End ends the capture and returns the graph: a new one, or the one captured into. If
// CUDA has invalidated the capture, the error says why:
// driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED if the stream does not wait for a stream that
// joined, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED after a call that captures do not
// allow. Unless the mode is relaxed, End returns [ErrWrongThread] on another thread than
// the one that began the capture, which then goes on. Source: cuStreamEndCapture.
func (c *Capture) End() (*Graph, error) { return c.end("Capture.End") }

func (c *Capture) end(op string) (*Graph, error) {
	if c == nil || c.c == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	if rt.InCallback() {
		return nil, &Error{Op: op, Err: ErrInCallback}
	}
	relaxed := c.c.mode == CaptureRelaxed
	if !relaxed && rt.Thread() != c.c.thread {
		return nil, &Error{Op: op, Err: ErrWrongThread}
	}
	err := c.c.finish()
	if err == errOver {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	if !relaxed {
		runtime.UnlockOSThread()
	}
	defer c.c.origin.Release()
	g := c.c.graph
	if c.into != nil {
		g.Release()
	}
	switch {
	case err != nil && c.into == nil:
		g.kept.release()
		fallthrough
	case err != nil:
		return nil, wrap(op, err)
	case c.into != nil:
		return c.into, nil
	}
	return g.adopt(op)
}

var errOver = errors.New("the capture is over")

// finish ends the capture for all of its streams.
func (c *capturing) finish() error {
	s, g := c.origin, c.graph
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.over {
		return errOver
	}
	c.over = true
	g.top().capturing = false
	var raw driver.CUgraph
	ended := false
	end := func() error {
		ended = true
		return driver.CuStreamEndCapture(s.raw, &raw)
	}
	err := s.ctx.withCurrent(end)
	if !ended && err != rt.CodeReset { // the capture must end even if the context cannot be made current
		err = end()
	}
	if err != nil {
		g.top().lost = true
		g.top().destroyed = c.before == nil // CUDA destroys a graph that was captured into
	} else if g.raw == 0 {
		g.raw = raw // new: no other goroutine has it yet
	}
	c.release()
	if c.before != nil {
		c.before.release()
	}
	return err
}

// release releases the streams and events once the driver has ended the capture. The
// graph is locked.
func (c *capturing) release() {
	c.ended.Store(true)
	c.origin.capture.Store(nil)
	for _, s := range c.joined {
		s.capture.Store(nil)
		s.Release()
	}
	for _, e := range c.events {
		e.Release()
	}
	openAll(c.gates)
	c.joined, c.events, c.gates = nil, nil, nil
}
