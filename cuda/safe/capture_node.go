package safe

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// AddNode adds a node to the graph that the stream captures: see [Graph.Add] for the
// parameters and errors. The node waits for the work that the stream has captured so far,
// and work that the stream captures later waits for the node. The graph that the capture
// returns retains the objects that the node uses.
//
// It returns driver.CUDA_ERROR_ILLEGAL_STATE if the stream takes part in no capture that
// this package began, [ErrCapturing] in a [Stream.Recapture], [ErrNotAllocated] if the capture
// has freed memory that the node uses, and [ErrInvalidArgument] for a [KernelNode] with launch
// attributes: capture that with [Kernel.Launch].
// Source: cuStreamGetCaptureInfo_v3 or _v2, functions such as cuGraphAddChildGraphNode,
// cuStreamUpdateCaptureDependencies.
func (s *Stream) AddNode(p NodeParams) (Node, error) {
	const op = "Stream.AddNode"
	c, err := s.acquire(op)
	if err != nil {
		return Node{}, err
	}
	defer c.Release()
	if err := lock(op, &c.mu); err != nil {
		return Node{}, err
	}
	into := c.capture.Load()
	if into == nil {
		c.mu.Unlock()
		return Node{}, notCapturing(op)
	}
	u, err := takenInCapture(op, &p, into.graph)
	if err != nil {
		c.mu.Unlock()
		return Node{}, err
	}
	defer u.finish()
	var added Node
	raw, err := c.extend(op, func(into *capturing, before []driver.CUgraphNode) (driver.CUgraphNode, error) {
		err := u.prepare()
		if err == nil {
			err = into.notFreed(op, u.kept)
		}
		if err != nil {
			return 0, err
		}
		g := into.graph
		raw, err := p.add(&u, g, before)
		if raw != 0 {
			g.kept.add(raw, u.kept)
			into.frees = append(into.frees, u.kept.content().freed...)
			added = g.named(raw, p.kind())
		}
		return raw, err
	})
	if raw == 0 {
		u.kept.release()
	}
	if err != nil {
		return Node{}, err
	}
	return added, nil
}

// takenInCapture returns what a node uses that a capture is to get. It refuses kernels with launch attributes:
// these take a second call, and a node cannot be destroyed in a capture if that one fails.
func takenInCapture(op string, p *NodeParams, into *graphCore) (nodeUse, error) {
	if p.other == nil && p.kernel.attributed() {
		return nodeUse{}, refuse(op, ErrInvalidArgument, "a kernel with launch attributes; capture it with Kernel.Launch")
	}
	return taken(op, p, into)
}

func notCapturing(op string) error {
	return refuse(op, driver.CUDA_ERROR_ILLEGAL_STATE, "the stream is in no capture that this package began")
}

// extend calls add with the stream's capture locked and the nodes that its next work
// depends on. Then its next work depends on the node that add returns. The stream is locked;
// extend unlocks it. It may return a node with an error, if that is in the graph.
func (s *streamCore) extend(op string, add func(into *capturing, before []driver.CUgraphNode) (driver.CUgraphNode, error)) (driver.CUgraphNode, error) {
	a := admission{op: op, stream: s, flags: locked}
	if err := a.admit(); err != nil {
		return 0, err
	}
	defer a.leave(true)
	c := a.capture
	before, err := c.frontier(op, s)
	if err != nil {
		return 0, err
	}
	n, err := add(c, before)
	if n != 0 && !slices.Contains(c.adding, s) {
		c.adding = append(c.adding, s)
	}
	if err == nil {
		err = s.setDependencies([]driver.CUgraphNode{n}, nil, driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES)
	}
	return n, wrap(op, err)
}

// frontier returns the nodes that the next captured work of the stream depends on, if nodes
// can be added. The capture is locked.
func (c *capturing) frontier(op string, s *streamCore) ([]driver.CUgraphNode, error) {
	switch {
	case c == nil:
		return nil, notCapturing(op)
	case c.before != nil:
		return nil, refuse(op, ErrCapturing, "Stream.Recapture replaces the arguments of the nodes; it cannot add nodes")
	}
	if err := c.graph.usable(op); err != nil {
		return nil, err
	}
	info, err := s.captured(c.graph)
	if err != nil {
		return nil, wrap(op, err)
	}
	if c.graph.raw == 0 {
		c.graph.raw = info.Graph
	}
	return info.raw(), nil
}

// captured returns the state of the stream's capture, into g.
func (s *streamCore) captured(g *graphCore) (info CaptureInfo, err error) {
	err = s.ctx.withCurrent(func() error { return s.askCapture(&info, g) })
	if err == nil && info.Status != driver.CU_STREAM_CAPTURE_STATUS_ACTIVE {
		err = driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
	}
	return info, err
}

