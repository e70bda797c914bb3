//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// The operations on graphs and nodes, for tests that try all operations. Runs on any driver.

package safe_test

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// nodes returns the host node and the kernel node of the world's graph.
func (w *world) nodes() (host, kernel safe.Node, err error) {
	nodes, err := w.g.Nodes()
	for _, n := range nodes {
		if n.Type() == driver.CU_GRAPH_NODE_TYPE_KERNEL {
			kernel = n
		} else {
			host = n
		}
	}
	return host, kernel, err
}

// onNode is an operation on the kernel node of the world's graph.
func onNode(name string, do func(w *world, n safe.Node) error) operation {
	return operation{name, func(w *world) error {
		_, n, err := w.nodes()
		if err != nil {
			return err
		}
		return do(w, n)
	}}
}

func (w *world) adds(work safe.NodeParams) error { _, err := w.g.Add(work); return err }

// captures makes a graph of what f captures on w.s.
func (w *world) captures(f func() error) error {
	g, err := w.s.Capture(f)
	_, err = also(w, g, err)
	return err
}

func (w *world) storing() safe.NodeParams {
	return safe.KernelNode(w.k, one, w.a.Arg(), safe.Val(uint64(3)))
}

func init() {
	within["Node.Params"] = []string{"Graph.Nodes"}
	for _, op := range []string{"Node.Dependencies", "Node.Destroy", "Node.Set", "GraphExec.Set", "GraphExec.SetEnabled"} {
		within[op] = []string{"Graph.Nodes"}
	}
	within["Graph.AddEdges"] = []string{"Graph.Nodes", "Graph.RemoveEdges"}
	within["Node.ChildGraph"] = []string{"NewGraph", "Graph.Add"}
	within["Stream.AddNode"] = []string{"Stream.Capture"}
	within["Stream.AddWhile"] = []string{"Stream.Capture", "Stream.NewCondition", "Graph.Add"}
	within["NewBufferAsync"] = []string{"Stream.Capture", "Buffer.FreeAsync", "Close"}
	within["Graph.AddIf"] = []string{"NewGraph", "Graph.NewCondition"}
	operations = append(operations,
		operation{"Graph.Add", func(w *world) error { return w.adds(w.storing()) }},
		operation{"Graph.Add", func(w *world) error {
			cfg := one
			cfg.Cooperative = true
			return w.adds(safe.KernelNode(w.k, cfg, w.a.Arg(), safe.Val(uint64(3))))
		}},
		operation{"Graph.Add", func(w *world) error { return w.adds(safe.CopyNode(w.a, w.h)) }},
		operation{"Graph.Add", func(w *world) error { return w.adds(safe.FillNode(w.a, 1)) }},
		operation{"Graph.Add", func(w *world) error { return w.adds(safe.FillNode(w.wide(), 1)) }},
		operation{"Graph.Add", func(w *world) error { return w.adds(safe.HostFuncNode(func() {})) }},
		operation{"Graph.Add", func(w *world) error { return w.adds(safe.RecordNode(w.e)) }},
		operation{"Graph.Add", func(w *world) error { return w.adds(safe.WaitEventNode(w.e)) }},
		operation{"Graph.Add", func(w *world) error {
			return w.adds(safe.MemOpsNode(w.x, safe.NewWriteOp(w.plain.At(0), 1), safe.NewWriteOp(w.h.At(0), 1)))
		}},
		operation{"Node.ChildGraph", func(w *world) error {
			g, err := safe.NewGraph(w.x)
			if _, err = also(w, g, err); err != nil {
				return err
			}
			n, err := w.g.Add(safe.ChildGraphNode(g))
			if err != nil {
				return err
			}
			_, err = n.ChildGraph()
			return err
		}},
		operation{"Graph.AddEdges", func(w *world) error {
			host, kernel, err := w.nodes()
			return errors.Join(err, w.g.RemoveEdges(safe.Edge{From: host, To: kernel}), w.g.AddEdges(safe.Edge{From: host, To: kernel}))
		}},
		operation{"AddAlloc", func(w *world) error { _, _, err := safe.AddAlloc[byte](w.g, 100); return err }},
		operation{"Context.TrimGraphMemory", func(w *world) error { return w.x.TrimGraphMemory() }},
		operation{"Graph.AddIf", func(w *world) error {
			g, err := safe.NewGraph(w.x)
			if _, err = also(w, g, err); err != nil {
				return err
			}
			c, err := g.NewCondition(safe.ConditionOptions{})
			if err != nil {
				return err
			}
			_, _, err = g.AddIf(c)
			return err
		}},
		operation{"Stream.AddNode", func(w *world) error {
			return w.captures(func() error {
				_, err := w.s.AddNode(w.storing())
				return err
			})
		}},
		operation{"Stream.AddWhile", func(w *world) error {
			return w.captures(func() error {
				c, err := w.s.NewCondition(safe.ConditionOptions{})
				if err != nil {
					return err
				}
				body, err := w.s.AddWhile(c)
				if err != nil {
					return err
				}
				_, err = body.Add(safe.EmptyNode())
				return err
			})
		}},
		operation{"NewBufferAsync", func(w *world) error {
			return w.captures(func() error {
				b, err := safe.NewBufferAsync[byte](w.s, 100)
				if err != nil {
					return err
				}
				return b.Close()
			})
		}},
		operation{"NewBufferAsync", func(w *world) error {
			return w.captures(func() error {
				b, err := safe.NewBufferAsync[byte](w.s, 100)
				if err != nil {
					return err
				}
				return b.FreeAsync(w.s)
			})
		}},
		onNode("Node.Params", func(w *world, n safe.Node) error { _, err := n.Params(); return err }),
		onNode("Node.Dependencies", func(w *world, n safe.Node) error { _, err := n.Dependencies(); return err }),
		onNode("Node.Destroy", func(w *world, n safe.Node) error { return n.Destroy() }),
		onNode("Node.Set", func(w *world, n safe.Node) error { return n.Set(w.storing()) }),
		onNode("GraphExec.Set", func(w *world, n safe.Node) error { return w.exec.Set(n, w.storing()) }),
		onNode("GraphExec.SetEnabled", func(w *world, n safe.Node) error { return w.exec.SetEnabled(n, false) }),
	)
}
