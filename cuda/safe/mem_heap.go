package safe

import (
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
)

// A heap is the memory pool of one context from which NewBuffer allocates. It is not the
// device's default pool, whose attributes and contents belong to the whole process. It
// retains freed memory until it is trimmed, some of it as blocks for reuse.
//
// A block is freed only after the work that uses it, and on the stream on which it was
// allocated. That stream carries nothing else, and the pool may not make it wait for other
// streams: so it is always idle, and any stream may use a new block at once.
type heap struct {
	state   atomic.Int32
	mu      admit.Leaf // held to make, share, trim and end the pool
	over    bool       // the context is about to be destroyed
	pool    *poolCore
	stream  driver.CUstream
	streams streamPool                   // has the stream until there is a pool
	shared  map[driver.CUdevice]struct{} // other devices that have access
	cache   blockCache
	left    *poolCore // that is to be destroyed with the context
}

// The states of a heap.
const (
	noHeap int32 = iota
	madeHeap
	unsupportedHeap // the device or its driver has no pools
)

// ready makes the heap with its first use. It returns false if there can be none.
func (h *heap) ready(c *contextCore) (bool, error) {
	if h.state.Load() == noHeap {
		if err := lock("", &h.mu); err != nil {
			return false, err
		}
		defer h.mu.Unlock()
		if h.state.Load() == noHeap {
			if err := c.withCurrent(func() error { return h.make(c) }); err != nil {
				return false, err
			}
		}
	}
	return h.state.Load() == madeHeap, nil
}

// make makes the pool and its stream. mu is held and the context current.
func (h *heap) make(c *contextCore) error {
	h.pool, h.shared = &poolCore{ctx: c}, map[driver.CUdevice]struct{}{}
	h.cache.off = os.Getenv(noCache) != ""
	props, err := (&PoolOptions{}).props("", c.device)
	if err == nil {
		err = driver.CuMemPoolCreate(&h.pool.raw, &props)
	}
	if errors.Is(err, ErrNotSupported) {
		h.state.Store(unsupportedHeap)
		return nil
	}
	if err != nil {
		return err
	}
	if err := h.equip(c); err != nil {
		return errors.Join(err, driver.CuMemPoolDestroy(h.pool.raw))
	}
	h.state.Store(madeHeap)
	return nil
}

// equip sets the attributes of a new pool and makes its stream.
func (h *heap) equip(c *contextCore) (err error) {
	if err := h.pool.put(driver.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0); err != nil {
		return err
	}
	if err := h.pool.put(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, math.MaxUint64); err != nil {
		return err
	}
	if err := h.share(c.shared); err != nil {
		return err
	}
	h.stream, err = h.streams.get(c)
	return err
}

// share gives access to the devices whose contexts EnablePeerAccess lets use the memory of
// s, and withdraws it from others. mu is held.
func (h *heap) share(s *contextState) error {
	readers := s.readers()
	for d := range h.shared {
		if _, reads := readers[d]; !reads {
			if err := h.pool.setAccess(Device{raw: d}, driver.CU_MEM_ACCESS_FLAGS_PROT_NONE); err != nil {
				return err
			}
			delete(h.shared, d)
		}
	}
	for d := range readers {
		if _, reads := h.shared[d]; !reads {
			if err := h.pool.setAccess(Device{raw: d}, fullAccess); err != nil {
				return err
			}
			h.shared[d] = struct{}{}
		}
	}
	return nil
}

// readers returns the other devices with a context that may use the memory of s.
func (s *contextState) readers() map[driver.CUdevice]struct{} {
	readers := map[driver.CUdevice]struct{}{}
	states.Lock()
	defer states.Unlock()
	for _, o := range states.of {
		o.mu.Lock()
		if _, reads := o.peers[s]; reads && o.device != s.device {
			readers[o.device] = struct{}{}
		}
		o.mu.Unlock()
	}
	return readers
}

// shareHeap is share, if there is a heap to share. A context is current.
func (s *contextState) shareHeap() error {
	s.heap.mu.Lock()
	defer s.heap.mu.Unlock()
	if s.heap.state.Load() != madeHeap {
		return nil
	}
	return s.heap.share(s)
}

// flush frees the blocks in the cache. The context is current.
func (h *heap) flush() (err error) {
	for _, b := range h.cache.empty() {
		err = errors.Join(err, driver.CuMemFreeAsync(b.address, h.stream))
	}
	return err
}

// notice waits for the releases: otherwise the pool trims nothing. The context is current.
func (h *heap) notice() error {
	return hostWaits.With(0, func() error { return driver.CuStreamSynchronize(h.stream) })
}

// trim returns unused memory of the heap to the system.
func (s *contextState) trim() error {
	h := &s.heap
	if err := lock("", &h.mu); err != nil {
		return err
	}
	defer h.mu.Unlock()
	if h.state.Load() != madeHeap {
		return nil
	}
	c := &contextCore{raw: s.raw, id: s.id, shared: s}
	return c.withCurrent(func() error {
		return errors.Join(h.flush(), h.notice(), driver.CuMemPoolTrimTo(h.pool.raw, 0))
	})
}

func init() { lifetime.OnMakeRoom(trimHeaps) }

