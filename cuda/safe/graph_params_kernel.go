package safe

import (
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// kernelNode is the most frequent kind: adding or setting it takes one call of C. It is small,
// as programs make one for each node and each change.
type kernelNode struct {
	kernel      *Kernel
	grid, block Dim
	sharedBytes uint32
	count       uint16 // of few
	made        bool   // by KernelNode
	few         [4]Arg
	rest        *kernelNodeRest // nil for most
}

// kernelNodeRest has the arguments if they are many, and what few launches configure.
type kernelNodeRest struct {
	cfg  LaunchConfig
	args []Arg
}

// KernelNode returns the parameters of a node that launches a kernel: see [Kernel.Launch] for the arguments and errors.
// It copies the values of the arguments. Only the value of a [Ref] is read later, when the node is added or set.
//
// [Graph.Add] and [Node.Set] also set cfg's launch attributes: Cluster, Cooperative, Priority,
// ProgrammaticSerialization, MemSyncDomain and Attributes. A later Set without an attribute leaves it unchanged.
// [GraphExec.Set] returns [ErrInvalidArgument] if cfg sets any.
//
// Source: cuGraphAddKernelNode, cuGraphKernelNodeSetParams, cuGraphKernelNodeSetAttribute,
// cuGraphExecKernelNodeSetParams.
func KernelNode(k *Kernel, cfg LaunchConfig, args ...Arg) NodeParams {
	p := NodeParams{kernel: kernelNode{kernel: k, grid: cfg.Grid, block: cfg.Block, sharedBytes: cfg.SharedBytes, made: true}}
	w := &p.kernel
	if len(args) > len(w.few) || len(cfg.Uses) > 0 || cfg.attributed() {
		w.rest = &kernelNodeRest{cfg, slices.Clone(args)}
		w.rest.cfg.Uses, w.rest.cfg.Attributes = slices.Clone(cfg.Uses), slices.Clone(cfg.Attributes)
		return p
	}
	w.count = uint16(copy(w.few[:], args))
	return p
}

func (w *kernelNode) args() []Arg {
	if w.rest != nil {
		return w.rest.args
	}
	return w.few[:w.count]
}

func (w *kernelNode) uses() []Arg {
	if w.rest != nil {
		return w.rest.cfg.Uses
	}
	return nil
}

func (w *kernelNode) context() *contextCore { return w.kernel.core.ctx }

func (w *kernelNode) attributed() bool { return w.rest != nil && w.rest.cfg.attributed() }

func (w *kernelNode) take(op string, k *retained) error {
	return w.each(op, func(h *lifetime.Handle, b *block) bool {
		return k.add(h, h.Acquire) && (b == nil || w.context().mayUse(b))
	})
}

// each calls use with the objects that a node will use, and with the block if that is one, until
// use fails.
func (w *kernelNode) each(op string, use func(h *lifetime.Handle, b *block) bool) error {
	if !w.made {
		return refuse(op, ErrInvalidArgument, "the NodeParams are empty: functions such as KernelNode make some")
	}
	if w.kernel == nil || w.kernel.core == nil {
		return &Error{Op: op, Err: ErrClosed}
	}
	m, args, uses := w.kernel.core, w.args(), w.uses()
	if !use(&m.Handle, nil) {
		return &Error{Op: op, Err: ErrClosed}
	}
	if err := w.kernel.check(op, &w.block, args); err != nil {
		return err
	}
	memory := func(a *Arg) bool {
		b := a.block()
		return use(&b.Handle, b)
	}
	for i := range args {
		if args[i].raw.Kind() == rt.NearOfBlock && !memory(&args[i]) {
			return w.kernel.badArgument(op, args, i)
		}
	}
	for i := range uses {
		if uses[i].raw.Kind() != rt.NearOfBlock || !memory(&uses[i]) {
			return w.kernel.badUse(op, nil, uses, i)
		}
	}
	return nil
}

// changeKernel changes a kernel node, whose graph or executable is locked, by set. The node will
// use the objects in listed. Mostly it has used the same ones before: then nothing is retained
// anew. If not, replaced gets what it retained before.
func (w *NodeParams) changeKernel(op string, n Node, kept *graphRetained, listed *objectList, set func() error, replaced func(before *retained)) error {
	c := w.kernel.context()
	if now := kept.of(n.raw); now != nil && listed.are(now, c) {
		return set()
	}
	k := newRetained()
	if !listed.take(k, c) {
		k.release()
		u, err := taken(op, w, n.of)
		if err != nil {
			return err
		}
		k = u.kept
	}
	if err := set(); err != nil {
		k.release()
		return err
	}
	before := kept.set(n.raw, k)
	if before != nil && listed.more && k.sameObjects(before) {
		before.release()
	} else {
		replaced(before)
	}
	return nil
}

// An objectList is the first objects of a node, without references.
type objectList struct {
	objects [8]*lifetime.Handle
	n       int
	more    bool // there are more
}

// add is for each. It fails if the object is closed.
func (l *objectList) add(h *lifetime.Handle, _ *block) bool {
	switch {
	case h.Closed():
		return false
	case slices.Contains(l.objects[:l.n], h):
	case l.n == len(l.objects):
		l.more = true
	default:
		l.objects[l.n] = h
		l.n++
	}
	return true
}

// take has k, which is not shared yet, retain the objects. It fails if there are more of them, one was
// closed meanwhile, or kernels of the context may not use one.
func (l *objectList) take(k *retained, c *contextCore) bool {
	for _, h := range l.objects[:l.n] {
		if !h.Acquire() {
			return false
		}
		k.objects = append(k.objects, h)
		if b, ok := h.Object().(*block); ok && !c.mayUse(b) {
			return false
		}
	}
	return !l.more
}

// are returns whether k, which does not change any more, retains the objects and nothing else, and
// kernels of a context may use them.
func (l *objectList) are(k *retained, c *contextCore) bool {
	if l.more || l.n != len(k.objects) || !k.plain() {
		return false
	}
	for _, h := range l.objects[:l.n] {
		if !slices.Contains(k.objects, h) {
			return false
		}
		if b, ok := h.Object().(*block); ok && !c.mayUse(b) { // asked only now, as k has a reference
			return false
		}
	}
	return true
}

// keep has k retain the module and the memory of the node. Another retained set holds them, so none is gone.
func (w *kernelNode) keep(k *retained) {
	m := w.kernel.core
	k.add(&m.Handle, m.TryRetain)
	for _, all := range [][]Arg{w.args(), w.uses()} {
		for i := range all {
			if a := &all[i]; a.raw.Kind() == rt.NearOfBlock {
				b := a.block()
				k.add(&b.Handle, b.TryRetain)
			}
		}
	}
}

// fill sets what the kernel and its configuration say about the node, and returns the arguments.
func (w *kernelNode) fill(n *rt.KernelNode) *rt.Arg {
	n.Context, n.Function = w.context().raw, w.kernel.function // without a context, adding crashes the driver
	n.Grid, n.Block, n.SharedBytes = w.grid.full(), w.block.full(), w.sharedBytes
	args := w.args()
	n.Args = uint32(len(args))
	if len(args) == 0 {
		return nil
	}
	return &args[0].raw
}

// refused explains why CUDA refuses the node.
func (w *kernelNode) refused(op string, code driver.CUresult) error {
	cfg := LaunchConfig{Grid: w.grid, Block: w.block, SharedBytes: w.sharedBytes}
	if w.rest != nil {
		cfg = w.rest.cfg
	}
	return w.kernel.refused(failed(op, code), &cfg)
}

// call adds the node, or changes it in a graph.
func (w *kernelNode) call(n *rt.KernelNode, deps []driver.CUgraphNode) error {
	args := w.fill(n)
	n.Deps = uint32(len(deps))
	if code := n.Do(unsafe.SliceData(deps), args); code != 0 {
		return w.refused("", code)
	}
	return nil
}

func (w *kernelNode) add(g *graphCore, deps []driver.CUgraphNode) (driver.CUgraphNode, error) {
	n := rt.KernelNode{Graph: g.raw, Call: rt.AddNode}
	err := w.call(&n, deps)
	if err == nil && w.attributed() {
		if err = g.ctx.withCurrent(func() error { return w.setAttributes(n.Node) }); err != nil && driver.CuGraphDestroyNode(n.Node) == nil {
			n.Node = 0
		}
	}
	return n.Node, err
}

// set sets the attributes first: nothing may fail once the node has the new kernel.
func (w *kernelNode) set(n Node) error {
	if w.attributed() {
		if err := n.of.ctx.withCurrent(func() error { return w.setAttributes(n.raw) }); err != nil {
			return err
		}
	}
	return w.call(&rt.KernelNode{Node: n.raw, Call: rt.SetNode}, nil)
}

func (w *kernelNode) setExec(e driver.CUgraphExec, n Node) error {
	if w.attributed() {
		return refuse("", ErrInvalidArgument, "CUDA cannot change the launch attributes of a kernel node in an executable")
	}
	return w.call(&rt.KernelNode{Exec: e, Node: n.raw, Call: rt.SetExecNode}, nil)
}

func (w *kernelNode) setAttributes(n driver.CUgraphNode) error {
	for _, a := range w.rest.cfg.attributes(nil) {
		if err := driver.CuGraphKernelNodeSetAttribute(n, driver.CUkernelNodeAttrID(a.Id), &a.Value); err != nil {
			return err
		}
	}
	return nil
}
