package safe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Graph is work to be done again and again: see [Stream.Capture]. It is a
// description; [Graph.Instantiate] makes something that can be launched. Any
// number of goroutines may use a graph at once.
type Graph struct {
	core    *graphCore
	cleanup runtime.Cleanup
}

type graphCore struct {
	handle
	ctx  *contextCore
	raw  driver.CUgraph
	kept *keepsake

	mu        sync.Mutex // CUDA wants one thread at a time
	lost      bool       // not to be used any more, as a capture has failed
	destroyed bool       // by CUDA
}

// adopt makes a Graph of a core.
func (g *graphCore) adopt(op string) (*Graph, error) {
	if err := g.open(g, &g.ctx.handle); err != nil {
		return nil, wrap(op, errors.Join(err, g.destroy(true)))
	}
	u := &Graph{core: g}
	u.cleanup = cleanup(u, &g.handle)
	return u, nil
}

// NewGraph makes an empty graph, to be captured into. Source: cuGraphCreate.
func NewGraph(x *Context) (*Graph, error) {
	const op = "NewGraph"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.unmark()
	g := &graphCore{ctx: c, kept: (&keepsake{}).share()}
	if err := c.in(func() error { return driver.CuGraphCreate(&g.raw, 0) }); err != nil {
		return nil, wrap(op, err)
	}
	return g.adopt(op)
}

func (g *graphCore) kind() string { return "Graph" }

func (g *graphCore) destroy(bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.kept.drop()
	if g.destroyed {
		return nil
	}
	return g.ctx.destroying("Graph.Close", func() error { return driver.CuGraphDestroy(g.raw) })
}

func (g *Graph) acquire(op string) (*graphCore, error) {
	if g == nil || g.core == nil || !g.core.mark() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return g.core, nil
}

// usable returns the error of a graph that is lost. mu is held.
func (g *graphCore) usable(op string) error {
	if g.lost {
		return &Error{Op: op, Err: ErrGraphLost}
	}
	return nil
}

// do calls f with the graph locked and the context current.
func (g *Graph) do(op string, f func(*graphCore) error) error {
	c, err := g.acquire(op)
	if err != nil {
		return err
	}
	defer c.unmark()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(op); err != nil {
		return err
	}
	return wrap(op, c.ctx.in(func() error { return f(c) }))
}

// Close destroys the graph. Its executables keep what they need. Closing again
// does nothing. Source: cuGraphDestroy.
func (g *Graph) Close() error {
	if g == nil || g.core == nil {
		return nil
	}
	g.cleanup.Stop()
	return g.core.close()
}

// Raw is the graph for calls of package driver. It is good until the graph is
// closed, and to be used by one thread at a time.
func (g *Graph) Raw() driver.CUgraph {
	if g == nil || g.core == nil {
		return 0
	}
	return g.core.raw
}

// Clone copies the graph. Source: cuGraphClone.
func (g *Graph) Clone() (*Graph, error) {
	const op = "Graph.Clone"
	clone := &graphCore{}
	err := g.do(op, func(c *graphCore) error {
		if err := driver.CuGraphClone(&clone.raw, c.raw); err != nil {
			return err
		}
		clone.ctx, clone.kept = c.ctx, c.kept.share()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return clone.adopt(op)
}

// A Node is one piece of work of a graph. It is good as long as the graph.
type Node struct {
	raw  driver.CUgraphNode
	of   *graphCore
	kind driver.CUgraphNodeType
}

// Raw is the node for calls of package driver.
func (n Node) Raw() driver.CUgraphNode { return n.raw }

// Type is what the node does, such as driver.CU_GRAPH_NODE_TYPE_KERNEL. Newer
// drivers may have types that this package does not know.
func (n Node) Type() driver.CUgraphNodeType { return n.kind }

func (n Node) String() string { return fmt.Sprintf("%v %#x", n.kind, uintptr(n.raw)) }

// node makes a Node of a handle.
func (g *graphCore) node(raw driver.CUgraphNode) (Node, error) {
	n := Node{raw: raw, of: g}
	return n, driver.CuGraphNodeGetType(raw, &n.kind)
}

// dependencies are the handles of nodes, which must be of this graph, as CUDA
// does not look. data is for each of them, or for none.
func (g *graphCore) dependencies(op string, nodes []Node, data []driver.CUgraphEdgeData) ([]driver.CUgraphNode, []driver.CUgraphEdgeData, error) {
	if len(data) > 0 && len(data) != len(nodes) {
		return nil, nil, refuse(op, ErrRange, "data of %d edges for %d nodes", len(data), len(nodes))
	}
	var raw []driver.CUgraphNode
	for i, n := range nodes {
		if n.of != g {
			return nil, nil, refuse(op, ErrGraph, "node %d", i)
		}
		raw = append(raw, n.raw)
	}
	return raw, data, nil
}

// Nodes lists the graph's nodes. Source: cuGraphGetNodes, cuGraphNodeGetType.
func (g *Graph) Nodes() ([]Node, error) {
	var nodes []Node
	err := g.do("Graph.Nodes", func(c *graphCore) error {
		var n uint64
		if err := driver.CuGraphGetNodes(c.raw, nil, &n); err != nil || n == 0 {
			return err
		}
		raw := make([]driver.CUgraphNode, n)
		if err := driver.CuGraphGetNodes(c.raw, &raw[0], &n); err != nil {
			return err
		}
		for _, r := range raw[:n] {
			node, err := c.node(r)
			if err != nil {
				return err
			}
			nodes = append(nodes, node)
		}
		return nil
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