// trimHeaps trims the heaps of all contexts, and makes other pools return what was released to them. Errors are left to
// the call that needs the memory.
func trimHeaps() {
	states.Lock()
	all := slices.Collect(maps.Values(states.of))
	states.Unlock()
	for _, s := range all {
		_ = s.trim()
		_ = s.reclaim()
	}
}

// reclaim makes other pools return what was released to them. The lock keeps the context from
// being destroyed.
func (s *contextState) reclaim() error {
	h := &s.heap
	if err := lock("", &h.mu); err != nil {
		return err
	}
	defer h.mu.Unlock()
	if h.over {
		return nil
	}
	c := &contextCore{raw: s.raw, id: s.id, shared: s}
	return c.withCurrent(s.noticeReleases)
}

// endHeap empties the pool, in which no block is left.
func (c *contextCore) endHeap(op string) error {
	h := &c.shared.heap
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.state.Load() != madeHeap {
		return nil
	}
	h.state.Store(noHeap)
	h.left = h.pool
	return c.destroying(op, func() error {
		return errors.Join(h.flush(), h.notice(), driver.CuMemPoolTrimTo(h.pool.raw, 0), destroyStream(h.stream))
	})
}

// dropHeap destroys the pool after endHeap. A reset of the context by other code does not.
func (c *contextCore) dropHeap(op string) error {
	h := &c.shared.heap
	if h.left == nil {
		return nil
	}
	err := h.left.drop(op)
	if err != lifetime.ErrLater {
		h.left = nil
	}
	return err
}

// TrimMemory returns memory to the system that [NewBuffer] retains in x for later buffers. A buffer that is closed
// while work uses it counts as used until that work has completed. This package trims the memory of all contexts when
// one of its own calls finds too little memory. Call TrimMemory before other code allocates. Source: cuMemPoolTrimTo.
func (x *Context) TrimMemory() error {
	const op = "Context.TrimMemory"
	c, err := x.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.shared.trim())
}

// BufferOptions are the options of [NewBufferWith].
type BufferOptions struct {
	// Plain allocates by cuMemAlloc instead of from a pool. Set it for memory that is to be
	// used with [Buffer.IPCHandle], [WaitValue], [WriteValue] or GPUDirect RDMA, and for
	// memory that other code accesses from another device after cuCtxEnablePeerAccess.
	// cuMemAlloc and cuMemFree together took about 60 µs on an H200, and may wait for work
	// of the context.
	Plain bool
}

// pooled returns whether the block is memory of a pool.
func (b *block) pooled() bool { return b.heap != nil || b.home != nil }

// needsPlain adds to an error of the driver which memory the call takes.
func needsPlain(code driver.CUresult) error {
	e := failed("", code)
	e.Detail = "the driver rejects memory of a pool here; allocate it by NewBufferWith and BufferOptions.Plain"
	return e
}

// NewBufferWith allocates device memory for n values with options, and returns the errors of [NewBuffer]. Source:
// cuMemAllocFromPoolAsync, cuMemAlloc, and cuMemFreeAsync or cuMemFree when closed.
func NewBufferWith[T any](x *Context, n int, o BufferOptions) (*Buffer[T], error) {
	const op = "NewBuffer"
	size, c, err := valuesIn[T](op, x, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{ctx: c, size: size, free: (*block).memFree}
	if err := b.allocateOnDevice(o.Plain); err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// noCache is the environment variable that, if it is not empty, has NewBuffer and Close call
// the driver each time: compute-sanitizer then sees each allocation and each release.
const noCache = "CUDABIND_NO_MEMORY_CACHE"

// The most that a blockCache holds.
const (
	mostCachedBlocks = 32
	mostCachedBytes  = 64 << 20
)

// A blockCache has freed blocks of a heap for new blocks of the same sizes: an allocation by
// the driver and its release take twice as long as everything else that NewBuffer and Close
// do. When it is full, the oldest goes back to the pool. Sizes are not rounded, so that
// compute-sanitizer finds accesses beyond the end.
type blockCache struct {
	off    bool
	mu     admit.Leaf    // guards blocks and bytes
	blocks []cachedBlock // oldest first
	bytes  uint64
}

type cachedBlock struct {
	address driver.CUdeviceptr
	size    uint64
}

// take returns the address of a block of that size, if there is one.
func (c *blockCache) take(size uint64) (address driver.CUdeviceptr, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.blocks) - 1; i >= 0; i-- {
		if c.blocks[i].size == size {
			address = c.blocks[i].address
			c.remove(i)
			return address, true
		}
	}
	return 0, false
}

// takes returns whether blocks of that size may be put into the cache.
func (c *blockCache) takes(size uint64) bool { return !c.off && size <= mostCachedBytes }

// put adds a block, and returns the oldest ones that have to make room for it.
func (c *blockCache) put(b cachedBlock) (old []cachedBlock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.blocks) == mostCachedBlocks || c.bytes+b.size > mostCachedBytes {
		old = append(old, c.blocks[0])
		c.remove(0)
	}
	c.blocks = append(c.blocks, b)
	c.bytes += b.size
	return old
}

func (c *blockCache) remove(i int) {
	c.bytes -= c.blocks[i].size
	c.blocks = slices.Delete(c.blocks, i, i+1)
}

// empty removes and returns all blocks.
func (c *blockCache) empty() []cachedBlock {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.blocks
	c.blocks, c.bytes = nil, 0
	return all
}
