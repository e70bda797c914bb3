package safe

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// Graph describes work: operations (nodes) and the order between them (edges). Capture one
// from a stream with [Stream.Capture], or create one with [NewGraph] and add nodes with
// [Graph.Add]. To run it, instantiate it with [Graph.Instantiate]. Any number of goroutines
// may use a graph at once.
type Graph struct {
	core    *graphCore
	cleanup lifetime.Cleanup
}

type graphCore struct {
	lifetime.Handle
	ctx  *contextCore
	raw  driver.CUgraph
	kept *graphRetained

	parent     *graphCore         // of a graph inside a node; nil for a graph of its own
	parentNode driver.CUgraphNode // the child or conditional node that it is inside of

	mu          *admit.Mutex[admit.GraphRank] // one thread at a time may use a graph and those inside it
	room        admit.Mutex[admit.GraphRank]  // for mu of an outermost graph
	lost        bool                          // a capture has failed and CUDA has destroyed it
	holed       error                         // why CUDA has destroyed a graph inside of a node, or nil
	destroyed   bool                          // by CUDA
	conditional bool                          // has a conditional node
	executed    bool                          // has been instantiated
	captures    []*capturing                  // of the outermost graph: into it and those inside nodes
	gone        map[driver.CUgraphNode]uint32 // nodes destroyed per handle, as CUDA reuses handles
	inner       map[driver.CUgraph]*graphCore // the graphs inside nodes, as far as users have asked for them
	deps        []driver.CUgraphNode          // room for those of a node that is added
}

func newGraphCore(x *contextCore) *graphCore {
	all := &struct { // one allocation
		graphCore
		room graphRoom
	}{}
	g := &all.graphCore
	g.ctx, g.kept, g.mu = x, all.room.init(), &g.room
	return g
}

// top returns the outermost graph that g is inside of, or g.
func (g *graphCore) top() *graphCore {
	for g.parent != nil {
		g = g.parent
	}
	return g
}

// Acquire acquires the outermost graph: graphs inside nodes live as long as that.
func (g *graphCore) Acquire() bool { return g.top().Handle.Acquire() }

func (g *graphCore) Release() { g.top().Handle.Release() }

// adopt makes a Graph that owns the core.
func (g *graphCore) adopt(op string) (*Graph, error) {
	if err := g.Open(g, &g.ctx.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, g.Destroy(true)))
	}
	return g.user(), nil
}

// user makes the Graph for a core that is open.
func (g *graphCore) user() *Graph {
	u := &Graph{core: g}
	u.cleanup.Watch(&g.Handle)
	return u
}

// NewGraph creates an empty graph: fill it with [Graph.Add] or [Stream.CaptureTo].
// Source: cuGraphCreate.
func NewGraph(x *Context) (*Graph, error) {
	const op = "NewGraph"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	g := newGraphCore(c)
	if code := c.home().CreateGraph(&g.raw); code != 0 {
		return nil, failed(op, code)
	}
	return g.adopt(op)
}

// A graphEnter locks a graph: by graphCore.enter if it is not acquired, else by graphCore.lock.
type graphEnter func(g *graphCore, op string) error

// lock locks the graph, which is acquired.
func (g *graphCore) lock(op string) error { return lock(op, g.mu) }

// enter locks the graph for a call that does not acquire it, if it is open: Destroy locks it, too.
func (g *graphCore) enter(op string) error {
	if err := lock(op, g.mu); err != nil {
		return err
	}
	if g.top().Closed() {
		g.mu.Unlock()
		return &Error{Op: op, Err: ErrClosed}
	}
	return nil
}

func (g *graphCore) Kind() string { return "Graph" }

func (g *graphCore) Destroy(wait bool) error { return executables.Destroy(wait, g.destroy) }

func (g *graphCore) destroy(wait, inTurn bool) error {
	if !patiently(wait, g.mu.TryLock) { // a call has entered, or an executable is destroyed
		return lifetime.ErrLater
	}
	defer g.mu.Unlock()
	if !inTurn {
		if err := executables.TakeTurn(false); err != nil {
			return err
		}
		defer executables.EndTurn()
	}
	defer g.kept.release()
	if g.destroyed {
		return nil
	}
	return released("Graph.Close", g.ctx.home().DestroyGraph(g.raw))
}

func (g *Graph) acquire(op string) (*graphCore, error) {
	if g == nil || g.core == nil || !g.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return g.core, nil
}

