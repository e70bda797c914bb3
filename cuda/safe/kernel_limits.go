package safe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// refused adds the kernel's name to e, the driver's refusal of a launch, and the limits
// that the launch exceeds.
func (k *Kernel) refused(e *Error, cfg *LaunchConfig) error {
	if e.Code != 0 {
		e.Detail = "kernel " + k.name
	}
	switch e.Code {
	case driver.CUDA_ERROR_NOT_SUPPORTED:
		e.Detail += k.logged()
		return e
	case driver.CUDA_ERROR_INVALID_VALUE, driver.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
		driver.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, driver.CUDA_ERROR_INVALID_CLUSTER_SIZE, driver.CUDA_ERROR_INVALID_HANDLE:
	default:
		return e
	}
	p, err := k.module.core.ctx.device.Properties()
	if err != nil {
		return e
	}
	f, err := k.Attributes()
	if err != nil {
		return e
	}
	limits := slices.Concat(
		exceeded("grid", cfg.Grid.full(), p.MaxGridDim),
		exceeded("block", cfg.Block.full(), p.MaxBlockDim),
		k.exceededByBlock(cfg, p, f),
		k.exceededByGrid(cfg, p),
	)
	if len(limits) > 0 {
		e.Detail += ": " + strings.Join(limits, "; ")
	}
	return e
}

// logged returns the text after the kernel's name in the last message of the driver's log that
// names it; "" if there is none, or before CUDA 12.9.
func (k *Kernel) logged() string {
	const most = 25600 // drivers were seen to write a hundred bytes more
	text, size := make([]byte, most+1024), uint64(most)
	if driver.CuLogsDumpToMemory(nil, &text[0], &size, 0) != nil {
		return ""
	}
	all, name := ffi.GoStringN(text), "kernel "+k.name
	at := strings.LastIndex(all, name+" ")
	if at < 0 {
		return ""
	}
	rest, _, _ := strings.Cut(all[at+len(name):], "\n")
	return rest
}

// exceeded names the dimensions that are 0 or too large.
func exceeded(what string, d [3]uint32, limits [3]int) []string {
	var out []string
	for i, n := range d {
		if n == 0 && what == "grid" {
			out = append(out, fmt.Sprintf("grid.%c is 0: skip a launch for no values", 'X'+i))
		} else if n == 0 {
			out = append(out, fmt.Sprintf("%s.%c is 0", what, 'X'+i))
		} else if int64(n) > int64(limits[i]) {
			out = append(out, fmt.Sprintf("%s.%c is %d, the maximum is %d", what, 'X'+i, n, limits[i]))
		}
	}
	return out
}

func volume(d Dim) uint64 {
	f := d.full()
	return uint64(f[0]) * uint64(f[1]) * uint64(f[2])
}

// exceededByBlock names the limits that a single block exceeds.
func (k *Kernel) exceededByBlock(cfg *LaunchConfig, p Properties, f FunctionAttributes) []string {
	var out []string
	threads := volume(cfg.Block)
	if threads > uint64(p.MaxThreadsPerBlock) {
		out = append(out, fmt.Sprintf("%d threads per block, the device's maximum is %d", threads, p.MaxThreadsPerBlock))
	} else if threads > uint64(f.MaxThreadsPerBlock) {
		out = append(out, fmt.Sprintf("%d threads per block, the maximum of %s is %d (it uses %d registers per thread)", threads, k.name, f.MaxThreadsPerBlock, f.Registers))
	}
	dynamic, static := int(cfg.SharedBytes), f.SharedBytes
	switch {
	case dynamic+static > max(p.SharedMemoryPerBlockOptin, p.SharedMemoryPerBlock):
		out = append(out, fmt.Sprintf("%d bytes of shared memory per block, the device's maximum is %d", dynamic+static, max(p.SharedMemoryPerBlockOptin, p.SharedMemoryPerBlock)))
	case dynamic > f.MaxDynamicShared:
		out = append(out, fmt.Sprintf("%d bytes of dynamic shared memory, the maximum of %s is %d: raise CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES with Kernel.SetAttribute", dynamic, k.name, f.MaxDynamicShared))
	}
	return out
}

// exceededByGrid names the limits that the grid as a whole exceeds.
func (k *Kernel) exceededByGrid(cfg *LaunchConfig, p Properties) []string {
	var out []string
	if cfg.Cooperative {
		if n, err := k.MaxBlocksPerMultiprocessor(int(volume(cfg.Block)), uint64(cfg.SharedBytes)); err == nil && volume(cfg.Grid) > uint64(n*p.Multiprocessors) {
			out = append(out, fmt.Sprintf("%d blocks in a cooperative launch, at most %d can run at once", volume(cfg.Grid), n*p.Multiprocessors))
		}
	}
	if cfg.Cluster.X > 0 {
		if !p.ClusterLaunch {
			out = append(out, "the device does not support clusters")
		}
		grid, cluster := cfg.Grid.full(), cfg.Cluster.full()
		for i := range grid {
			if grid[i]%cluster[i] != 0 {
				out = append(out, fmt.Sprintf("grid.%c is %d, not a multiple of the cluster's %d", 'X'+i, grid[i], cluster[i]))
			}
		}
		if n := volume(cfg.Cluster); n > 8 {
			out = append(out, fmt.Sprintf("%d blocks per cluster: more than 8 require CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, set with Kernel.SetAttribute", n))
		}
	}
	return out
}