// raw returns the handles of the dependencies.
func (i *CaptureInfo) raw() []driver.CUgraphNode {
	nodes := make([]driver.CUgraphNode, len(i.Dependencies))
	for k, n := range i.Dependencies {
		nodes[k] = n.raw
	}
	return nodes
}

// setDependencies changes what the next captured work depends on. The capture is locked.
func (s *streamCore) setDependencies(nodes []driver.CUgraphNode, data []driver.CUgraphEdgeData, flags driver.CUstreamUpdateCaptureDependencies_flags) error {
	return s.ctx.withCurrent(func() error {
		first, n := unsafe.SliceData(nodes), uint64(len(nodes))
		err := driver.CuStreamUpdateCaptureDependencies_v2(s.raw, first, unsafe.SliceData(data), n, flags)
		if errors.Is(err, ErrNotSupported) && data == nil {
			err = driver.CuStreamUpdateCaptureDependencies_v1(s.raw, first, n, flags)
		}
		return err
	})
}

// NewCondition creates a condition for one conditional node of the graph that the stream captures, or of a graph inside
// one of its nodes: see [Graph.NewCondition]. It returns driver.CUDA_ERROR_ILLEGAL_STATE if the stream takes part in no
// capture that this package began. Source: cuStreamGetCaptureInfo_v3, cuGraphConditionalHandleCreate.
func (s *Stream) NewCondition(o ConditionOptions) (Condition, error) {
	const op = "Stream.NewCondition"
	sc, err := s.acquire(op)
	if err != nil {
		return Condition{}, err
	}
	defer sc.Release()
	a := admission{op: op, stream: sc}
	if err := a.admit(); err != nil {
		return Condition{}, err
	}
	defer a.leave(true)
	c := a.capture
	if _, err := c.frontier(op, sc); err != nil {
		return Condition{}, err
	}
	made, err := c.graph.newCondition(o)
	return made, wrap(op, err)
}

// AddIf adds a conditional node to the graph that the stream captures, in the order of [Stream.AddNode], and returns
// its body: see [Graph.AddIf]. c must come from [Stream.NewCondition] of a stream in the same capture. A kernel that
// the stream has captured sets it.
//
// Fill the body with [Graph.Add], or with [Stream.CaptureTo] on a stream that takes part in no capture, now or after
// this capture has ended. A capture into the body must end first. Source: cuStreamGetCaptureInfo_v3, cuGraphAddNode,
// cuStreamUpdateCaptureDependencies.
func (s *Stream) AddIf(c Condition) (body *Graph, err error) {
	bodies, err := s.addConditional("Stream.AddIf", driver.CU_GRAPH_COND_TYPE_IF, c, 1)
	if err != nil {
		return nil, err
	}
	return bodies[0], nil
}

// AddIfElse adds a conditional node with two bodies to the graph that the stream captures: see [Stream.AddIf] for the
// rules, and [Graph.AddIfElse] for the bodies. It returns [ErrNotSupported] if the driver is older than CUDA 12.8.
// Source: cuGraphAddNode.
func (s *Stream) AddIfElse(c Condition) (then, otherwise *Graph, err error) {
	bodies, err := s.addConditional("Stream.AddIfElse", driver.CU_GRAPH_COND_TYPE_IF, c, 2)
	if err != nil {
		return nil, nil, err
	}
	return bodies[0], bodies[1], nil
}

// AddWhile adds a loop to the graph that the stream captures: see [Stream.AddIf] for the rules, and [Graph.AddWhile]
// for the body. Source: cuGraphAddNode.
func (s *Stream) AddWhile(c Condition) (body *Graph, err error) {
	bodies, err := s.addConditional("Stream.AddWhile", driver.CU_GRAPH_COND_TYPE_WHILE, c, 1)
	if err != nil {
		return nil, err
	}
	return bodies[0], nil
}

// AddSwitch adds a conditional node with any number of bodies to the graph that the stream captures: see [Stream.AddIf]
// for the rules, and [Graph.AddSwitch] for the bodies. It returns [ErrNotSupported] if the driver is older than CUDA
// 12.8. Source: cuGraphAddNode.
func (s *Stream) AddSwitch(c Condition, bodies int) ([]*Graph, error) {
	return s.addConditional("Stream.AddSwitch", driver.CU_GRAPH_COND_TYPE_SWITCH, c, bodies)
}

func (s *Stream) addConditional(op string, kind driver.CUgraphConditionalNodeType, c Condition, bodies int) (graphs []*Graph, err error) {
	sc, err := s.acquire(op)
	if err != nil {
		return nil, err
	}
	defer sc.Release()
	if err := lock(op, &sc.mu); err != nil {
		return nil, err
	}
	_, err = sc.extend(op, func(into *capturing, before []driver.CUgraphNode) (n driver.CUgraphNode, err error) {
		g := into.graph
		err = g.ctx.withCurrent(func() error {
			n, graphs, err = g.addConditional(op, kind, c, bodies, before)
			return err
		})
		return n, err
	})
	if err != nil {
		return nil, err
	}
	return graphs, nil
}

