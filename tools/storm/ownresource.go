//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"context"
	"errors"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// using is the use of a resource by a graph and its executable.
type using struct {
	*resource
	shape   int     // the graph itself, a clone, or a graph with a child
	green   [2]bool // which streams of the capture belonged to the green context
	revoked bool
}

func init() {
	add("ownresource", []kind{
		{name: "own.resource", weight: 6, run: func(t *task) error { return t.own.useResource() }},
		{name: "own.resourcegraph", weight: 8, run: func(t *task) error { return t.own.resourceGraph() }},
		{name: "own.lastlaunch", weight: 4, run: func(t *task) error { return t.own.lastLaunch() }},
		{name: "own.capturemore", weight: 2, run: func(t *task) error { return t.own.captureMore() }},
		{name: "own.revoke", weight: 3, run: func(t *task) error { return t.own.revoke() }},
	})
}

// useResource enqueues work that uses a resource, and closes or drops that. In a capture, the
// graph retains it.
func (o *own) useResource() error {
	r, err := o.newResource(o.dev.x)
	if err == nil && o.capture == nil {
		err = o.clock.wait(o.streams[0], 1+o.n(o.profile.ticks))
	}
	if err != nil {
		return o.strict(err)
	}
	acts := o.rawActs(3)
	if err := o.do(o.yes(40), with(r, acts)...); err != nil {
		return err
	}
	if o.yes(o.profile.drops) {
		return nil
	}
	if err := o.strict(r.Close()); err != nil {
		return err
	}
	if err := acts[0].enqueueRaw(o, o.streams[0]); !errors.Is(err, safe.ErrClosed) {
		return failf(wrong, "work that uses a closed resource: %v", err)
	}
	if o.capture != nil || o.yes(50) {
		return nil
	}
	return r.released()
}

// with makes all acts, which are enqueued by raw calls, use a resource.
func with(r *resource, acts []act) []act {
	for i := range acts {
		acts[i].with = r
	}
	return acts
}

// released checks that the resource is released soon. It is closed, and nothing retains it.
func (r *resource) released() error {
	if !settle(patience, r.state.over) {
		return failf(leak, "a resource was not released")
	}
	return nil
}

// resourceGraph captures work that uses a resource.
func (o *own) resourceGraph() error {
	if o.capture != nil {
		return nil
	}
	r, err := o.newResource(o.dev.x)
	if err != nil {
		return o.strict(err)
	}
	u, acts := &using{resource: r, shape: o.n(3), green: o.green}, with(r, o.rawActs(4))
	g, err := o.captureActs(acts, u.shape)
	if err != nil {
		return o.strict(err)
	}
	if o.yes(30) {
		if err := r.Close(); err != nil {
			return o.strict(err)
		}
	}
	return o.adopt(&ownGraph{graph: g, acts: acts, uses: u})
}

func (o *own) rawCalls(s *safe.Stream, acts []act) error {
	for i := range acts {
		if err := acts[i].enqueueRaw(o, s); err != nil {
			return err
		}
	}
	return nil
}

// captureActs captures acts, which are enqueued by raw calls, into a graph of the given shape.
func (o *own) captureActs(acts []act, shape int) (*safe.Graph, error) {
	s := o.streams[0]
	g, _, err := o.inside(func(*ownCapture) (*safe.Graph, error) {
		return s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: modes[o.n(3)]}, func() error { return o.rawCalls(s, acts) })
	})
	if err != nil || shape == 0 {
		return g, err
	}
	if shape == 1 {
		clone, err := g.Clone()
		return clone, errors.Join(err, g.Close())
	}
	outer, err := safe.NewGraph(o.dev.x)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	_, err = outer.Add(safe.ChildGraphNode(g))
	return outer, errors.Join(err, g.Close())
}

// launchable returns the index of an executable that retains a resource that was not revoked,
// or -1. In a capture there is none.
func (o *own) launchable() int {
	if o.capture != nil {
		return -1
	}
	return slices.IndexFunc(o.graphs, func(g *ownGraph) bool { return g.uses != nil && !g.uses.revoked })
}

