package safe

import (
	"os"
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// ExternalSemaphore is a semaphore of another API, such as Vulkan, which orders the work of CUDA
// and of that API: see [Stream.SignalExternal] and [Stream.WaitExternal]. Any number of
// goroutines may use it at once.
type ExternalSemaphore struct {
	memory   *memory
	raw      *driver.CUexternalSemaphore
	timeline bool
}

// ExternalSemaphoreOptions are the options of [ImportExternalSemaphore].
type ExternalSemaphoreOptions struct {
	// Timeline says that the semaphore has a value, which only grows: in Vulkan, one of
	// VK_SEMAPHORE_TYPE_TIMELINE. Otherwise it is a binary semaphore: each wait resets it,
	// and needs a signal of its own.
	Timeline bool
}

// ImportExternalSemaphore imports a semaphore by the opaque file descriptor that another API has
// exported, such as vkGetSemaphoreFdKHR. The caller still owns the file and may close it
// afterwards: CUDA gets a duplicate of the descriptor. It returns CUDA's error if the file does
// not stand for a semaphore. Source: cuImportExternalSemaphore, and cuDestroyExternalSemaphore
// when closed.
func ImportExternalSemaphore(x *Context, f *os.File, o ExternalSemaphoreOptions) (*ExternalSemaphore, error) {
	const op = "ImportExternalSemaphore"
	raw := new(driver.CUexternalSemaphore)
	d := driver.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC{Type: driver.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD}
	if o.Timeline {
		d.Type = driver.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
	}
	m, err := importExternal(op, x, f, d.Handle.Fd(),
		func() error { return driver.CuImportExternalSemaphore(raw, &d) },
		func() error { return driver.CuDestroyExternalSemaphore(*raw) })
	if err != nil {
		return nil, err
	}
	return &ExternalSemaphore{memory: m, raw: raw, timeline: o.Timeline}, nil
}

// Close waits until the work that uses the semaphore has completed, and releases it.
// Closing again does nothing.
// Source: cuDestroyExternalSemaphore.
func (e *ExternalSemaphore) Close() error {
	if e == nil {
		return nil
	}
	return e.memory.close()
}

// Raw returns the handle for calls to package driver. It returns 0 once e is closed. Keep
// e reachable while you use the handle.
func (e *ExternalSemaphore) Raw() driver.CUexternalSemaphore {
	if e == nil || e.memory == nil || e.memory.Closed() {
		return 0
	}
	return *e.raw
}

// SemaphoreOp signals a semaphore or waits for it.
type SemaphoreOp struct {
	Semaphore *ExternalSemaphore
	// Value is for timeline semaphores: a signal sets the semaphore to it, which must be
	// greater than before, and a wait lasts until the semaphore has at least this value. It
	// must be 0 for binary semaphores.
	Value uint64
}

// SignalExternal enqueues signals of semaphores, up to 240 in each call of the driver. They run
// after the work enqueued on s before. A capture makes them one node.
//
// It returns [ErrContextMismatch] if a semaphore was imported in another context than the
// stream's, [ErrInvalidArgument] if a binary semaphore has a Value, and [ErrClosed] if a
// semaphore is nil or closed. Nothing is enqueued then. After any other error, the operations
// of earlier calls of the driver are enqueued.
// Source: cuSignalExternalSemaphoresAsync.
func (s *Stream) SignalExternal(ops ...SemaphoreOp) error {
	return s.semaphores("Stream.SignalExternal", ops, func(b *semaphores, stream driver.CUstream) error {
		params := b.signals()
		return driver.CuSignalExternalSemaphoresAsync(&b.raw[0], &params[0], uint32(len(b.raw)), stream)
	})
}

// WaitExternal enqueues waits for semaphores: work enqueued on s afterwards starts once all of them are over. If the
// other API never signals one, the stream is stuck, and what its work uses is never freed: wait for it by [Stream.Wait]
// with a deadline. The errors are those of [Stream.SignalExternal]. Source: cuWaitExternalSemaphoresAsync.
func (s *Stream) WaitExternal(ops ...SemaphoreOp) error {
	return s.semaphores("Stream.WaitExternal", ops, func(b *semaphores, stream driver.CUstream) error {
		params := b.waits()
		return driver.CuWaitExternalSemaphoresAsync(&b.raw[0], &params[0], uint32(len(b.raw)), stream)
	})
}

func (s *Stream) semaphores(op string, ops []SemaphoreOp, call func(*semaphores, driver.CUstream) error) error {
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if len(ops) == 0 {
		return nil
	}
	b := &semaphores{ops: ops}
	defer b.release()
	if err := b.acquire(op, c.ctx); err != nil {
		return err
	}
	for from := 0; from < len(ops); {
		to := min(from+chunkPlaces, len(ops))
		err := c.enqueueCurrent(op, to-from, b.blocks[from:], "", func() error {
			if to < len(ops) && c.capturing() { // one node has all
				to = len(ops)
			}
			return call(b.part(from, to), c.raw)
		})
		if err != nil {
			return err
		}
		from = to
	}
	return nil
}

// semaphores is a list of operations in CUDA's form. Its blocks are acquired.
type semaphores struct {
	ops    []SemaphoreOp
	raw    []driver.CUexternalSemaphore
	blocks []*block
}

// acquire acquires the semaphores for work in a context.
func (b *semaphores) acquire(op string, c *contextCore) error {
	for i, o := range b.ops {
		if o.Semaphore == nil {
			return numberedAs("operation", refuse(op, ErrClosed, "the semaphore is nil"), i)
		}
		m, err := o.Semaphore.memory.acquire(op)
		if err != nil {
			return numberedAs("operation", refuse(op, ErrClosed, "its semaphore"), i)
		}
		b.raw, b.blocks = append(b.raw, *o.Semaphore.raw), append(b.blocks, m)
		switch {
		case !m.ctx.same(c):
			err = refuse(op, ErrContextMismatch, "the semaphore belongs to a context of %v, the work to one of %v", m.ctx.device, c.device)
		case o.Value != 0 && !o.Semaphore.timeline:
			err = refuse(op, ErrInvalidArgument, "a binary semaphore has no value, but Value is %d", o.Value)
		}
		if err != nil {
			return numberedAs("operation", err, i)
		}
	}
	return nil
}

// part returns the operations from one index up to another, which the whole keeps acquired.
func (b *semaphores) part(from, to int) *semaphores {
	return &semaphores{ops: b.ops[from:to], raw: b.raw[from:to]}
}

func (b *semaphores) release() {
	for _, m := range b.blocks {
		m.Release()
	}
}

func (b *semaphores) signals() []driver.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
	params := make([]driver.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, len(b.ops))
	for i, o := range b.ops {
		params[i].Params.Fence.Value = o.Value
	}
	return params
}

