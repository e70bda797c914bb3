//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// modes are the capture modes.
var modes = []safe.CaptureMode{safe.CaptureGlobal, safe.CaptureThreadLocal, safe.CaptureRelaxed}

// An ownCapture is a capture of a goroutine's own stream.
type ownCapture struct {
	c    *safe.Capture
	acts []act
	has  string // conditional nodes or memory: not both
}

// An ownGraph is an executable with known effects.
type ownGraph struct {
	graph *safe.Graph // nil if closed already
	exec  *safe.GraphExec
	acts  []act
	nodes []safe.Node // of the acts, nil where they are not known
	off   []bool      // acts that are disabled
	uses  *using      // of a resource, nil for none
	// what more it does in each launch
	more func()
}

func (g *ownGraph) close() error { return errors.Join(g.graph.Close(), g.exec.Close()) }

// effect applies a launch to the model.
func (g *ownGraph) effect(o *own) {
	for i := range g.acts {
		if g.off == nil || !g.off[i] {
			g.acts[i].apply(o)
		}
	}
	if g.more != nil {
		g.more()
	}
}

func init() {
	add("owngraph", []kind{
		{name: "own.build", weight: 8, run: func(t *task) error { return t.own.build() }},
		{name: "own.launch", weight: 14, run: func(t *task) error { return t.own.launch(1) }},
		{name: "own.launches", weight: 3, run: func(t *task) error { return t.own.launch(20) }},
		{name: "own.set", weight: 5, run: func(t *task) error { return t.own.set() }},
		{name: "own.enable", weight: 3, run: func(t *task) error { return t.own.enable() }},
		{name: "own.update", weight: 4, run: func(t *task) error { return t.own.update() }},
		{name: "own.child", weight: 3, run: func(t *task) error { return t.own.child() }},
		{name: "own.graphmemory", weight: 2, run: func(t *task) error { return t.own.graphMemory() }},
		{name: "own.forget", weight: 4, run: func(t *task) error { return t.own.forget() }},
	})
	add("owncapture", []kind{
		{name: "own.begin", weight: 6, run: func(t *task) error { return t.own.beginCapture() }},
		{name: "own.end", weight: 8, run: func(t *task) error { return t.own.endCapture() }},
		{name: "own.capture", weight: 10, run: func(t *task) error { return t.own.captures() }},
		{name: "own.captureexec", weight: 3, run: func(t *task) error { return t.own.captureExecutable() }},
		{name: "own.captureto", weight: 4, run: func(t *task) error { return t.own.captureTo() }},
		{name: "own.insert", weight: 6, run: func(t *task) error { return t.own.insert() }},
		{name: "own.drop", weight: 4, run: func(t *task) error { return t.own.dropCapture() }},
	})
	add("condition", []kind{
		{name: "own.if", weight: 2, run: func(t *task) error { return t.own.conditional(false) }},
		{name: "own.while", weight: 2, run: func(t *task) error { return t.own.conditional(true) }},
	})
}

// beginCapture begins a capture that lasts over several steps.
func (o *own) beginCapture() error {
	if o.capture != nil {
		return nil
	}
	c, err := o.streams[0].BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: modes[o.n(3)]})
	if err != nil {
		return o.strict(err)
	}
	o.capture = &ownCapture{c: c}
	return nil
}

// endCapture ends the capture and instantiates the graph.
func (o *own) endCapture() error {
	c := o.capture
	if c == nil {
		return nil
	}
	o.capture = nil
	g, err := c.c.End()
	if err := o.counts.captured(err); err != nil {
		return o.strict(err)
	}
	return o.adopt(&ownGraph{graph: g, acts: c.acts})
}

// adopt instantiates a graph, and closes or drops an executable if there are too many.
func (o *own) adopt(g *ownGraph) (err error) {
	if g.exec == nil {
		g.exec, err = g.graph.Instantiate()
	}
	if err != nil {
		return o.strict(errors.Join(err, g.graph.Close()))
	}
	if o.yes(30) {
		if err := g.graph.Close(); err != nil {
			return o.strict(err)
		}
		g.graph, g.nodes = nil, nil
	}
	o.graphs = append(o.graphs, g)
	if len(o.graphs) > 6 {
		return o.forget()
	}
	return nil
}

// forget closes or drops an executable, which may be running.
func (o *own) forget() error {
	if len(o.graphs) == 0 {
		return nil
	}
	i := o.n(len(o.graphs))
	g := o.graphs[i]
	o.graphs = append(o.graphs[:i], o.graphs[i+1:]...)
	if o.yes(o.profile.drops) {
		return nil
	}
	return o.strict(g.close())
}

// inside runs f in a capture, which may nest steps.
func (o *own) inside(f func(c *ownCapture) (*safe.Graph, error)) (*safe.Graph, []act, error) {
	c := &ownCapture{}
	o.capture = c
	g, err := f(c)
	o.capture = nil
	return g, c.acts, o.counts.captured(err)
}