// lastLaunch closes everything while a launch is pending, and then expects the release.
func (o *own) lastLaunch() error {
	i := o.launchable()
	if i < 0 {
		return nil
	}
	g := o.graphs[i]
	o.graphs = slices.Delete(o.graphs, i, i+1)
	r, s := g.uses, o.streams[0]
	if err := o.strict(s.Synchronize()); err != nil {
		return err
	}
	r.state.inGraph.clear()
	r.state.expect(r.state.inGraph)
	err := o.clock.wait(s, 1+o.n(o.profile.ticks))
	if err == nil {
		err = g.exec.Launch(s)
	}
	if err == nil {
		g.effect(o)
		err = errors.Join(r.Close(), g.graph.Close())
	}
	if err == nil && r.state.over() {
		return failf(mismatch, "a resource was released that an executable retains")
	}
	if err = errors.Join(err, g.exec.Close()); err != nil {
		return o.strict(err)
	}
	return r.released()
}

// captureMore captures work that uses another resource into a graph. The present executable does
// not change: it launches even if that resource is revoked.
func (o *own) captureMore() error {
	i := o.launchable()
	if i < 0 || o.graphs[i].graph == nil {
		return nil
	}
	g, s := o.graphs[i], o.streams[0]
	r, err := o.newResource(o.dev.x)
	if err != nil {
		return o.strict(err)
	}
	acts := with(r, o.rawActs(2))
	_, _, err = o.inside(func(*ownCapture) (*safe.Graph, error) {
		return nil, s.CaptureTo(g.graph, safe.CaptureToOptions{Mode: modes[o.n(3)]}, func() error { return o.rawCalls(s, acts) })
	})
	if err != nil {
		return o.strict(err)
	}
	r.of.Revoke()
	if r.state.over() {
		return failf(mismatch, "a resource was released that a graph retains")
	}
	return o.launchOne(g)
}

// revoke revokes a resource: its executable launches no more, others do.
func (o *own) revoke() error {
	i := o.launchable()
	if i < 0 {
		return nil
	}
	g := o.graphs[i]
	if o.yes(50) { // a launch that goes on
		if err := o.launchOne(g); err != nil {
			return err
		}
	}
	g.uses.of.Revoke()
	g.uses.revoked = true
	if err := o.refusesLaunch(g); err != nil {
		return err
	}
	if i := o.launchable(); i >= 0 {
		if err := o.launchOne(o.graphs[i]); err != nil {
			return err
		}
	}
	if o.yes(50) {
		return o.renew(g)
	}
	return nil
}

// refusesLaunch checks that an executable does not launch because a resource was revoked.
func (o *own) refusesLaunch(g *ownGraph) error {
	var err error
	switch s := o.streams[0]; o.n(3) {
	case 0:
		err = g.exec.Launch(s)
	case 1:
		err = g.exec.Upload(s)
	default:
		b, failed := safe.NewBatch(o.dev.x)
		if failed = errors.Join(failed, b.LaunchGraph(g.exec)); failed != nil {
			return o.strict(failed)
		}
		err = b.Submit(s)
	}
	switch {
	case g.uses.state.over():
		return failf(mismatch, "a resource was released that an executable retains")
	case errors.Is(err, safe.ErrClosed):
		return nil
	}
	return failf(wrong, "a launch that uses a revoked resource: %v", err)
}

// renew updates an executable with a graph that does the same with another resource.
func (o *own) renew(g *ownGraph) error {
	r, err := o.newResource(o.dev.x)
	if err != nil {
		return o.strict(err)
	}
	acts := with(r, slices.Clone(g.acts))
	graph, err := o.captureActs(acts, g.uses.shape)
	if errors.Is(err, safe.ErrClosed) {
		return nil // its buffers were replaced
	}
	if err != nil {
		return o.strict(err)
	}
	err = g.exec.Update(graph)
	if errors.Is(err, driver.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) && o.green != g.uses.green {
		return o.strict(graph.Close()) // CUDA cannot move work into a green context, or out of it
	}
	if err != nil {
		return o.strict(errors.Join(err, graph.Close()))
	}
	err = g.graph.Close()
	old := g.uses
	g.graph, g.acts, g.uses = graph, acts, &using{resource: r, shape: old.shape, green: o.green}
	if err != nil {
		return o.strict(err)
	}
	return errors.Join(o.launchOne(g), old.released())
}
