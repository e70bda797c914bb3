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

// A capturing is what the streams of a capture share. Its lock is that of the
// graph, which CUDA wants to be used by one thread at a time.
type capturing struct {
	ctx    context.Context // ends waits for calls in flight
	graph  *graphCore      // whose raw is not known before the end, if it is new
	origin *streamCore
	mode   CaptureMode
	thread int
	ended  atomic.Bool // the driver's end has returned

	// With the graph locked:
	joined []*streamCore
	events []*eventCore   // that stand for its work
	gates  []*gate        // that it keeps closed
	before *graphRetained // of a graph that is captured again, till the end
	over   bool
}

// join makes s, which waits for captured work, one of the capture's streams. The
// graph is locked, and s claimed.
func (c *capturing) join(s *streamCore, gates []*gate) {
	s.Retain() // until the end: destroying it would destroy the capture
	c.joined = append(c.joined, s)
	c.gates = append(c.gates, gates...)
	c.retainsGreen(s)
}

// holds keeps an event until the end: destroying it would disturb the capture. The
// graph is locked.
func (c *capturing) retainsEvent(e *eventCore) {
	e.Retain()
	c.events = append(c.events, e)
}

// keepsMarked keeps what the caller has marked.
func (c *capturing) retainsAcquired(h *lifetime.Handle) {
	if c != nil {
		c.graph.kept.captured.retain(h, h.TryRetain)
	}
}

// keeps keeps what captured work uses, also if it was dropped since the call began;
// without a capture there is nothing to do.
func (c *capturing) retains(h *lifetime.Handle) bool {
	return c == nil || c.graph.kept.captured.retain(h, h.TryRetain)
}

// A Capture is under way: what is put on its stream, and on streams that wait for
// that by events, becomes a graph. See [Stream.BeginCapture].
type Capture struct {
	c    *capturing
	into *Graph // nil for a new one
}

// Capture calls f and returns a graph of the work that f has put on the stream,
// and on streams that wait for that work by events and that it waits for in the
// end. Nothing of it runs now. The goroutine stays on its thread meanwhile.
//
// The graph and its executables retain what was captured: buffers, modules, events,
// Go functions. Calls of this package never invalidate a capture: those that a capturing
// stream cannot do return [ErrCapturing] and leave the capture alone. The mode is
// [CaptureThreadLocal]; [Stream.CaptureContext] takes another.
//
// If f returns an error, panics or ends its goroutine, Capture ends the capture and
// returns no graph. Source: cuStreamBeginCapture, cuStreamEndCapture.
func (s *Stream) Capture(f func() error) (*Graph, error) {
	return s.CaptureContext(context.Background(), CaptureOptions{}, f)
}

// CaptureContext is [Stream.Capture] with an end to its waits. A capture waits for
// calls in flight that it would disturb: launches on a stream whose queue is full,
// [Context.Synchronize], and calls on the legacy default stream, where the stream is a
// blocking one. When ctx ends before, CaptureContext and [Stream.WaitEvent] of streams
// that join return its cause. Once the capture has begun, ctx ends nothing else.
func (s *Stream) CaptureContext(ctx context.Context, o CaptureOptions, f func() error) (*Graph, error) {
	return s.captureFunc(ctx, "Stream.Capture", o.Mode, nil, f)
}

// CaptureTo is [Stream.Capture] into an existing graph: the first captured work depends
// on o.Dependencies. If the capture fails, CUDA destroys the graph, and its methods then
// return [ErrGraphLost]. If f itself returns an error, the work captured before stays in
// the graph. It needs a driver of CUDA 12.3. Source: cuStreamBeginCaptureToGraph.
func (s *Stream) CaptureTo(g *Graph, o CaptureToOptions, f func() error) error {
	_, err := s.captureFunc(context.Background(), "Stream.CaptureTo", o.Mode, o.target(g), f)
	return err
}

// Recapture is [Stream.Capture] of the same work once more, with other arguments,
// which g takes over: f must put the same kinds of work in the same order, behind
// the same other work. [GraphExec.Update] with g then changes its executables. If
// the work differs otherwise, or the capture fails, g is [ErrGraphLost]. It must be no
// part of another graph. It needs a driver of CUDA 13.3. Source: cuStreamBeginRecaptureToGraph, without a callback.
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
// its thread until then and must call End itself; in [CaptureRelaxed], see
// [Stream.BeginCaptureContext], any goroutine may. [Stream.Capture] is the safer form.
func (s *Stream) BeginCapture() (*Capture, error) {
	return s.BeginCaptureContext(context.Background(), CaptureOptions{})
}

// BeginCaptureContext is [Stream.BeginCapture] with options. Its wait ends with ctx: see
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

// begin begins the capture by a call of the driver.
func (c *capturing) begin(op string, call func() error) error {
	s := c.origin
	switch {
	case rt.InCallback():
		return &Error{Op: op, Err: ErrInCallback}
	case s.legacy():
		return refuse(op, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy default stream cannot capture")
	}
	gates, err := s.claim(op, c)
	if err != nil {
		return err
	}
	if s.capturing() {
		s.disclaim(gates)
		return refuse(op, ErrCapturing, "a capture that this package did not begin is under way")
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

// begin begins a capture into the graph, which is marked until the end.
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
			return refuse(op, ErrInvalidArgument, "the graph is a part of another")
		}
		return c.again()
	}
	deps, data, err := c.graph.dependencies(op, t.deps, t.data)
	if err != nil {
		return err
	}
	return driver.CuStreamBeginCaptureToGraph(c.origin.raw, c.graph.raw, unsafe.SliceData(deps), unsafe.SliceData(data), uint64(len(deps)), c.mode.raw())
}

// again begins to capture the graph once more. What its nodes used so far is kept
// until the end.
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

// End ends the capture and returns the graph: a new one, or the one captured
// into. Why CUDA has dropped a capture is in the error: a stream that was not
// joined is driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED, a call that it forbids is
// driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED. On another thread than the one that
// began it, unless the mode is relaxed, End is [ErrWrongThread], and the capture
// goes on. Source: cuStreamEndCapture.
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
	if !ended && err != rt.CodeReset { // it must not go on, whatever keeps the context from us
		err = end()
	}
	if err != nil {
		g.top().lost = true
		g.top().destroyed = c.before == nil // a graph that was captured into, by CUDA
	} else if g.raw == 0 {
		g.raw = raw // a new one, which nobody else has yet
	}
	c.letGo()
	if c.before != nil {
		c.before.release()
	}
	return err
}

// letGo lets go of the streams and events, once the driver's end has returned. The
// graph is locked.
func (c *capturing) letGo() {
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
