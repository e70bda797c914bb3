package safe

import (
	"math"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// BlockSizeOptions are what [Kernel.MaxPotentialBlockSize] is asked for. The
// zero value is a kernel without dynamic shared memory.
type BlockSizeOptions struct {
	SharedBytes uint64 // of dynamic shared memory for each block
	// SharedFor, if not nil, is that of a block of so many threads. SharedBytes is
	// not used then.
	SharedFor func(threads int) uint64
	// Limit is how many threads a block may have, 0 for as many as the kernel takes.
	Limit int
}

// MaxPotentialBlockSize is the number of threads of a block with which a
// multiprocessor has most to do, and how many such blocks the device needs for it
// at least. It is a good guess where nothing is measured.
//
// Source: cuOccupancyMaxPotentialBlockSize, with SharedFor
// cuOccupancyMaxActiveBlocksPerMultiprocessor, cuFuncGetAttribute, cuDeviceGetAttribute.
func (k *Kernel) MaxPotentialBlockSize(o BlockSizeOptions) (blocks, threads int, err error) {
	const op = "Kernel.MaxPotentialBlockSize"
	if o.Limit < 0 || o.Limit > math.MaxInt32 {
		return 0, 0, refuse(op, ErrRange, "a limit of %d threads", o.Limit)
	}
	c, err := k.acquire(op)
	if err != nil {
		return 0, 0, err
	}
	defer c.Release()
	if o.SharedFor != nil {
		return k.searchBlockSize(op, c, o)
	}
	var b, t int32
	err = c.ctx.withCurrent(func() error {
		return driver.CuOccupancyMaxPotentialBlockSize(&b, &t, k.function, 0, o.SharedBytes, int32(o.Limit))
	})
	return int(b), int(t), wrap(op, err)
}

// searchBlockSize tries all numbers of whole warps, the largest first, so that
// the driver need not call a function of Go's.
func (k *Kernel) searchBlockSize(op string, c *moduleCore, o BlockSizeOptions) (blocks, threads int, err error) {
	d := c.ctx.device
	var of [3]int
	for i, id := range []driver.CUdevice_attribute{
		driver.CU_DEVICE_ATTRIBUTE_WARP_SIZE, driver.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
		driver.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
	} {
		if of[i], err = d.Attribute(id); err != nil {
			return 0, 0, wrap(op, err)
		}
	}
	warp, full, multiprocessors := of[0], of[1], of[2]
	err = c.ctx.withCurrent(func() error {
		var most int32
		if err := driver.CuFuncGetAttribute(&most, driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k.function); err != nil {
			return err
		}
		limit := int(most)
		if o.Limit > 0 {
			limit = min(limit, o.Limit)
		}
		best := 0
		for t := (limit + warp - 1) / warp * warp; t > 0 && best < full; t -= warp {
			size := min(t, limit)
			var n int32
			err := driver.CuOccupancyMaxActiveBlocksPerMultiprocessor(&n, k.function, int32(size), o.SharedFor(size))
			if err != nil {
				return err
			}
			if busy := int(n) * size; busy > best {
				best, threads, blocks = busy, size, int(n)*multiprocessors
			}
		}
		return nil
	})
	return blocks, threads, wrap(op, err)
}

// AvailableDynamicShared is how many bytes of dynamic shared memory each block
// can have where so many blocks, of so many threads, are to run on a multiprocessor
// at once. Source: cuOccupancyAvailableDynamicSMemPerBlock.
func (k *Kernel) AvailableDynamicShared(blocks, threads int) (uint64, error) {
	const op = "Kernel.AvailableDynamicShared"
	if blocks < 1 || threads < 1 || blocks > math.MaxInt32 || threads > math.MaxInt32 {
		return 0, refuse(op, ErrRange, "%d blocks of %d threads", blocks, threads)
	}
	var n uint64
	err := k.do(op, func() error {
		return driver.CuOccupancyAvailableDynamicSMemPerBlock(&n, k.function, int32(blocks), int32(threads))
	})
	return n, err
}

// MaxCooperativeBlocks is how many blocks of so many threads, with so many bytes
// of dynamic shared memory each, a launch with [LaunchConfig].Cooperative may
// have. A device without such launches is [ErrNotSupported].
// Source: cuOccupancyMaxActiveBlocksPerMultiprocessor, cuDeviceGetAttribute.
func (k *Kernel) MaxCooperativeBlocks(threads int, sharedBytes uint64) (int, error) {
	const op = "Kernel.MaxCooperativeBlocks"
	c, err := k.acquire(op)
	if err != nil {
		return 0, err
	}
	defer c.Release()
	if _, err := c.ctx.device.needs(op, driver.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH); err != nil {
		return 0, err
	}
	multiprocessors, err := c.ctx.device.Attribute(driver.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
	if err != nil {
		return 0, wrap(op, err)
	}
	n, err := k.MaxBlocksPerMultiprocessor(threads, sharedBytes)
	return n * multiprocessors, wrap(op, err)
}

// MaxPotentialClusterSize is how many blocks a cluster of such a launch may have
// at most; cfg's own Cluster does not count. It takes compute capability 9.0.
// Source: cuOccupancyMaxPotentialClusterSize.
func (k *Kernel) MaxPotentialClusterSize(cfg LaunchConfig) (int, error) {
	cfg.Cluster = Dim{}
	return k.askClusters("Kernel.MaxPotentialClusterSize", cfg, driver.CuOccupancyMaxPotentialClusterSize)
}

// MaxActiveClusters is how many clusters of such a launch, whose Cluster must be
// set, the device runs at once. It takes compute capability 9.0.
// Source: cuOccupancyMaxActiveClusters.
func (k *Kernel) MaxActiveClusters(cfg LaunchConfig) (int, error) {
	const op = "Kernel.MaxActiveClusters"
	if k != nil && cfg.Cluster.X == 0 {
		return 0, refuse(op, ErrInvalidArgument, "Cluster is not set")
	}
	return k.askClusters(op, cfg, driver.CuOccupancyMaxActiveClusters)
}

func (k *Kernel) askClusters(op string, cfg LaunchConfig, ask func(*int32, driver.CUfunction, *driver.CUlaunchConfig) error) (int, error) {
	var n int32
	raw := cfg.raw()
	if list := cfg.attributes(nil); len(list) > 0 {
		raw.Attrs, raw.NumAttrs = &list[0], uint32(len(list))
	}
	err := k.do(op, func() error { return ask(&n, k.function, &raw) })
	return int(n), err
}
