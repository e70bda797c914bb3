package safe

import (
	"errors"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A block is a piece of memory, of which Buffers are views. It remembers the streams
// whose work uses it: it is freed after that work, and synchronous copies wait for it.
type block struct {
	lifetime.Handle
	ctx     *contextCore
	address driver.CUdeviceptr // at which kernels access it; 0 if they cannot
	host    unsafe.Pointer     // at which the host accesses it; nil if it cannot
	size    uint64
	free    func(*block) error // called with the context current; nil if other code owns the memory
	home    *streamCore        // the stream that it was allocated in the order of, or nil
	pool    *poolCore          // the pool that the program named, or nil
	heap    *heap              // the pool of NewBuffer if it was allocated there, or nil
	of      *block             // the block that a texture or a surface accesses: retained, and used with it
	pinner  *runtime.Pinner    // of registered Go memory
	owner   any                // of borrowed memory: kept reachable until the work that uses that has completed
	graph   *graphAllocation   // of memory that the launches of a graph allocate, or nil
	onHost  bool               // with graph: host memory
	foreign bool               // other code has allocated it, maybe in a pool or an address range
	lent    atomic.Int32       // calls of EnqueueRaw that need the address, also once it is closed
	peers   []Device           // with graph: other devices that have access
	last    pendingWork        // the work that a release waits for
	view    *mappedView        // of virtual memory: the part that the block covers

	resource *resource // of a Resource, which has no memory

	streamUses
}

// known returns the uses of the memory. All views of an address range share them.
func (b *block) known() *streamUses {
	if b.view != nil {
		return &b.view.space.uses
	}
	return &b.streamUses
}

// note records that work on s uses the block and the block that it accesses. s.mu is
// held.
func (b *block) note(s *streamCore) {
	b.known().note(s)
	if b.of != nil {
		b.of.note(s)
	}
}

// use records that work on s uses the block, and reports whether the block is open and the
// work may use it. s.mu is held until that work is enqueued. Close sets the closed bit,
// then locks the mu of every user: either it finds s among them, or use finds the block
// closed.
func (b *block) use(s *streamCore) bool {
	b.note(s)
	return !b.Closed() && b.usableIn(s.capture.Load())
}

// usableIn returns whether work that a capture captures may use the memory or, if there is none, whether
// work may use it now. The capture is locked.
func (b *block) usableIn(capture *capturing) bool {
	if capture == nil {
		return b.allocated()
	}
	return !capture.hasFreed(b)
}

// unusable returns the error for a block that use refuses.
func (b *block) unusable(op string) error {
	if b.Closed() {
		return &Error{Op: op, Err: ErrClosed}
	}
	return &Error{Op: op, Err: ErrNotAllocated}
}

// allocate opens a block by calling do with the context current. c is acquired.
func (b *block) allocate(c *contextCore, do func() error) error {
	b.ctx = c
	return b.opened(c.allocating(do))
}

// opened opens a block that was allocated, unless err tells that it was not.
func (b *block) opened(err error) error {
	if err != nil {
		return b.outOfMemory(err)
	}
	if err := b.Open(b, b.keeper()); err != nil {
		return errors.Join(err, b.freeMemory())
	}
	return nil
}

// unlessEmpty returns do, which allocates or checks the memory of b. If b is empty, nothing
// is allocated or freed.
func (b *block) unlessEmpty(do func() error) func() error {
	if b.size > 0 {
		return do
	}
	b.address, b.free = 0, nil
	return func() error { return nil }
}

// ofNothing is where the host finds the values of an empty block.
var ofNothing [16]byte

// allocating calls do with the context current. If it runs out of memory, it makes room and calls do again.
func (c *contextCore) allocating(do func() error) error {
	return reclaiming(func() error { return c.withCurrent(do) })
}

// reclaiming calls do, and calls it again as long as it runs out of memory and makeRoom makes some.
// Every call that takes memory of the device goes through it, with nothing locked.
func reclaiming(do func() error) error { return retrying(do(), do) }

// retrying calls do again as long as err, of the call before, tells that memory is exhausted and makeRoom makes some.
func retrying(err error, do func() error) error {
	for tries := 0; makeRoom(err, tries); tries++ {
		err = do()
	}
	return err
}

// makeRoom returns memory to the system after a call that has returned err because there was none: at
// the first try it trims the heaps, then it also has the garbage collector find objects that were
// dropped without Close. It returns false if err is another error, or after several tries.
func makeRoom(err error, tries int) bool {
	if !errors.Is(err, driver.CUDA_ERROR_OUT_OF_MEMORY) || tries == 4 {
		return false
	}
	if tries > 0 {
		lifetime.Collect()
	}
	trimAll()
	return true
}

// allocateOnDevice opens a block of device memory: of the context's heap, or with plain, and
// where there are no pools, of cuMemAlloc. The context is acquired.
func (b *block) allocateOnDevice(plain bool) error {
	c := b.ctx
	do := b.unlessEmpty(func() error {
		if !plain {
			ready, err := c.shared.heap.ready(c)
			if err != nil {
				return err
			}
			if ready {
				return b.fromHeap()
			}
		}
		return c.withCurrent(func() error { return driver.CuMemAlloc(&b.address, b.size) })
	})
	return b.opened(reclaiming(do))
}

// fromHeap allocates the block. Any stream may use it at once.
func (b *block) fromHeap() error {
	h := &b.ctx.shared.heap
	if rt.InCallback() {
		return rt.CodeCallback
	}
	if address, ok := h.cache.take(b.size); ok {
		b.address, b.heap = address, h
		return nil
	}
	a := rt.Alloc{Home: b.ctx.home(), Stream: h.stream, Pool: h.pool.raw, Size: b.size, Complete: 1}
	return hostWaits.With(uint32(uintptr(unsafe.Pointer(b))>>7), func() error { // it may wait for the stream
		if code := a.Do(); code != 0 {
			return code
		}
		b.address, b.heap = a.Address, h
		return nil
	})
}

// allocateOn opens a block in the order of a stream, which is acquired, from a pool unless
// that is 0.
func (b *block) allocateOn(s *streamCore, c *contextCore, pool driver.CUmemoryPool) error {
	b.home, b.ctx = s, c
	b.users[0].Store(s)
	return b.opened(reclaiming(b.unlessEmpty(func() error {
		a := admission{stream: s, flags: asks}
		if err := a.admit(); err != nil {
			return err
		}
		defer a.leave(true)
		s.used = true
		m := rt.Alloc{Home: s.home(), Stream: s.raw, Pool: pool, Size: b.size}
		if code := m.Do(); code != 0 {
			return code
		}
		b.address = m.Address
		return nil
	})))
}

// keeper returns the parent of the block: the context, or the pool or the block that it
// is part of, which retain the context.
func (b *block) keeper() *lifetime.Handle {
	switch {
	case b.pool != nil:
		return &b.pool.Handle
	case b.of != nil:
		return &b.of.Handle
	}
	return &b.ctx.Handle
}

func (b *block) Kind() string {
	if b.resource != nil {
		return "Resource"
	}
	return "block of memory"
}

func (b *block) Destroy(wait bool) error {
	if b.resource != nil {
		return b.destroyResource()
	}
	err := b.destroyMemory(wait)
	if err != nil && !lifetime.Postponed(err) && b.pool != nil {
		b.pool.lost.Store(true)
	}
	return err
}

func (b *block) destroyMemory(wait bool) error {
	if b.free == nil {
		// Until then, the owner, the module or the context may free the memory. A range waits itself.
		if b.view == nil && b.size > 0 && !b.last.over(b.known(), false) {
			return lifetime.ErrLater
		}
		b.owner = nil
		b.view.close()
		return nil
	}
	locks := wait // waiting for locks is brief, unlike waiting for the GPU
	if b.home != nil {
		wait = false // Close returns at once
		if b.only(b.home) && !b.last.marked {
			if done, err := b.home.freeHere(b); done {
				return err
			}
		}
	}
	for !b.last.over(b.known(), locks) {
		if !wait || !b.last.marked {
			return lifetime.ErrLater
		}
		b.last.wait()
	}
	switch {
	case b.home != nil:
		if done, err := b.freeAside(); done {
			return err
		}
	case !wait && b.heap == nil:
		return &lifetime.Elsewhere{Queue: &b.ctx.shared.frees}
	}
	return b.freeMemory()
}
