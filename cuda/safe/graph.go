package safe

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// Graph is work to be done again and again: see [Stream.Capture]. It is a
// description; [Graph.Instantiate] makes something that can be launched. Any
// number of goroutines may use a graph at once.
type Graph struct {
	core    *graphCore
	cleanup runtime.Cleanup
}

type graphCore struct {
	lifetime.Handle
	ctx  *contextCore
	raw  driver.CUgraph
	kept *graphRetained

	of     *graphCore         // that this one is a part of
	inside driver.CUgraphNode // the node that has it: a child, or a conditional node

	mu          *mutex[graphRank]             // CUDA wants one thread at a time, for a graph and its parts
	lost        bool                          // not to be used any more, as a capture has failed
	destroyed   bool                          // by CUDA
	conditional bool                          // has a conditional node
	executed    bool                          // has been instantiated
	capturing   bool                          // a stream captures into it
	gone        map[driver.CUgraphNode]uint32 // how many nodes of a handle were destroyed, as CUDA uses it again
	parts       map[driver.CUgraph]*graphCore // that somebody knows
}

func newGraphCore(x *contextCore) *graphCore {
	return &graphCore{ctx: x, kept: newGraphRetained(), mu: new(mutex[graphRank])}
}

// top is the graph that g is a part of, if it is, else g.
func (g *graphCore) top() *graphCore {
	for g.of != nil {
		g = g.of
	}
	return g
}

// mark marks the whole graph, with which its parts live.
func (g *graphCore) Acquire() bool { return g.top().Handle.Acquire() }

func (g *graphCore) Release() { g.top().Handle.Release() }

// adopt makes a Graph of a core.
func (g *graphCore) adopt(op string) (*Graph, error) {
	if err := g.Open(g, &g.ctx.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, g.Destroy(true)))
	}
	u := &Graph{core: g}
	u.cleanup = lifetime.Cleanup(u, &g.Handle)
	return u, nil
}

// NewGraph makes an empty graph, to be captured into. Source: cuGraphCreate.
func NewGraph(x *Context) (*Graph, error) {
	const op = "NewGraph"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	g := newGraphCore(c)
	if err := c.withCurrent(func() error { return driver.CuGraphCreate(&g.raw, 0) }); err != nil {
		return nil, wrap(op, err)
	}
	return g.adopt(op)
}

func (g *graphCore) Kind() string { return "Graph" }

func (g *graphCore) Destroy(wait bool) error {
	if wait {
		g.mu.Lock()
	} else if !g.mu.TryLock() {
		return lifetime.ErrLater
	}
	defer g.mu.Unlock()
	defer g.kept.release()
	if g.destroyed {
		return nil
	}
	return g.ctx.destroying("Graph.Close", func() error {
		return executables.destroying(func() error { return driver.CuGraphDestroy(g.raw) })
	})
}

func (g *Graph) acquire(op string) (*graphCore, error) {
	if g == nil || g.core == nil || !g.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return g.core, nil
}

// usable returns the error of a graph that is lost, or whose whole is. mu is held.
func (g *graphCore) usable(op string) error {
	top := g.top()
	if top.lost {
		return &Error{Op: op, Err: ErrGraphLost}
	}
	if g.ctx.shared.reset.Load() {
		return &Error{Op: op, Err: ErrReset}
	}
	if g.destroyed {
		return refuse(op, ErrClosed, "its node is destroyed")
	}
	return nil
}

