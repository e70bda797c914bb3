package safe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Kernel is a __global__ function of a [Module]: see [Kernel.Launch]. It retains its
// module, so a module in use is not garbage collected. Any number of goroutines may use
// it at once.
type Kernel struct {
	core     *moduleCore // of module when the kernel was made: the program may write another into that
	module   *Module     // stays reachable
	name     string
	function driver.CUfunction
	known    bool        // the driver reports parameters; false before CUDA 12.4
	sizes    []uint32    // of the parameters, in bytes
	threads  uint64      // at most in a block; math.MaxUint64 if the driver has not told
	prepared atomic.Bool // CUDA need not load or allocate anything for a launch
}

// ask asks the driver about the kernel. The context is current.
func (k *Kernel) ask() error {
	if err := k.askParameters(); err != nil {
		return err
	}
	if err := k.askThreads(); err != nil {
		return err
	}
	return k.askPrepared()
}

// askThreads notes how many threads a block may have. The context is current.
func (k *Kernel) askThreads() error {
	var n int32
	err := driver.CuFuncGetAttribute(&n, driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k.function)
	if k.threads = uint64(n); n <= 0 {
		k.threads = math.MaxUint64
	}
	if errors.Is(err, driver.CUDA_ERROR_FUNCTION_NOT_LOADED) {
		return nil
	}
	return err
}

// askPrepared notes whether the kernel's code is loaded and uses no local memory. The
// context is current.
func (k *Kernel) askPrepared() error {
	var state driver.CUfunctionLoadingState
	err := driver.CuFuncIsLoaded(&state, k.function)
	if errors.Is(err, ErrNotSupported) { // before CUDA 12.4
		return nil
	}
	if err != nil || state != driver.CU_FUNCTION_LOADING_STATE_LOADED {
		return err
	}
	var local int32
	err = driver.CuFuncGetAttribute(&local, driver.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, k.function)
	k.prepared.Store(err == nil && local == 0)
	return err
}

// askParameters reads the number and sizes of the parameters, as far as the driver reports
// them. It asks for no parameter that is not there, if it can know.
func (k *Kernel) askParameters() error {
	k.sizes = nil // of a try that failed
	n, err := k.parameterCount()
	if err != nil {
		return err
	}
	for i := 0; i != n; i++ {
		var offset, size uint64
		err := driver.CuFuncGetParamInfo(k.function, uint64(i), &offset, &size)
		switch {
		case errors.Is(err, ErrNotSupported):
			return nil
		case n < 0 && errors.Is(err, driver.CUDA_ERROR_INVALID_VALUE):
			k.known = true
			return nil
		case err != nil:
			return err
		}
		k.sizes = append(k.sizes, uint32(size))
	}
	k.known = driver.Find("cuFuncGetParamInfo") == nil
	return nil
}

// acquire acquires the kernel's module for a call.
func (k *Kernel) acquire(op string) (*moduleCore, error) {
	if k == nil || k.core == nil || !k.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return k.core, nil
}

// openUnacquired returns the kernel's module if it is open, without acquiring it: a module is destroyed only
// after the locks of all streams were free. The caller keeps k reachable until the launch is admitted.
func (k *Kernel) openUnacquired(op string) (*moduleCore, error) {
	if k == nil || k.core == nil || k.core.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return k.core, nil
}

// Name returns the name passed to [Module.Kernel].
func (k *Kernel) Name() string {
	if k == nil {
		return ""
	}
	return k.name
}

// Raw returns the kernel's handle for calls to package driver, or 0 once the module is
// closed. Keep k reachable while the handle is in use.
func (k *Kernel) Raw() driver.CUfunction {
	if k == nil || k.core == nil || k.core.Closed() {
		return 0
	}
	return k.function
}

// Parameters returns the sizes of the kernel's parameters in bytes, in order. It returns
// [ErrNotSupported] if the driver is older than CUDA 12.4.
func (k *Kernel) Parameters() ([]int, error) {
	const op = "Kernel.Parameters"
	if k == nil || !k.known {
		return nil, &Error{Op: op, Err: ErrNotSupported}
	}
	sizes := make([]int, len(k.sizes))
	for i, s := range k.sizes {
		sizes[i] = int(s)
	}
	return sizes, nil
}

// do calls f with the kernel's context current and its module acquired.
func (k *Kernel) do(op string, f func() error) error {
	c, err := k.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.ctx.withCurrent(f))
}

// Attribute returns one attribute of the kernel, such as
// driver.CU_FUNC_ATTRIBUTE_NUM_REGS.
// Source: cuFuncGetAttribute.
func (k *Kernel) Attribute(a driver.CUfunction_attribute) (int, error) {
	var n int32
	err := k.do("Kernel.Attribute", func() error { return driver.CuFuncGetAttribute(&n, a, k.function) })
	return int(n), err
}