// CaptureInfo is the state of a capture.
type CaptureInfo struct {
	Status driver.CUstreamCaptureStatus
	// ID identifies the capture in this process. It is 0 without a capture.
	ID uint64
	// Graph is the graph under construction, for calls to package driver on the thread
	// that captures. It is 0 without a capture. Do not destroy it.
	Graph driver.CUgraph
	// Dependencies are the nodes that the next captured work depends on.
	Dependencies []Node
	// Data is the data of the edges from Dependencies. It is nil if all edges are plain,
	// or with a driver before CUDA 12.3.
	Data []driver.CUgraphEdgeData
}

// CaptureStatus tells whether the stream is capturing, and whether the capture is invalidated. A function of
// [Stream.EnqueueRaw] may call it for its stream: until the function returns, CaptureStatus returns the status from
// before it began, on all goroutines, without calling CUDA. Source: cuStreamIsCapturing.
func (s *Stream) CaptureStatus() (driver.CUstreamCaptureStatus, error) {
	const op = "Stream.CaptureStatus"
	var status driver.CUstreamCaptureStatus
	if s != nil && s.core != nil && !s.core.Closed() {
		if known := s.core.status.Load(); known > 0 {
			return driver.CUstreamCaptureStatus(known - 1), nil
		}
	}
	c, err := s.acquire(op)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	err = c.ctx.withCurrent(func() error { return driver.CuStreamIsCapturing(c.raw, &status) })
	return status, wrap(op, err)
}

// CaptureInfo returns the state of the stream's capture. Source:
// cuStreamGetCaptureInfo_v3, before CUDA 12.3 cuStreamGetCaptureInfo_v2.
func (s *Stream) CaptureInfo() (CaptureInfo, error) {
	const op = "Stream.CaptureInfo"
	var info CaptureInfo
	c, err := s.acquire(op)
	if err != nil {
		return info, err
	}
	defer c.Release()
	a := admission{op: op, stream: c}
	if err := a.admit(); err != nil {
		return info, err
	}
	defer a.leave(true)
	capture := a.capture
	err = c.ctx.withCurrent(func() error { return c.askCapture(&info, capture.core()) })
	return info, wrap(op, err)
}

// core returns the graph under construction, or nil for a capture that this package did
// not begin.
func (c *capturing) core() *graphCore {
	if c == nil {
		return nil
	}
	return c.graph
}

// askCapture copies the driver's arrays, which the next captured call may change.
func (s *streamCore) askCapture(info *CaptureInfo, g *graphCore) error {
	var nodes *driver.CUgraphNode
	var data *driver.CUgraphEdgeData
	var n uint64
	err := driver.CuStreamGetCaptureInfo_v3(s.raw, &info.Status, &info.ID, &info.Graph, &nodes, &data, &n)
	if errors.Is(err, driver.CUDA_ERROR_LOSSY_QUERY) || errors.Is(err, ErrNotSupported) {
		err = driver.CuStreamGetCaptureInfo_v2(s.raw, &info.Status, &info.ID, &info.Graph, &nodes, &n)
	}
	if err != nil || info.Status != driver.CU_STREAM_CAPTURE_STATUS_ACTIVE {
		info.ID, info.Graph = 0, 0
		return err
	}
	for _, raw := range unsafe.Slice(nodes, n) {
		node := Node{raw: raw}
		if g != nil {
			node = g.named(raw, 0)
		}
		if err := driver.CuGraphNodeGetType(raw, &node.kind); err != nil {
			return err
		}
		info.Dependencies = append(info.Dependencies, node)
	}
	if data != nil {
		info.Data = append(info.Data, unsafe.Slice(data, n)...)
	}
	return nil
}

// UpdateCaptureDependencies changes what the next captured work depends on. It adds nodes
// of the graph under construction to the dependencies, or replaces them by nodes if flags
// has driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES. data is the data of the edges from
// nodes, nil for plain edges; other data needs a driver for CUDA 12.3. It returns
// [ErrForeignNode] for a node of another graph. Source:
// cuStreamUpdateCaptureDependencies_v2, before CUDA 12.3
// cuStreamUpdateCaptureDependencies.
func (s *Stream) UpdateCaptureDependencies(nodes []Node, data []driver.CUgraphEdgeData, flags driver.CUstreamUpdateCaptureDependencies_flags) error {
	const op = "Stream.UpdateCaptureDependencies"
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	a := admission{op: op, stream: c}
	if err := a.admit(); err != nil {
		return err
	}
	defer a.leave(true)
	capture := a.capture
	if capture == nil {
		return notCapturing(op)
	}
	raw, data, err := capture.graph.dependencies(op, nodes, data)
	if err != nil {
		return err
	}
	return wrap(op, c.setDependencies(raw, data, flags))
}
