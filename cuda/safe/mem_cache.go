package safe

import (
	"slices"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

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
	mu     sync.Mutex
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
