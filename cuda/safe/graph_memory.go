package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// AddAlloc adds a node that allocates memory for n values at each launch of the graph,
// always at the same address. The buffer may be used by nodes that depend on this one and
// by work enqueued after the launch, until the memory is freed by one of these:
//
//   - a [FreeNode] in this or another graph
//   - [Buffer.FreeAsync]
//   - the next launch, if the graph was instantiated with
//     [InstantiateOptions].AutoFreeOnLaunch
//
// Without AutoFreeOnLaunch, a launch returns driver.CUDA_ERROR_INVALID_VALUE while the memory is
// still allocated. Except in captures, using the buffer returns [ErrNotAllocated] before the
// first [GraphExec.Launch] of the graph, and after FreeAsync or the launch of a FreeNode. Nodes
// must not use it after a FreeNode: the resulting fault may be fatal, see [IsFatal]. Closing the
// buffer does not free the memory. The buffer is closed with the graph and its executables, which
// also frees the memory if it is still allocated.
//
// A graph with such a node can have one executable at a time. It can neither be cloned nor become
// a child of another graph, and its nodes and edges cannot be removed. AddAlloc returns
// [ErrInvalidArgument] if T contains Go pointers or bools, and [ErrRange] if n is below 1. To
// allocate other memory than the device's, use [AddAllocWith]. Source: cuGraphAddMemAllocNode.
func AddAlloc[T any](g *Graph, n int, deps ...Node) (*Buffer[T], Node, error) {
	return AddAllocWith[T](g, n, AllocOptions{}, deps...)
}

// FreeNode returns the parameters of a node that frees the memory of b, a buffer that the same or another graph
// allocates: see [AddAlloc] and [NewBufferAsync]. The node must depend on the nodes that use the memory. Calls with
// these parameters return [ErrInvalidArgument] if b is any other buffer. Source: cuGraphAddMemFreeNode.
func FreeNode[T any](b *Buffer[T]) NodeParams {
	take := func(op string, k *retained, _ *graphCore) (calls nodeCalls, err error) {
		s := b.span(nil)
		if err := s.retainedBy(op, k); err != nil {
			return calls, err
		}
		calls.adds = func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
			err := driver.CuGraphAddMemFreeNode(n, g, deps, count, b.address)
			if err == nil {
				k.frees(b.memory.block)
			}
			return err
		}
		return calls, b.ofGraph(op)
	}
	return NodeParams{other: &funcNode{driver.CU_GRAPH_NODE_TYPE_MEM_FREE, take}}
}

// ofGraph refuses memory that no graph allocates, and slices of buffers.
func (b *Buffer[T]) ofGraph(op string) error {
	if b.memory.graph == nil || b.part {
		return refuse(op, ErrInvalidArgument, "no graph allocates the buffer, or it is a slice of one")
	}
	return nil
}

// FreeAsync frees, in the order of s, memory that a launch of a graph has allocated: see [AddAlloc] and
// [NewBufferAsync]. That happens after all enqueued work that uses the memory, and FreeAsync waits for synchronous
// copies in flight. The next launch of the graph, on any stream, waits for that. The buffer can be used again after
// that launch. If s captures, FreeAsync adds a node that frees the memory after all work of the capture that uses it.
// Capture all copies of the memory before, also those in bodies: CUDA refuses them afterwards.
//
// It returns [ErrInvalidArgument] if no graph allocates b, [ErrNotAllocated] before the first launch of the graph or if
// the memory is already freed, and [ErrClosed] if a node of the capture frees the memory already. Source:
// cuMemFreeAsync.
func (b *Buffer[T]) FreeAsync(s *Stream) error {
	const op = "Buffer.FreeAsync"
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := b.ofGraph(op); err != nil {
		return err
	}
	sc, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer sc.Release()
	for {
		captures := sc.captures.Load()
		if captured, err := m.freeCaptured(op, sc); captured {
			return err
		}
		if err := m.freePresent(op, sc); !sc.capturedSince(captures, err) {
			return err
		}
	}
}

// freePresent frees the block, which a launch has allocated, in the order of s.
func (b *block) freePresent(op string, s *streamCore) error {
	// Before the marks: no other call begins to use the memory after them.
	present, claim := &b.graph.address.present, &graphAllocation{}
	if !present.CompareAndSwap(b.graph, claim) {
		return b.unusable(op)
	}
	admit.Between()
	err := b.freeAfterUses(op, s, claim)
	if err != nil {
		present.CompareAndSwap(claim, b.graph)
	}
	return err
}

// freeAfterUses frees the block in the order of s, after all work that uses it, unless another
// call does so: claim is then no longer at the block's address.
func (b *block) freeAfterUses(op string, s *streamCore, claim *graphAllocation) error {
	for nap := admit.ShortNap; ; nap = nap.Take() {
		code, err := b.tryFreeAfterUses(op, s, claim)
		switch {
		case err != nil:
			return err
		case code != driver.CUDA_ERROR_NOT_READY:
			return check(op, code)
		}
	}
}

// tryFreeAfterUses returns driver.CUDA_ERROR_NOT_READY if work that uses the block has come
// meanwhile, or another call is in the way.
func (b *block) tryFreeAfterUses(op string, s *streamCore, claim *graphAllocation) (driver.CUresult, error) {
	for nap := admit.ShortNap; b.graph.copying.Load() > 0; nap = nap.Take() {
		if rt.InCallback() {
			return 0, &Error{Op: op, Err: ErrInCallback}
		}
	}
	markers, err := b.known().markers(true)
	defer endAll(markers)
	if err != nil {
		return 0, wrap(op, err)
	}
	a := admission{op: op, stream: s, flags: asks}
	if err := a.admit(); err != nil {
		return 0, err
	}
	defer a.leave(true)
	if s.capturing() {
		return rt.CodeCapturing, nil
	}
	p := b.graph.address
	if !p.mu.TryLock() { // a launch
		return driver.CUDA_ERROR_NOT_READY, nil
	}
	defer p.mu.Unlock()
	switch p.present.Load() {
	case claim:
	case b.graph: // by a launch after the marks
		p.present.Store(claim)
		return driver.CUDA_ERROR_NOT_READY, nil
	default: // a launch has freed it, or another call does
		return 0, nil
	}
	for _, m := range markers {
		if code := m.orders(s); code != 0 {
			return code, nil
		}
	}
	b.note(s)
	return b.freeOn(s)
}

// freeOn frees the block in the order of s, and has later launches wait for that. s and the
// block's address are locked.
func (b *block) freeOn(s *streamCore) (driver.CUresult, error) {
	e, end, err := s.ctx.event()
	if err != nil {
		return 0, err
	}
	if code := s.home().FreeAsync(b.address, s.raw); code != 0 {
		end()
		return code, nil
	}
	b.graph.vanish()
	b.graph.address.forgetFree()
	if rt.Record(s.callContext, e, s.raw) != 0 { // CUDA is lost
		end()
		return 0, nil
	}
	b.graph.address.free = marker{s, e} // whose end is the event's
	return 0, nil
}

// TrimGraphMemory releases memory of the context's device that the driver has reserved for
// graphs and that is not allocated. The next launch that needs it reserves it again.
// Source: cuDeviceGraphMemTrim.
func (x *Context) TrimGraphMemory() error {
	return x.do("Context.TrimGraphMemory", func() error { return driver.CuDeviceGraphMemTrim(x.core.device.raw) })
}
