package safe

import (
	"errors"
	"runtime"
	"strings"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// LoadOptions are the options of the driver's compiler and linker for PTX: see [LoadWith] and
// [NewLinker]. They do not affect cubins. The zero value is CUDA's default.
type LoadOptions struct {
	// MaxRegisters is the maximum number of registers per thread; 0 is no limit.
	MaxRegisters int
	// ThreadsPerBlock limits registers so that blocks of so many threads can be launched.
	// It cannot be combined with Target.
	ThreadsPerBlock int
	// Optimization is the level, 1 to 4. 0 is CUDA's default, which is 4; use
	// [NoOptimization] for level 0.
	Optimization int
	DebugInfo    bool // generate debug information, for a debugger
	LineInfo     bool // generate line numbers, for a profiler
	// Target is the architecture to compile for; 0 is that of the context's device.
	Target driver.CUjit_target
	// CacheMode sets which caches global loads use (ptxas -dlcm).
	CacheMode driver.CUjit_cacheMode
	// Log keeps the compiler's messages, such as the registers that each kernel needs: see
	// [Module.Log] and [Linker.Log]. With an error, Error.Detail has them.
	Log bool
	// Names are names by which [Module.Kernel] and [Global] find kernels and variables of the
	// image, each with the symbol that the image has for it, such as "scale<float>" for
	// "_Z5scaleIfEvPT_S0_". Symbols are also found as they are. [NewLinker] ignores Names.
	Names map[string]string
	// More are further options with their values: numbers, or addresses of memory that the
	// program keeps pinned until the call returns. They must not set log buffers.
	More map[driver.CUjit_option]uintptr
}

// NoOptimization is optimization level 0: see [LoadOptions].
const NoOptimization = -1

// A compiler holds the options passed to the driver's compiler and its log buffers. The
// driver writes to them until unpin.
type compiler struct {
	options []driver.CUjit_option
	values  []uintptr
	errors  []byte
	infos   []byte         // nil without LoadOptions.Log
	pin     runtime.Pinner // options hold addresses as numbers
}

// compiler checks the options and lays them out for the driver.
func (o LoadOptions) compiler(op string) (*compiler, error) {
	for _, n := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"MaxRegisters", o.MaxRegisters, 0, 1 << 16},
		{"ThreadsPerBlock", o.ThreadsPerBlock, 0, 1 << 16},
		{"Optimization", o.Optimization, NoOptimization, 4},
	} {
		if n.value < n.least || n.value > n.most {
			return nil, refuse(op, ErrRange, "%s is %d; it must be %d to %d", n.name, n.value, n.least, n.most)
		}
	}
	if o.Target != 0 && o.ThreadsPerBlock != 0 {
		return nil, refuse(op, ErrInvalidArgument, "Target and ThreadsPerBlock cannot be combined")
	}
	j := &compiler{errors: make([]byte, 16<<10)}
	j.setBuffer(j.errors, driver.CU_JIT_ERROR_LOG_BUFFER, driver.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
	if o.Log {
		j.infos = make([]byte, 64<<10)
		j.setBuffer(j.infos, driver.CU_JIT_INFO_LOG_BUFFER, driver.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
		j.set(driver.CU_JIT_LOG_VERBOSE, 1)
	}
	level := uintptr(max(o.Optimization, 0))
	for _, set := range []struct {
		on     bool
		option driver.CUjit_option
		value  uintptr
	}{
		{o.MaxRegisters != 0, driver.CU_JIT_MAX_REGISTERS, uintptr(o.MaxRegisters)},
		{o.ThreadsPerBlock != 0, driver.CU_JIT_THREADS_PER_BLOCK, uintptr(o.ThreadsPerBlock)},
		{o.Optimization != 0, driver.CU_JIT_OPTIMIZATION_LEVEL, level},
		{o.DebugInfo, driver.CU_JIT_GENERATE_DEBUG_INFO, 1},
		{o.LineInfo, driver.CU_JIT_GENERATE_LINE_INFO, 1},
		{o.Target != 0, driver.CU_JIT_TARGET, uintptr(o.Target)},
		{o.CacheMode != 0, driver.CU_JIT_CACHE_MODE, uintptr(o.CacheMode)},
	} {
		if set.on {
			j.set(set.option, set.value)
		}
	}
	for option, value := range o.More {
		j.set(option, value)
	}
	j.pin.Pin(&j.values[0]) // the driver stores the lengths of the logs there
	return j, nil
}

func (j *compiler) set(option driver.CUjit_option, value uintptr) {
	j.options, j.values = append(j.options, option), append(j.values, value)
}

// setBuffer sets a log buffer. Its last byte stays 0.
func (j *compiler) setBuffer(text []byte, buffer, size driver.CUjit_option) {
	j.pin.Pin(&text[0])
	j.set(buffer, uintptr(unsafe.Pointer(&text[0])))
	j.set(size, uintptr(len(text)-1))
}

// explain adds the compiler's messages to the error.
func (j *compiler) explain(err error) error {
	var e *Error
	if text := strings.TrimSpace(ffi.GoStringN(j.errors) + "\n" + j.log()); text != "" && errors.As(err, &e) {
		e.Detail = text
	}
	return err
}

// log returns the messages so far that are no errors.
func (j *compiler) log() string { return strings.TrimSpace(ffi.GoStringN(j.infos)) }

func (j *compiler) unpin() { j.pin.Unpin() }
