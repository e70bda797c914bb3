package safe

import (
	"errors"
	"runtime"
	"strings"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// LoadOptions are the choices of the driver's compiler and linker, for PTX and
// for what they make of it: see [LoadWith] and [NewLinker]. Cubins are loaded as they
// are. The zero value is CUDA's default.
type LoadOptions struct {
	// MaxRegisters is how many registers a thread may have, 0 for as many as it takes.
	MaxRegisters int
	// ThreadsPerBlock is how many threads of a block there must be registers for.
	// It cannot be combined with Target.
	ThreadsPerBlock int
	// Optimization is the level, 1 to 4; 0 is CUDA's default, 4, and
	// [NoOptimization] none.
	Optimization int
	DebugInfo    bool // for a debugger
	LineInfo     bool // of source lines, for a profiler
	// Target is what to compile for, 0 for the context's device.
	Target driver.CUjit_target
	// CacheMode is how loads use the L1 cache.
	CacheMode driver.CUjit_cacheMode
	// Log, if not nil, is set to what the compiler says, also where nothing is wrong.
	Log *string
	// More are any other options, which must not be those of logs.
	More []JITOption
}

// NoOptimization is level 0 of [LoadOptions].
const NoOptimization = -1

// JITOption is an option of the compiler with its value: a number, or the
// address of memory that Go does not move, as long as the module or linker is made.
type JITOption struct {
	Option driver.CUjit_option
	Value  uintptr
}

// A compiler is what the driver's compiler gets, and where it writes what it has
// to say. What the driver keeps is pinned until its end.
type compiler struct {
	options []driver.CUjit_option
	values  []uintptr
	errors  []byte
	said    []byte
	to      *string
	pin     runtime.Pinner // the driver gets addresses as numbers
}

// compiler makes a compiler of the options.
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
			return nil, refuse(op, ErrRange, "%s is %d, not %d to %d", n.name, n.value, n.least, n.most)
		}
	}
	if o.Target != 0 && o.ThreadsPerBlock != 0 {
		return nil, refuse(op, ErrInvalidArgument, "Target and ThreadsPerBlock are both set")
	}
	j := &compiler{errors: make([]byte, 16<<10), to: o.Log}
	j.log(j.errors, driver.CU_JIT_ERROR_LOG_BUFFER, driver.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
	if o.Log != nil {
		j.said = make([]byte, 64<<10)
		j.log(j.said, driver.CU_JIT_INFO_LOG_BUFFER, driver.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
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
	for _, more := range o.More {
		j.set(more.Option, more.Value)
	}
	j.pin.Pin(&j.values[0]) // where the driver says how long the logs are
	return j, nil
}

func (j *compiler) set(option driver.CUjit_option, value uintptr) {
	j.options, j.values = append(j.options, option), append(j.values, value)
}

// log gives the driver a place for text, of which the last byte stays 0.
func (j *compiler) log(text []byte, buffer, size driver.CUjit_option) {
	j.pin.Pin(&text[0])
	j.set(buffer, uintptr(unsafe.Pointer(&text[0])))
	j.set(size, uintptr(len(text)-1))
}

// explain adds what the compiler says is wrong to the error.
func (j *compiler) explain(err error) error {
	var e *Error
	if text := strings.TrimSpace(cString(j.errors)); text != "" && errors.As(err, &e) {
		e.Detail = text
	}
	return err
}

// tell passes on what was said so far.
func (j *compiler) tell() {
	if j.to != nil {
		*j.to = strings.TrimSpace(cString(j.said))
	}
}

// end lets the logs go.
func (j *compiler) end() { j.pin.Unpin() }