// SetAttribute sets one of the kernel's writable attributes. For example, set
// driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES to launch the kernel with more
// than 48 KiB of dynamic shared memory. The attribute affects every launch of this kernel
// from its module. It returns [ErrRange] if value does not fit into 32 bits.
// Source: cuFuncSetAttribute.
func (k *Kernel) SetAttribute(a driver.CUfunction_attribute, value int) error {
	const op = "Kernel.SetAttribute"
	if int(int32(value)) != value {
		return refuse(op, ErrRange, "the value %d does not fit into 32 bits", value)
	}
	return k.do(op, func() error { return driver.CuFuncSetAttribute(k.function, a, int32(value)) })
}

// MaxBlocksPerMultiprocessor returns the number of blocks that can be resident on one
// multiprocessor at once, for blocks of the given number of threads and bytes of dynamic
// shared memory. Source: cuOccupancyMaxActiveBlocksPerMultiprocessor.
func (k *Kernel) MaxBlocksPerMultiprocessor(threads int, sharedBytes uint64) (int, error) {
	const op = "Kernel.MaxBlocksPerMultiprocessor"
	var n int32
	if int(int32(threads)) != threads {
		return 0, refuse(op, ErrRange, "%d threads do not fit into 32 bits", threads)
	}
	err := k.do(op, func() error {
		return driver.CuOccupancyMaxActiveBlocksPerMultiprocessor(&n, k.function, int32(threads), sharedBytes)
	})
	return int(n), err
}

// String describes the kernel for messages.
func (k *Kernel) String() string {
	if k == nil || k.core == nil {
		return neverOpened("Kernel")
	}
	return fmt.Sprintf("Kernel %s on %v%s", k.name, k.core.ctx.device, closedText(k.core.Closed()))
}

