//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// nodeArgs are the arguments of a call that adds a kernel node, from node on, changes one in
// an executable, from exec on, or in a graph, from target on.
type nodeArgs struct {
	node   unsafe.Pointer
	graph  uintptr
	deps   unsafe.Pointer
	ndeps  uint64
	added  unsafe.Pointer // parameters
	exec   uintptr
	target driver.CUgraphNode
	params unsafe.Pointer
}

// nodeCall makes s a call that adds node to a graph, or changes it in a graph or an
// executable. At least 6 words after a can be read.
func (s *step) nodeCall(a *nodeArgs, c NodeCall, of uintptr, node *driver.CUgraphNode, deps *driver.CUgraphNode, ndeps uint32, p *driver.CUDA_KERNEL_NODE_PARAMS) {
	switch params := unseen(unsafe.Pointer(p)); c {
	case AddNode:
		a.node, a.graph = unseen(unsafe.Pointer(node)), of
		a.deps, a.ndeps, a.added = unseen(unsafe.Pointer(deps)), uint64(ndeps), params
		s.set(cu[fnAddKernelNode], unsafe.Pointer(&a.node), 5)
	case SetNode:
		a.target, a.params = *node, params
		s.set(cu[fnSetKernelNode], unsafe.Pointer(&a.target), 2)
	default:
		a.exec, a.target, a.params = of, *node, params
		s.set(cu[fnSetExecKernelNode], unsafe.Pointer(&a.exec), 3)
	}
}

// Do is cuGraphAddKernelNode, or changes the node. deps and args point to n.Deps and
// n.Args elements.
func (n *KernelNode) Do(deps *driver.CUgraphNode, args *Arg) driver.CUresult {
	var usual [usualArgs]unsafe.Pointer
	params := paramsOf(&usual, args, n.Args)
	p := driver.CUDA_KERNEL_NODE_PARAMS{
		Func:     n.Function,
		GridDimX: n.Grid[0], GridDimY: n.Grid[1], GridDimZ: n.Grid[2],
		BlockDimX: n.Block[0], BlockDimY: n.Block[1], BlockDimZ: n.Block[2],
		SharedMemBytes: n.SharedBytes, KernelParams: &params[0],
	}
	of := uintptr(n.Exec)
	if n.Call == AddNode {
		of = uintptr(n.Graph)
	}
	var l list
	l.in(n.Context, true) // without a context, adding a node crashes the driver
	var with struct {
		nodeArgs
		_ [6]uint64 // readable after all arguments
	}
	l.next().nodeCall(&with.nodeArgs, n.Call, of, &n.Node, deps, n.Deps, &p)
	r := l.do()
	runtime.KeepAlive(&with)
	runtime.KeepAlive(&p)
	runtime.KeepAlive(&usual)
	runtime.KeepAlive(params)
	runtime.KeepAlive(deps)
	runtime.KeepAlive(args)
	runtime.KeepAlive(n)
	return r
}

// A nodeList is the nodes of a list to add or to change.
type nodeList struct {
	call  NodeCall
	of    uintptr
	nodes []driver.CUgraphNode
	words words
	at    uint32 // in words, of the next node
}

// A nodeChunk is calls for nodes of a list that enter C once.
type nodeChunk struct {
	n, nsteps, nparams, ndeps int // of nodes and of used elements

	steps   [16 + 32]step // a call for each node, after those that copy its dependencies in the chunk
	args    [16]nodeArgs
	kernels [16]driver.CUDA_KERNEL_NODE_PARAMS // also readable after all arguments
	params  [128]unsafe.Pointer
	deps    [32]driver.CUgraphNode
	large   struct { // of a first node that does not fit
		params []unsafe.Pointer
		deps   []driver.CUgraphNode
	}
}

// room returns room for the arguments and dependencies of a node, at least one argument, or
// nil. An empty chunk has room for every node.
func (k *nodeChunk) room(nargs, ndeps int) ([]unsafe.Pointer, []driver.CUgraphNode) {
	nargs = max(nargs, 1)
	params, deps := k.params[k.nparams:], k.deps[k.ndeps:]
	switch {
	case k.n < len(k.args) && nargs <= len(params) && ndeps <= len(deps):
		k.nparams += nargs
		k.ndeps += ndeps
		return params, deps
	case k.n > 0:
		return nil, nil
	}
	k.large.params = slices.Grow(k.large.params[:0], nargs)[:nargs]
	k.large.deps = slices.Grow(k.large.deps[:0], ndeps)[:ndeps]
	return k.large.params, k.large.deps
}

// add adds the next node of the list, which is node i, unless there is no room for it.
func (k *nodeChunk) add(l *nodeList, i int) bool {
	w := l.words.from(l.at)
	nargs, ndeps := uint32(*w.at(5)>>32), uint32(*w.first>>32)
	params, deps := k.room(int(nargs), int(ndeps))
	if params == nil {
		return false
	}
	for d := range ndeps {
		k.depend(&deps[d], *w.at(6 + d), l.nodes[:i])
	}
	w.pointInto(params, 6+ndeps, nargs)
	args, p := &k.args[k.n], &k.kernels[k.n]
	*(*[5]uint64)(unsafe.Pointer(p)) = *(*[5]uint64)(unsafe.Pointer(w.at(1))) // up to SharedMemBytes
	p.KernelParams = (*unsafe.Pointer)(unseen(unsafe.Pointer(&params[0])))
	k.next().nodeCall(args, l.call, l.of, &l.nodes[i], unsafe.SliceData(deps), ndeps, p)
	k.n++
	l.at += uint32(*w.first)
	return true
}

// depend makes to a dependency of a list. A node of this chunk is only known when it has been
// added: it is copied then.
func (k *nodeChunk) depend(to *driver.CUgraphNode, dep uint64, before []driver.CUgraphNode) {
	if dep&sameList == 0 {
		*to = driver.CUgraphNode(dep)
		return
	}
	node := &before[dep&^sameList]
	if int(dep&^sameList) < len(before)-k.n {
		*to = *node
		return
	}
	k.next().copyWord((*uint64)(unsafe.Pointer(to)), (*uint64)(unsafe.Pointer(node)))
}

// next returns the next step.
func (k *nodeChunk) next() *step {
	s := &k.steps[k.nsteps]
	*s = step{}
	k.nsteps++
	return s
}

// do makes the calls. It returns the code of the first that fails, and how many have succeeded.
func (k *nodeChunk) do() (code driver.CUresult, done int) {
	r, at := makeSteps(&k.steps[0], k.nsteps)
	for i := range k.steps[:at] {
		if k.steps[i].fn != 0 {
			done++
		}
	}
	return driver.CUresult(r), done
}

// change adds or changes the nodes of a list for [KernelNodes].
func change(context driver.CUcontext, of uintptr, what NodeCall, n int, first *uint64, nodes *driver.CUgraphNode) uint64 {
	var calls list
	calls.in(context, true)
	var s Scope
	if r := s.begin(&calls); r != 0 {
		return uint64(r)
	}
	defer s.end()
	l := nodeList{call: what, of: of, nodes: unsafe.Slice(nodes, n), words: words{first}}
	r, done := driver.CUresult(0), 0
	var k nodeChunk
	for r == 0 && done < n {
		k.n, k.nsteps, k.nparams, k.ndeps = 0, 0, 0, 0
		for done+k.n < n && k.add(&l, done+k.n) {
		}
		code, made := k.do()
		r, done = code, done+made
	}
	return uint64(done)<<32 | uint64(r)
}
