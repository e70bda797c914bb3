package safe

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A stream can capture into a graph inside of a node, such as the body of a conditional node, while another
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

// within returns the captures into graphs inside of nodes of the capture's graph.
func (c *capturing) within() []*capturing {
	c.graph.mu.Lock()
	defer c.graph.mu.Unlock()
	return c.graph.capturesWithin()
}

// capturesWithin returns the captures into graphs inside of nodes of g. mu is held.
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