// usable returns an error if the graph is lost or destroyed. mu is held.
func (g *graphCore) usable(op string) error {
	top := g.top()
	if top.lost {
		return &Error{Op: op, Err: ErrGraphLost}
	}
	if g.destroyed {
		return refuse(op, ErrClosed, "the node that the graph is inside of was destroyed")
	}
	return nil
}

// changeable returns an error if the graph cannot be changed now. mu is held.
func (g *graphCore) changeable(op string) error {
	for _, c := range g.top().captures {
		if c.graph == g {
			return refuse(op, ErrCapturing, "a stream captures into the graph; Stream.AddNode adds nodes")
		}
	}
	return g.usable(op)
}

// settled returns an error if the graph, or one inside a node, may change before its
// lock is released: it cannot be copied or instantiated, and its nodes not destroyed. mu is
// held.
func (g *graphCore) settled(op string) error {
	if len(g.top().captures) > 0 {
		return refuse(op, ErrCapturing, "a stream captures into the graph")
	}
	return g.usable(op)
}

// do calls f with the graph locked and the context current.
func (g *Graph) do(op string, f func(*graphCore) error) error {
	c, err := g.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return c.do(op, f)
}

// change calls f with the graph locked, unless a stream captures into it.
func (g *Graph) change(op string, f func(*graphCore) error) error {
	return g.do(op, func(c *graphCore) error {
		if err := c.changeable(op); err != nil {
			return err
		}
		return f(c)
	})
}

// whole calls f with the graph locked, unless a stream captures into it or into a graph inside a node.
func (g *Graph) whole(op string, f func(*graphCore) error) error {
	return g.do(op, func(c *graphCore) error {
		if err := c.settled(op); err != nil {
			return err
		}
		return f(c)
	})
}

// do calls f with the graph locked, which is acquired.
func (g *graphCore) do(op string, f func(*graphCore) error) error {
	if err := lock(op, g.mu); err != nil {
		return err
	}
	defer g.mu.Unlock()
	if err := g.usable(op); err != nil {
		return err
	}
	return wrap(op, g.ctx.withCurrent(func() error { return f(g) }))
}

// Close destroys the graph. Its executables stay valid and retain what they use. Closing a graph inside a node does
// nothing: it is destroyed with its node. Closing again does nothing. Source: cuGraphDestroy.
func (g *Graph) Close() error {
	if g == nil || g.core == nil || g.core.parent != nil {
		return nil
	}
	g.cleanup.Stop()
	return g.core.Close()
}

// Raw returns the graph's handle for calls to package driver, or 0 once it is closed. Only
// one thread at a time may use the handle. That of a graph inside a node is 0 once the outermost
// graph is closed; do not use it after [Node.Destroy] of the node, which does not change it.
func (g *Graph) Raw() driver.CUgraph {
	if g == nil || g.core == nil || g.core.top().Closed() {
		return 0
	}
	return g.core.raw
}

// Clone copies the graph. The clone's nodes are new nodes. It returns [ErrConditional] if
// the graph has conditional nodes, and driver.CUDA_ERROR_NOT_SUPPORTED if it has nodes that
// allocate or free memory. Source: cuGraphClone, cuGraphNodeFindInClone.
func (g *Graph) Clone() (*Graph, error) {
	const op = "Graph.Clone"
	var clone *graphCore
	err := g.whole(op, func(c *graphCore) error {
		if c.top().conditional {
			return refuse(op, ErrConditional, "such a graph cannot be cloned")
		}
		clone = newGraphCore(c.ctx)
		if err := executables.Serialize(func() error { return driver.CuGraphClone(&clone.raw, c.raw) }); err != nil {
			return err
		}
		clone.kept = c.keptByCopy()
		clone.kept.user = clone.kept.user.extended()
		return clone.kept.rename(func(n driver.CUgraphNode) (driver.CUgraphNode, error) {
			var own driver.CUgraphNode
			err := driver.CuGraphNodeFindInClone(&own, n, clone.raw)
			if err == driver.CUDA_ERROR_INVALID_VALUE { // of a graph inside a node
				return 0, nil
			}
			return own, err
		})
	})
	switch {
	case err == nil:
		return clone.adopt(op)
	case clone != nil && clone.raw != 0:
		err = errors.Join(err, clone.Destroy(true))
	}
	return nil, err
}