// refused adds the kernel's name to e, the driver's refusal of a launch, and the limits
// that the launch exceeds.
func (k *Kernel) refused(e *Error, cfg *LaunchConfig) error {
	if e.Code != 0 {
		e.Detail = "kernel " + k.name
	}
	switch e.Code {
	case driver.CUDA_ERROR_NOT_SUPPORTED:
		e.Detail += logged("kernel " + k.core.renamed(k.name) + " ")
		return e
	case driver.CUDA_ERROR_INVALID_VALUE, driver.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
		driver.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, driver.CUDA_ERROR_INVALID_CLUSTER_SIZE, driver.CUDA_ERROR_INVALID_HANDLE:
	default:
		return e
	}
	p, err := k.core.ctx.device.Properties()
	if err != nil {
		return e
	}
	f, err := k.limits()
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

// logged returns what follows in the last message of the driver's log that has a text such as "kernel add ", from
// the last character of that text on; "" if there is none, or before CUDA 12.9.
func logged(what string) string {
	const most = 25600 // drivers were seen to write a hundred bytes more
	text, size := make([]byte, most+1024), uint64(most)
	if driver.CuLogsDumpToMemory(nil, &text[0], &size, 0) != nil {
		return ""
	}
	all := ffi.GoStringN(text)
	at := strings.LastIndex(all, what)
	if at < 0 {
		return ""
	}
	rest, _, _ := strings.Cut(all[at+len(what)-1:], "\n")
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

// volume is wrong only for more blocks or threads than CUDA allows.
func volume(d Dim) uint64 { return uint64(d.X) * uint64(max(d.Y, 1)) * uint64(max(d.Z, 1)) }

// kernelLimits are the attributes of a kernel that limit its launches.
type kernelLimits struct {
	threads   int // per block
	registers int // per thread
	static    int // shared memory per block in bytes, without dynamic
	dynamic   int // shared memory per block in bytes
}

func (k *Kernel) limits() (l kernelLimits, err error) {
	for _, a := range []struct {
		value *int
		id    driver.CUfunction_attribute
	}{
		{&l.threads, driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
		{&l.registers, driver.CU_FUNC_ATTRIBUTE_NUM_REGS},
		{&l.static, driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
		{&l.dynamic, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
	} {
		if *a.value, err = k.Attribute(a.id); err != nil {
			return l, err
		}
	}
	return l, nil
}

// exceededByBlock names the limits that a single block exceeds.
func (k *Kernel) exceededByBlock(cfg *LaunchConfig, p Properties, f kernelLimits) []string {
	var out []string
	threads := volume(cfg.Block)
	if threads > uint64(p.MaxThreadsPerBlock) {
		out = append(out, fmt.Sprintf("%d threads per block, the device's maximum is %d", threads, p.MaxThreadsPerBlock))
	} else if threads > uint64(f.threads) {
		out = append(out, fmt.Sprintf("%d threads per block, the maximum of %s is %d (it uses %d registers per thread)", threads, k.name, f.threads, f.registers))
	}
	dynamic, static := int(cfg.SharedBytes), f.static
	switch {
	case dynamic+static > max(p.SharedMemoryPerBlockOptin, p.SharedMemoryPerBlock):
		out = append(out, fmt.Sprintf("%d bytes of shared memory per block, the device's maximum is %d", dynamic+static, max(p.SharedMemoryPerBlockOptin, p.SharedMemoryPerBlock)))
	case dynamic > f.dynamic:
		out = append(out, fmt.Sprintf("%d bytes of dynamic shared memory, the maximum of %s is %d: raise CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES with Kernel.SetAttribute", dynamic, k.name, f.dynamic))
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

// parameterCounts returns the number of parameters of each kernel in a checked image, as far
// as the image tells: PTX and machine code do, a fatbin may be compressed. Drivers before
// CUDA 13.2 have no call for it. They fail for the first parameter that is not there, which
// debuggers report as an error of the program.
func parameterCounts(image []byte) map[string]int {
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		return parametersInELF(image)
	}
	if bytes.Contains(image, []byte(".version")) {
		return parametersInPTX(image)
	}
	return nil
}

var (
	ptxIgnored = regexp.MustCompile(`(?s)"[^"\n]*"|/\*.*?\*/|//[^\n]*`)
	ptxEntry   = regexp.MustCompile(`\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?`)
	ptxParam   = regexp.MustCompile(`\.param\b`)
)

func parametersInPTX(text []byte) map[string]int {
	counts := map[string]int{}
	for _, entry := range ptxEntry.FindAllSubmatch(ptxIgnored.ReplaceAll(text, []byte(" ")), -1) {
		counts[string(entry[1])] = len(ptxParam.FindAll(entry[2], -1))
	}
	return counts
}

// parametersInELF counts the records of parameters in the section that describes each kernel.
func parametersInELF(image []byte) map[string]int {
	f, err := elf.NewFile(cubin(image))
	if err != nil {
		return nil
	}
	counts := map[string]int{}
	for _, s := range f.Sections {
		kernel, ok := strings.CutPrefix(s.Name, ".nv.info.")
		if !ok {
			continue
		}
		records, err := s.Data()
		if err != nil {
			return nil
		}
		counts[kernel] = parameterRecords(records)
	}
	return counts
}

// parameterRecords counts the records that describe a parameter. A record has a format, what
// it describes, and a value of 2 bytes: for the format sized, that is the size of what follows.
func parameterRecords(records []byte) (count int) {
	const (
		sized     = 4
		parameter = 0x17
		large     = 0x45 // a parameter of a kernel with more than 4 KiB of them
	)
	for len(records) >= 4 {
		format, what, value := records[0], records[1], int(binary.LittleEndian.Uint16(records[2:]))
		records = records[4:]
		if format == sized {
			if what == parameter || what == large {
				count++
			}
			records = records[min(value, len(records)):]
		}
	}
	return count
}

// parameterCount returns the number of parameters of a kernel, or -1 if neither the driver nor
// the image tells. The context is current.
func (k *Kernel) parameterCount() (int, error) {
	var n uint64
	err := driver.CuFuncGetParamCount(k.function, &n)
	if !errors.Is(err, ErrNotSupported) {
		return int(n), err
	}
	m := k.core
	if count, ok := m.parameters[m.renamed(k.name)]; ok {
		return count, nil
	}
	return -1, nil
}

// Kernels returns the kernels of the module, in no particular order. It returns
// [ErrNotSupported] if the driver is older than CUDA 12.4.
// Source: cuLibraryGetKernelCount, cuLibraryEnumerateKernels, cuKernelGetName,
// cuKernelGetFunction, cuFuncGetParamInfo, cuFuncIsLoaded, cuFuncGetAttribute.
func (m *Module) Kernels() ([]*Kernel, error) {
	const op = "Module.Kernels"
	c, err := m.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	var kernels []*Kernel
	err = c.ctx.allocating(func() error {
		kernels = nil
		return c.eachKernel(math.MaxInt, func(name string, raw driver.CUkernel) error {
			k := &Kernel{core: c, module: m, name: name}
			if err := driver.CuKernelGetFunction(&k.function, raw); err != nil {
				return err
			}
			kernels = append(kernels, k)
			return k.ask()
		})
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return kernels, nil
}
