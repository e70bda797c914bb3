package safe

import (
	"math"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// BlockSizeOptions are the options of [Kernel.MaxPotentialBlockSize]. The zero value is
// for launches without dynamic shared memory.
type BlockSizeOptions struct {
	SharedBytes uint64 // dynamic shared memory per block, in bytes
	// SharedFor, if not nil, replaces SharedBytes: it returns the bytes of dynamic shared
	// memory for a block size.
	SharedFor func(threads int) uint64
	// Limit is the largest block size to consider; 0 is the kernel's own maximum.
	Limit int
}

// MaxPotentialBlockSize returns the number of threads per block that maximizes occupancy,
// and the smallest number of such blocks that fills the device. It is a good choice until
// you have measured a better one. It returns [ErrRange] if o.Limit is negative or does not
// fit into 32 bits.
//
// Source: cuOccupancyMaxPotentialBlockSize, with SharedFor
// cuOccupancyMaxActiveBlocksPerMultiprocessor, cuFuncGetAttribute, cuDeviceGetAttribute.
func (k *Kernel) MaxPotentialBlockSize(o BlockSizeOptions) (blocks, threads int, err error) {
	const op = "Kernel.MaxPotentialBlockSize"
	if o.Limit < 0 || o.Limit > math.MaxInt32 {
		return 0, 0, refuse(op, ErrRange, "Limit is %d threads; it must be 0 to %d", o.Limit, math.MaxInt32)
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

// searchBlockSize tries every number of whole warps, the largest first. The driver's search
// would call SharedFor from C.
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
	var most int32
	err = c.ctx.withCurrent(func() error {
		return driver.CuFuncGetAttribute(&most, driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k.function)
	})
	limit := int(most)
	if o.Limit > 0 {
		limit = min(limit, o.Limit)
	}
	best := 0
	for t := (limit + warp - 1) / warp * warp; t > 0 && best < full && err == nil; t -= warp {
		size := min(t, limit)
		shared := o.SharedFor(size)
		var n int32
		err = c.ctx.withCurrent(func() error {
			return driver.CuOccupancyMaxActiveBlocksPerMultiprocessor(&n, k.function, int32(size), shared)
		})
		if busy := int(n) * size; busy > best {
			best, threads, blocks = busy, size, int(n)*multiprocessors
		}
	}
	return blocks, threads, wrap(op, err)
}

// MaxCooperativeBlocks returns the maximum number of blocks of a cooperative launch
// ([LaunchConfig].Cooperative), for blocks of the given number of threads and bytes of
// dynamic shared memory. It returns [ErrNotSupported] if the device has no cooperative
// launches. Source: cuOccupancyMaxActiveBlocksPerMultiprocessor, cuDeviceGetAttribute.
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

// MaxPotentialClusterSize returns the maximum number of blocks per cluster of a launch with
// cfg, whose Cluster is ignored. It requires compute capability 9.0.
// Source: cuOccupancyMaxPotentialClusterSize.
func (k *Kernel) MaxPotentialClusterSize(cfg LaunchConfig) (int, error) {
	cfg.Cluster = Dim{}
	return k.askClusters("Kernel.MaxPotentialClusterSize", cfg, driver.CuOccupancyMaxPotentialClusterSize)
}

// MaxActiveClusters returns the number of clusters of a launch with cfg that the device
// can run at once. It requires compute capability 9.0, and returns [ErrInvalidArgument] if
// cfg.Cluster is not set. Source: cuOccupancyMaxActiveClusters.
func (k *Kernel) MaxActiveClusters(cfg LaunchConfig) (int, error) {
	const op = "Kernel.MaxActiveClusters"
	if k != nil && cfg.Cluster.X == 0 {
		return 0, refuse(op, ErrInvalidArgument, "LaunchConfig.Cluster is not set")
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