// keptByCopy returns what a clone or an executable of the graph retains. If the graph is inside a node, that is all that
// the graph around it retains, but none of the memory that its other nodes allocate or free.
func (g *graphCore) keptByCopy() *graphRetained {
	all := g.kept.share()
	if g.parent == nil {
		return all
	}
	h := (&graphRoom{}).init()
	h.captured.extra().inner = all
	return h
}

// has tells whether n is a live node of the graph: CUDA does not check.
func (g *graphCore) has(n Node) bool {
	return n.of == g && !n.isGone()
}

// dependencies returns the handles of nodes of this graph. data is empty, or has an element
// for each node.
func (g *graphCore) dependencies(op string, nodes []Node, data []driver.CUgraphEdgeData) ([]driver.CUgraphNode, []driver.CUgraphEdgeData, error) {
	if len(data) > 0 && len(data) != len(nodes) {
		return nil, nil, refuse(op, ErrRange, "%d elements of edge data for %d dependencies", len(data), len(nodes))
	}
	raw, err := g.appendNodes(op, make([]driver.CUgraphNode, 0, len(nodes)), nodes)
	return raw, data, err
}

// appendNodes appends the handles of nodes of this graph, as far as they are.
func (g *graphCore) appendNodes(op string, raw []driver.CUgraphNode, nodes []Node) ([]driver.CUgraphNode, error) {
	for i, n := range nodes {
		if !g.has(n) {
			return raw, refuse(op, ErrForeignNode, "dependency %d", i)
		}
		raw = append(raw, n.raw)
	}
	return raw, nil
}

// Nodes returns the graph's nodes, without those of graphs inside its nodes.
// Source: cuGraphGetNodes, cuGraphNodeGetType.
func (g *Graph) Nodes() (nodes []Node, err error) {
	err = g.do("Graph.Nodes", func(c *graphCore) (err error) {
		nodes, err = c.ownNodes()
		return err
	})
	return nodes, err
}

// Edge is a dependency between two nodes of a graph: To waits for From.
type Edge struct {
	From, To Node
	Data     driver.CUgraphEdgeData // always zero if the driver is older than CUDA 12.3
}

// Edges returns the dependencies between the graph's nodes. Source: cuGraphGetEdges.
func (g *Graph) Edges() ([]Edge, error) {
	var edges []Edge
	err := g.do("Graph.Edges", func(c *graphCore) error {
		from, to, data, err := c.edges()
		for i := range from {
			e := Edge{Data: data[i]}
			var err1, err2 error
			e.From, err1 = c.node(from[i])
			e.To, err2 = c.node(to[i])
			if err = errors.Join(err, err1, err2); err != nil {
				return err
			}
			edges = append(edges, e)
		}
		return err
	})
	return edges, err
}

func (g *graphCore) edges() (from, to []driver.CUgraphNode, data []driver.CUgraphEdgeData, err error) {
	get := func(from, to *driver.CUgraphNode, data *driver.CUgraphEdgeData, n *uint64) error {
		err := driver.CuGraphGetEdges(g.raw, from, to, data, n)
		if errors.Is(err, ErrNotSupported) { // before CUDA 12.3
			err = driver.CuGraphGetEdges_v1(g.raw, from, to, n)
		}
		return err
	}
	var n uint64
	if err := get(nil, nil, nil, &n); err != nil || n == 0 {
		return nil, nil, nil, err
	}
	from, to, data = make([]driver.CUgraphNode, n), make([]driver.CUgraphNode, n), make([]driver.CUgraphEdgeData, n)
	err = get(&from[0], &to[0], &data[0], &n)
	return from[:n], to[:n], data[:n], err
}

// DOT returns a description of the graph in Graphviz's DOT language. flags select the
// details of each node; 0 is the least, driver.CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE the most.
// Source: cuGraphDebugDotPrint, which writes to a temporary file.
func (g *Graph) DOT(flags driver.CUgraphDebugDot_flags) (string, error) {
	const op = "Graph.DOT"
	dir, err := os.MkdirTemp("", "cudabind-dot")
	if err != nil {
		return "", wrap(op, err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "graph.dot")
	err = g.do(op, func(c *graphCore) error { return driver.CuGraphDebugDotPrint(c.raw, ffi.CString(file), flags) })
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	return string(text), wrap(op, err)
}

// String describes the graph for messages.
func (g *Graph) String() string {
	if g == nil || g.core == nil {
		return neverOpened("Graph")
	}
	return handleText("Graph", g.core.raw, g.core.ctx.device, g.core.top().Closed())
}
