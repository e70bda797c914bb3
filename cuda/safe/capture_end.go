package safe

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// End ends the capture and returns the graph: a new one, or the one captured into. If CUDA has
// invalidated the capture, the error says why: driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED if the
// stream does not wait for a stream that joined, driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
// after a call that captures do not allow. Unless the mode is relaxed, End must run on the thread
// that began the capture; on another thread it returns [ErrWrongThread], and the capture goes on.
// It also goes on if End returns [ErrCapturing], because a stream still captures into a body of
// the graph: see [Stream.AddIf].
//
// End returns [ErrGraphLost] if a capture into a body of the graph has failed. If this capture is
// invalidated too, it stays open, since CUDA would crash at its end: its streams cannot be used
// any more, and the goroutine stays on its thread. Source: cuStreamEndCapture.
func (c *Capture) End() (*Graph, error) {
	g, err := c.end("Capture.End")
	switch {
	case err != nil:
		return nil, err
	case c.into != nil:
		return c.into, nil
	}
	return g.user(), nil
}

func (c *Capture) end(op string) (*graphCore, error) {
	if c == nil || c.c == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	defer runtime.KeepAlive(c)
	if rt.InCallback() {
		return nil, &Error{Op: op, Err: ErrInCallback}
	}
	if c.c.mode != CaptureRelaxed && c.c.thread != 0 && rt.Thread() != c.c.thread {
		return nil, &Error{Op: op, Err: ErrWrongThread}
	}
	err := c.c.finish(true)
	switch err {
	case errOver:
		return nil, &Error{Op: op, Err: ErrClosed}
	case errWithin:
		return nil, &Error{Op: op, Err: errWithin}
	}
	c.cleanup.Stop()
	c.c.Close()
	c.c.unlockThread()
	g := c.c.settle(err)
	if err != nil {
		return nil, wrap(op, err)
	}
	return g, nil
}

// endAll ends the capture. Before, it ends the captures into graphs inside its nodes that this
// goroutine began, and waits for those of others. It returns open if there are any.
func (c *Capture) endAll(op string) (g *graphCore, open bool, err error) {
	for nap := admit.ShortNap; ; nap = nap.Take() {
		if g, err = c.end(op); !errors.Is(err, errWithin) {
			return g, open, err
		}
		open = true
		for _, w := range c.c.within() {
			w.endHere()
		}
	}
}

// endHere ends the capture if this thread may end it.
func (c *capturing) endHere() {
	if c.mode != CaptureRelaxed && rt.Thread() != c.thread {
		return
	}
	err := c.finish(true)
	if err == errOver || err == errWithin {
		return
	}
	c.Close()
	c.unlockThread()
	c.settle(err)
}

// unlockThread undoes the lock of begin, unless CUDA refuses raw calls on the thread for good.
func (c *capturing) unlockThread() {
	if c.mode != CaptureRelaxed && !c.endless.Load() {
		runtime.UnlockOSThread()
	}
}

var (
	errOver   = errors.New("the capture is over")
	errWithin = fmt.Errorf("%w: a stream captures into a body of the graph; end that capture first", ErrCapturing)
)

// finish ends the capture for all of its streams. It returns errOver if it has ended, and
// errWithin if it cannot end because a stream captures into a graph inside a node, which
// CUDA would destroy if this capture fails. Without wait, it returns lifetime.ErrLater
// instead of waiting for locks, and the thread is not the one that began the capture.
func (c *capturing) finish(wait bool) error {
	s, g := c.origin, c.graph
	if !admit.LockOr(&s.mu, wait) {
		return lifetime.ErrLater
	}
	defer s.mu.Unlock()
	if !admit.LockOr(g.mu, wait) {
		return lifetime.ErrLater
	}
	defer g.mu.Unlock()
	switch {
	case c.over:
		return errOver
	case len(g.capturesWithin()) > 0:
		return errWithin
	}
	c.over = true
	top := g.top()
	top.captures = slices.DeleteFunc(top.captures, func(o *capturing) bool { return o == c })
	unjoined, err := c.joinRest()
	if g.holed != nil && (err != nil || !wait && c.mode != CaptureRelaxed) {
		c.endless.Store(true)
		return &Error{Err: g.holed, Detail: "CUDA would crash at the end of the capture around it, which stays open: " + unusable}
	}
	raw, err := c.endInDriver()
	switch {
	case err != nil:
		top.lost = true
		top.destroyed = c.before == nil // CUDA destroys a graph that was captured into
		g.makeHoles(s, err)
	case g.holed != nil:
		err = &Error{Err: g.holed}
	case unjoined:
		top.lost = true
		err = driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
	case top.lost:
		err = ErrGraphLost
	case !c.given:
		g.raw = raw
	}
	c.release()
	if c.before != nil {
		c.before.release()
	}
	return err
}

func (c *capturing) endInDriver() (raw driver.CUgraph, err error) {
	ctx := c.origin.ctx
	if code := ctx.home().EndCapture(c.origin.raw, &raw); code != 0 {
		return 0, code
	}
	return raw, nil
}