// changeable returns the error of a graph that cannot be changed or copied now. mu
// is held.
func (g *graphCore) changeable(op string) error {
	if g.top().capturing {
		return refuse(op, ErrCapturing, "into the graph")
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

// change is do for what no stream may capture into meanwhile.
func (g *Graph) change(op string, f func(*graphCore) error) error {
	return g.do(op, func(c *graphCore) error {
		if err := c.changeable(op); err != nil {
			return err
		}
		return f(c)
	})
}

// do is Graph.do for a graph that is marked.
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

// Close destroys the graph. Its executables keep what they need. Closing again
// does nothing, and so does closing a part of another graph, which goes with
// that. Source: cuGraphDestroy.
func (g *Graph) Close() error {
	if g == nil || g.core == nil || g.core.of != nil {
		return nil
	}
	g.cleanup.Stop()
	return g.core.Close()
}

// Raw is the graph for calls of package driver. It is 0 once the graph is
// closed, and to be used by one thread at a time.
func (g *Graph) Raw() driver.CUgraph {
	if g == nil || g.core == nil || g.core.top().Closed() {
		return 0
	}
	return g.core.raw
}

// Clone copies the graph. One with conditional nodes is [ErrConditional]; one that
// allocates memory CUDA refuses with driver.CUDA_ERROR_NOT_SUPPORTED.
// Source: cuGraphClone, cuGraphNodeFindInClone.
func (g *Graph) Clone() (*Graph, error) {
	const op = "Graph.Clone"
	var clone *graphCore
	err := g.change(op, func(c *graphCore) error {
		if c.top().conditional {
			return refuse(op, ErrConditional, "it cannot be cloned")
		}
		clone = newGraphCore(c.ctx)
		if err := driver.CuGraphClone(&clone.raw, c.raw); err != nil {
			return err
		}
		clone.kept = c.kept.share()
		clone.kept.user = clone.kept.user.behind()
		return clone.kept.rename(func(n driver.CUgraphNode) (driver.CUgraphNode, error) {
			var own driver.CUgraphNode
			err := driver.CuGraphNodeFindInClone(&own, n, clone.raw)
			if err == driver.CUDA_ERROR_INVALID_VALUE { // of a part
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

// has tells whether a node is of the graph, and alive, as CUDA does not look.
func (g *graphCore) has(n Node) bool {
	return n.of == g && !n.isGone()
}

// dependencies are the handles of nodes, which must be of this graph. data is for
// each of them, or for none.
func (g *graphCore) dependencies(op string, nodes []Node, data []driver.CUgraphEdgeData) ([]driver.CUgraphNode, []driver.CUgraphEdgeData, error) {
	if len(data) > 0 && len(data) != len(nodes) {
		return nil, nil, refuse(op, ErrRange, "data of %d edges for %d nodes", len(data), len(nodes))
	}
	raw := make([]driver.CUgraphNode, len(nodes))
	for i, n := range nodes {
		if !g.has(n) {
			return nil, nil, refuse(op, ErrForeignNode, "node %d", i)
		}
		raw[i] = n.raw
	}
	return raw, data, nil
}

// Nodes lists the graph's nodes. Source: cuGraphGetNodes, cuGraphNodeGetType.
func (g *Graph) Nodes() (nodes []Node, err error) {
	err = g.do("Graph.Nodes", func(c *graphCore) (err error) {
		nodes, err = c.nodes(func(raw *driver.CUgraphNode, n *uint64) error { return driver.CuGraphGetNodes(c.raw, raw, n) })
		return err
	})
	return nodes, err
}

// An Edge says that To waits for From.
type Edge struct {
	From, To Node
	Data     driver.CUgraphEdgeData // zero where the driver is older than CUDA 12.3
}

// Edges lists the dependencies between the graph's nodes.
// Source: cuGraphGetEdges.
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

// DOT describes the graph in the language of Graphviz. flags say how much of each
// node. Source: cuGraphDebugDotPrint, which writes to a file.
func (g *Graph) DOT(flags driver.CUgraphDebugDot_flags) (string, error) {
	const op = "Graph.DOT"
	dir, err := os.MkdirTemp("", "cudabind-dot")
	if err != nil {
		return "", wrap(op, err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "graph.dot")
	path := append([]byte(file), 0)
	err = g.do(op, func(c *graphCore) error { return driver.CuGraphDebugDotPrint(c.raw, &path[0], uint32(flags)) })
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	return string(text), wrap(op, err)
}