func (o *own) captures() error {
	if o.capture != nil {
		return nil
	}
	g, acts, err := o.inside(func(*ownCapture) (*safe.Graph, error) {
		return o.streams[0].CaptureWith(context.Background(), safe.CaptureOptions{Mode: modes[o.n(3)]}, o.captured)
	})
	if err != nil {
		return o.strict(err)
	}
	return o.adopt(&ownGraph{graph: g, acts: acts})
}

// captured runs the steps inside a capture.
func (o *own) captured() error {
	if o.yes(30) {
		runtime.Gosched()
	}
	if err := o.do(o.yes(40), o.acts(5)...); err != nil {
		return err
	}
	if o.dev.libraries != nil && o.yes(50) {
		if err := o.do(o.yes(40), o.libraryActs(3)...); err != nil {
			return err
		}
	}
	if o.yes(20) {
		if err := o.insert(); err != nil {
			return err
		}
	}
	if o.yes(30) {
		return o.refused()
	}
	return nil
}

// refused makes calls that would invalidate a capture, which package safe must refuse.
func (o *own) refused() error {
	s := o.streams[0]
	_, err := s.Query()
	if !errors.Is(err, safe.ErrCapturing) {
		return failf(wrong, "Query of a capturing stream: %v", err)
	}
	if err := s.Synchronize(); !errors.Is(err, safe.ErrCapturing) {
		return failf(wrong, "Synchronize of a capturing stream: %v", err)
	}
	return nil
}

func (o *own) captureExecutable() error {
	if o.capture != nil {
		return nil
	}
	var e *safe.GraphExec
	_, acts, err := o.inside(func(*ownCapture) (_ *safe.Graph, err error) {
		e, err = o.streams[0].CaptureExecutable(o.captured)
		return nil, err
	})
	if err != nil {
		return o.strict(err)
	}
	return o.adopt(&ownGraph{exec: e, acts: acts})
}

// captureTo builds a graph and captures more work into it, after its nodes.
func (o *own) captureTo() error {
	if o.capture != nil {
		return nil
	}
	g, err := o.chain(o.acts(3))
	if err != nil {
		return o.strict(err)
	}
	_, acts, err := o.inside(func(*ownCapture) (*safe.Graph, error) {
		last := g.nodes[len(g.nodes)-1]
		return nil, o.streams[0].CaptureTo(g.graph, safe.CaptureToOptions{Mode: modes[o.n(3)], Dependencies: []safe.Node{last}}, o.captured)
	})
	if err != nil {
		return o.strict(errors.Join(err, g.close()))
	}
	g.acts, g.nodes = append(g.acts, acts...), nil
	return o.adopt(g)
}

var errDropped = errors.New("dropped")

// dropCapture ends a capture by an error, a panic or Goexit.
func (o *own) dropCapture() error {
	if o.capture != nil {
		return nil
	}
	how, mode := o.n(3), modes[o.n(3)]
	var g *safe.Graph
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recover() }()
		g, _, err = o.inside(func(*ownCapture) (*safe.Graph, error) {
			return o.streams[0].CaptureWith(context.Background(), safe.CaptureOptions{Mode: mode}, func() error {
				if err := o.captured(); err != nil {
					return err
				}
				switch how {
				case 0:
					panic(errDropped)
				case 1:
					runtime.Goexit()
				}
				return errDropped
			})
		})
	}()
	<-done
	o.capture = nil
	if err != nil && !errors.Is(err, errDropped) { // as of what the driver lacks
		return o.strict(err)
	}
	if g != nil || how == 2 && err == nil {
		return failf(wrong, "a dropped capture returned %v, %v", g, err)
	}
	status, err := o.streams[0].CaptureStatus()
	if err == nil && status != driver.CU_STREAM_CAPTURE_STATUS_NONE {
		return failf(wrong, "a dropped capture goes on: %v", status)
	}
	return o.strict(err)
}

// launch enqueues executables.
func (o *own) launch(most int) error {
	if len(o.graphs) == 0 || o.capture != nil {
		return nil
	}
	for range 1 + o.n(most) {
		g := o.graphs[o.n(len(o.graphs))]
		if g.uses != nil && g.uses.revoked {
			if err := o.refusesLaunch(g); err != nil {
				return err
			}
			continue
		}
		if o.yes(10) {
			if err := g.exec.Upload(o.streams[0]); err != nil {
				return o.strict(err)
			}
		}
		if err := o.launchOne(g); err != nil {
			return err
		}
	}
	return nil
}

func (o *own) launchOne(g *ownGraph) error {
	if err := g.exec.Launch(o.streams[0]); err != nil {
		return o.strict(fmt.Errorf("%w (%d acts)", err, len(g.acts)))
	}
	g.effect(o)
	return nil
}