// release releases the streams and events once the driver has ended the capture. The
// graph is locked.
func (c *capturing) release() {
	c.ended.Store(true)
	c.origin.capture.Store(nil)
	for _, s := range c.joined {
		admit.Between()
		s.capture.Store(nil)
		s.Release()
	}
	for _, e := range c.events {
		e.Release()
	}
	admit.OpenAll(c.gates)
	c.joined, c.events, c.gates = nil, nil, nil
}

// settle releases the stream, and the graph if it is of no use to the program. err is the
// error of finish. A capture that cannot end keeps everything for good.
func (c *capturing) settle(err error) *graphCore {
	g := c.graph
	if c.endless.Load() { // CUDA still has everything
		return g
	}
	if err != nil {
		c.discard()
	}
	switch {
	case c.given:
		g.Release()
	case err != nil:
		g.CloseLater() // the Reaper, which may be the caller, does not wait for an instantiation
	}
	c.origin.Release()
	return g
}

func (c *capturing) Kind() string { return "Capture" }

// Destroy ends the capture if the Capture was dropped. CUDA ends a capture also on another
// thread than the one that began it, but drops the graph unless the mode is relaxed.
func (c *capturing) Destroy(bool) error {
	if c.ended.Load() {
		return nil
	}
	err := c.finish(false)
	switch err {
	case errOver:
		return nil
	case errWithin, lifetime.ErrLater:
		return lifetime.ErrLater
	}
	g := c.settle(err)
	switch {
	case err == nil && !c.given:
		g.CloseLater()
		return nil
	case errors.Is(err, driver.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD):
		return nil
	}
	return wrap("Capture.End", err)
}

// A stream can capture into a graph inside a node, such as the body of a conditional node, while another
// stream captures the graph around it. If the inner capture fails, its end makes CUDA destroy the inner graph,
// and the outer graph has a hole: CUDA destroys the inner one again with it. On H100 and H200 with driver
// 580.159, CUDA then crashes (SIGSEGV)
//
//   - in cuGraphDestroy and cuGraphInstantiate of the outer graph
//   - if the capture into the outer graph fails: in cuStreamEndCapture, on the wrong thread as well, in
//     cuStreamDestroy, and at the end or the reset of the context
//   - if the outer capture fails and ends first: at the end of the inner one
//
// The end of an outer capture that is not invalidated succeeds. So inner captures end first, a graph with a hole
// is never destroyed, and an outer capture that would fail is left open for good: it is endless.

// unusable says what an endless capture means for its streams.
const unusable = "its streams can no longer be used; create others"

// within returns the captures into graphs inside nodes of the capture's graph.
func (c *capturing) within() []*capturing {
	c.graph.mu.Lock()
	defer c.graph.mu.Unlock()
	return c.graph.capturesWithin()
}

// capturesWithin returns the captures into graphs inside nodes of g. mu is held.
func (g *graphCore) capturesWithin() (all []*capturing) {
	for _, c := range g.top().captures {
		for inner := c.graph; inner != g && inner != nil; inner = inner.parent {
			if inner.parent == g {
				all = append(all, c)
			}
		}
	}
	return all
}

// makeHoles notes that CUDA has destroyed g, because the capture of s into it has failed with err, in the graphs
// that it is inside of. mu is held.
func (g *graphCore) makeHoles(s *streamCore, err error) {
	if err == rt.CodeReset { // it has destroyed them all
		return
	}
	for g = g.parent; g != nil; g = g.parent {
		g.holed = fmt.Errorf("%w: that of %s into a graph inside of a node: %w", ErrGraphLost, s.text(), err)
	}
}

// joinRest keeps the end of a capture from failing where that would make a hole, or crash: it makes the origin
// wait for the streams that it has not joined. unjoined tells whether there were any. Where there is a hole, it
// returns an error if the end would fail. The capture is locked.
func (c *capturing) joinRest() (unjoined bool, err error) {
	if c.graph.parent == nil && c.graph.holed == nil {
		return false, nil
	}
	info, err := c.origin.captured(c.graph)
	if err != nil || len(c.joined) == 0 {
		return false, err
	}
	open, err := c.unjoined(info.raw())
	if err != nil || len(open) == 0 {
		return false, err
	}
	return true, c.origin.setDependencies(open, nil, driver.CU_STREAM_ADD_CAPTURE_DEPENDENCIES)
}

// unjoined returns the last nodes of streams for which those of the origin do not wait. The capture is locked.
func (c *capturing) unjoined(last []driver.CUgraphNode) (open []driver.CUgraphNode, err error) {
	var from, to []driver.CUgraphNode
	err = c.origin.ctx.withCurrent(func() (err error) {
		from, to, _, err = c.graph.edges()
		return err
	})
	if err != nil {
		return nil, err
	}
	before := map[driver.CUgraphNode][]driver.CUgraphNode{}
	for i := range to {
		before[to[i]] = append(before[to[i]], from[i])
	}
	joined := map[driver.CUgraphNode]bool{}
	for len(last) > 0 {
		n := last[len(last)-1]
		last = last[:len(last)-1]
		if !joined[n] {
			joined[n] = true
			last = append(last, before[n]...)
		}
	}
	for _, s := range c.joined {
		info, err := s.captured(c.graph)
		if err != nil {
			return nil, err
		}
		for _, n := range info.raw() {
			if !joined[n] {
				joined[n] = true
				open = append(open, n)
			}
		}
	}
	return open, nil
}