func (b *semaphores) waits() []driver.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS {
	params := make([]driver.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, len(b.ops))
	for i, o := range b.ops {
		params[i].Params.Fence.Value = o.Value
	}
	return params
}

// SignalExternalNode returns the parameters of a node that signals semaphores: see [Stream.SignalExternal]. In an
// executable, CUDA cannot change the number of operations. Without operations, calls with these parameters return
// [ErrRange]. Source: cuGraphAddExternalSemaphoresSignalNode, cuGraphExternalSemaphoresSignalNodeSetParams,
// cuGraphExecExternalSemaphoresSignalNodeSetParams.
func SignalExternalNode(ops ...SemaphoreOp) NodeParams {
	return semaphoreNode(driver.CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, ops, func(b *semaphores, pin *runtime.Pinner) nodeCalls {
		p := driver.CUDA_EXT_SEM_SIGNAL_NODE_PARAMS{ExtSemArray: &b.raw[0], ParamsArray: &b.signals()[0], NumExtSems: uint32(len(ops))}
		pin.Pin(p.ExtSemArray)
		pin.Pin(p.ParamsArray)
		return nodeCalls{
			adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
				return driver.CuGraphAddExternalSemaphoresSignalNode(n, g, deps, count, &p)
			},
			sets: func(n driver.CUgraphNode) error { return driver.CuGraphExternalSemaphoresSignalNodeSetParams(n, &p) },
			setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
				return driver.CuGraphExecExternalSemaphoresSignalNodeSetParams(e, n, &p)
			},
		}
	})
}

// WaitExternalNode returns the parameters of a node that waits for semaphores: see [Stream.WaitExternal] and
// [SignalExternalNode]. Source: cuGraphAddExternalSemaphoresWaitNode, cuGraphExternalSemaphoresWaitNodeSetParams,
// cuGraphExecExternalSemaphoresWaitNodeSetParams.
func WaitExternalNode(ops ...SemaphoreOp) NodeParams {
	return semaphoreNode(driver.CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, ops, func(b *semaphores, pin *runtime.Pinner) nodeCalls {
		p := driver.CUDA_EXT_SEM_WAIT_NODE_PARAMS{ExtSemArray: &b.raw[0], ParamsArray: &b.waits()[0], NumExtSems: uint32(len(ops))}
		pin.Pin(p.ExtSemArray)
		pin.Pin(p.ParamsArray)
		return nodeCalls{
			adds: func(n *driver.CUgraphNode, g driver.CUgraph, deps *driver.CUgraphNode, count uint64) error {
				return driver.CuGraphAddExternalSemaphoresWaitNode(n, g, deps, count, &p)
			},
			sets: func(n driver.CUgraphNode) error { return driver.CuGraphExternalSemaphoresWaitNodeSetParams(n, &p) },
			setsExec: func(e driver.CUgraphExec, n driver.CUgraphNode) error {
				return driver.CuGraphExecExternalSemaphoresWaitNodeSetParams(e, n, &p)
			},
		}
	})
}

// semaphoreNode is the part of a node that does not depend on its type. calls pins the arrays whose addresses are
// inside a struct that C reads, until the use is over.
func semaphoreNode(typ driver.CUgraphNodeType, ops []SemaphoreOp, calls func(*semaphores, *runtime.Pinner) nodeCalls) NodeParams {
	take := func(op string, k *retained, into *graphCore) (c nodeCalls, err error) {
		if len(ops) == 0 {
			return c, refuse(op, ErrRange, "no operation")
		}
		b := &semaphores{ops: ops}
		defer b.release()
		if err := b.acquire(op, into.ctx); err != nil {
			return c, err
		}
		for _, m := range b.blocks {
			if !k.retain(&m.Handle, m.TryRetain) { // it may be closed by now, but b keeps it
				return c, &Error{Op: op, Err: ErrClosed}
			}
		}
		var pin runtime.Pinner
		c = calls(b, &pin)
		c.over = pin.Unpin
		return c, nil
	}
	return NodeParams{other: &funcNode{typ, take}}
}

// String describes the semaphore for messages.
func (e *ExternalSemaphore) String() string {
	if e == nil || e.memory == nil {
		return neverOpened("ExternalSemaphore")
	}
	return handleText("ExternalSemaphore", *e.raw, e.memory.ctx.device, e.memory.Closed())
}
