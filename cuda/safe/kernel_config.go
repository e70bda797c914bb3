package safe

import (
	"math"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// LaunchConfig configures a kernel launch. Set Grid and Block; the zero value of every other
// field is CUDA's default.
type LaunchConfig struct {
	Grid        Dim    // in blocks
	Block       Dim    // in threads
	SharedBytes uint32 // dynamic shared memory of each block, in bytes
	// Cluster is the size of a thread block cluster, in blocks; the zero value launches
	// without clusters. It requires compute capability 9.0.
	Cluster Dim
	// Cooperative makes all blocks resident at once, so that they can synchronize with
	// each other (grid sync). See [Kernel.MaxCooperativeBlocks].
	Cooperative bool
	// Priority of the kernel: smaller numbers are more urgent, see
	// [Context.StreamPriorityRange]. 0 uses the stream's priority.
	Priority int
	// ProgrammaticSerialization lets the kernel start before the previous kernel in the
	// stream has completed, as soon as every block of that kernel has executed
	// griddepcontrol.launch_dependents. It requires compute capability 9.0.
	ProgrammaticSerialization bool
	// MemSyncDomain is the domain of the kernel's memory fences:
	// driver.CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE for kernels that write to other devices.
	// 0 uses the stream's domain. It requires compute capability 9.0.
	MemSyncDomain driver.CUlaunchMemSyncDomain
	// Attributes are further launch attributes, such as an access policy window.
	Attributes []driver.CUlaunchAttribute
	// Uses lists memory, textures and surfaces that the kernel reaches through addresses
	// inside its arguments, such as pointers in a struct: buf.Arg() for each. The launch
	// treats them as it treats arguments: it retains them until the kernel has completed.
	Uses []Arg
}

// Threads returns a configuration with at least one thread for each of n values: as many
// blocks of 256 threads as that takes. The kernel must check its index, as the last block
// may have threads to spare. Launch returns an error if n is below 1, because CUDA launches
// no empty grids: skip the launch then. It also returns an error if n is above the limits
// of the device.
func Threads(n int) LaunchConfig {
	const block = 256
	return LaunchConfig{Grid: Blocks(n, block), Block: Dim{X: block}}
}

// Threads2D returns a configuration with at least one thread for each of width * height
// values, the x index for the width: as many blocks of 32 x 8 threads as that takes. The
// kernel must check both indices. Launch returns an error if width or height is below 1 or
// above the limits of the device: a grid has up to 65535 blocks in Y, for a height of
// 524280.
func Threads2D(width, height int) LaunchConfig {
	block := Dim{X: 32, Y: 8}
	cfg := LaunchConfig{Block: block}
	if width >= 1 && height >= 1 {
		cfg.Grid = Dim{X: Blocks(width, int(block.X)).X, Y: Blocks(height, int(block.Y)).X}
	}
	return cfg
}

// raw returns cfg without stream and attributes.
func (cfg *LaunchConfig) raw() driver.CUlaunchConfig {
	g, b := &cfg.Grid, &cfg.Block // not Dim.full, whose arrays would go through memory
	return driver.CUlaunchConfig{
		GridDimX: g.X, GridDimY: max(g.Y, 1), GridDimZ: max(g.Z, 1),
		BlockDimX: b.X, BlockDimY: max(b.Y, 1), BlockDimZ: max(b.Z, 1),
		SharedMemBytes: cfg.SharedBytes,
	}
}

func (cfg *LaunchConfig) attributed() bool {
	return cfg.Cooperative || cfg.Cluster.X > 0 || cfg.Priority != 0 || cfg.ProgrammaticSerialization ||
		cfg.MemSyncDomain != 0 || len(cfg.Attributes) > 0
}

// attributes appends cfg's launch attributes to list.
func (cfg *LaunchConfig) attributes(list []driver.CUlaunchAttribute) []driver.CUlaunchAttribute {
	add := func(id driver.CUlaunchAttributeID) *driver.CUlaunchAttributeValue {
		list = append(list, driver.CUlaunchAttribute{Id: id})
		return &list[len(list)-1].Value
	}
	if cfg.Cooperative {
		*add(driver.CU_LAUNCH_ATTRIBUTE_COOPERATIVE).Cooperative() = 1
	}
	if cfg.Cluster.X > 0 {
		c := cfg.Cluster.full()
		*add(driver.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).ClusterDim() = driver.CUlaunchAttributeValue_clusterDim{X: c[0], Y: c[1], Z: c[2]}
	}
	if cfg.Priority != 0 {
		*add(driver.CU_LAUNCH_ATTRIBUTE_PRIORITY).Priority() = int32(min(max(cfg.Priority, math.MinInt32), math.MaxInt32))
	}
	if cfg.ProgrammaticSerialization {
		*add(driver.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).ProgrammaticStreamSerializationAllowed() = 1
	}
	if cfg.MemSyncDomain != 0 {
		*add(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).MemSyncDomain() = cfg.MemSyncDomain
	}
	return append(list, cfg.Attributes...)
}
