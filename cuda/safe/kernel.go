package safe

import (
	"errors"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Kernel is a __global__ function of a [Module]: see [Kernel.Launch]. It retains its
// module, so a module in use is not garbage collected. Any number of goroutines may use
// it at once.
type Kernel struct {
	module   *Module
	name     string
	function driver.CUfunction
	known    bool        // the driver reports parameters; false before CUDA 12.4
	sizes    []uint32    // of the parameters, in bytes
	prepared atomic.Bool // CUDA need not load or allocate anything for a launch
}

// ask asks the driver about the kernel. The context is current.
func (k *Kernel) ask() error {
	if err := k.askParameters(); err != nil {
		return err
	}
	return k.askPrepared()
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
	if k == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return k.module.acquire(op)
}

// openUnacquired returns the kernel's module if it is open, without acquiring it: a module is destroyed only
// after the locks of all streams were free. The caller keeps k reachable until the launch is admitted.
func (k *Kernel) openUnacquired(op string) (*moduleCore, error) {
	if k == nil || k.module == nil || k.module.core == nil || k.module.core.Closed() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return k.module.core, nil
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
	if k == nil || k.module == nil || k.module.core.Closed() {
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
// driver.CU_FUNC_ATTRIBUTE_NUM_REGS. See [Kernel.Attributes] for the common ones.
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

// FunctionAttributes describes a kernel as compiled for its device.
type FunctionAttributes struct {
	MaxThreadsPerBlock int // largest block that this kernel can be launched with
	Registers          int // per thread
	SharedBytes        int // static shared memory per block
	ConstBytes         int // constant memory
	LocalBytes         int // local memory per thread
	MaxDynamicShared   int // dynamic shared memory per block, in bytes; see [Kernel.SetAttribute]
	PTXVersion         int // 10 * major + minor: 70 is PTX 7.0
	BinaryVersion      int // 10 * major + minor: 90 is machine code for compute capability 9.0
}

// Attributes returns the kernel's common attributes. Source: cuFuncGetAttribute.
func (k *Kernel) Attributes() (FunctionAttributes, error) {
	var f FunctionAttributes
	err := k.do("Kernel.Attributes", func() error {
		for _, a := range []struct {
			value *int
			id    driver.CUfunction_attribute
		}{
			{&f.MaxThreadsPerBlock, driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
			{&f.Registers, driver.CU_FUNC_ATTRIBUTE_NUM_REGS},
			{&f.SharedBytes, driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
			{&f.ConstBytes, driver.CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES},
			{&f.LocalBytes, driver.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES},
			{&f.MaxDynamicShared, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
			{&f.PTXVersion, driver.CU_FUNC_ATTRIBUTE_PTX_VERSION},
			{&f.BinaryVersion, driver.CU_FUNC_ATTRIBUTE_BINARY_VERSION},
		} {
			var n int32
			if err := driver.CuFuncGetAttribute(&n, a.id, k.function); err != nil {
				return err
			}
			*a.value = int(n)
		}
		return nil
	})
	return f, err
}
