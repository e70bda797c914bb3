package safe

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Kernel is a function of a [Module] that the device runs: see
// [Kernel.Launch]. It keeps the module from being collected. Any number of
// goroutines may use it at once.
type Kernel struct {
	module   *Module
	name     string
	function driver.CUfunction
	known    bool     // whether the driver tells the parameters
	sizes    []uint32 // of the parameters, in bytes
}

// askParameters asks how many parameters there are and how large; drivers
// before CUDA 12.4 do not tell. The context is current.
func (k *Kernel) askParameters() error {
	for i := uint64(0); ; i++ {
		var offset, size uint64
		err := driver.CuFuncGetParamInfo(k.function, i, &offset, &size)
		switch {
		case errors.Is(err, ErrNotSupported):
			return nil
		case errors.Is(err, driver.CUDA_ERROR_INVALID_VALUE):
			k.known = true
			return nil
		case err != nil:
			return err
		}
		k.sizes = append(k.sizes, uint32(size))
	}
}

// acquire marks the kernel's module for a call.
func (k *Kernel) acquire(op string) (*moduleCore, error) {
	if k == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return k.module.acquire(op)
}

// Name is the name the kernel was found by.
func (k *Kernel) Name() string {
	if k == nil {
		return ""
	}
	return k.name
}

// Raw is the kernel for calls of package driver. It is 0 once the module is
// closed; keep k reachable meanwhile.
func (k *Kernel) Raw() driver.CUfunction {
	if k == nil || k.module == nil || k.module.core.Closed() {
		return 0
	}
	return k.function
}

// Parameters are the sizes of the kernel's parameters in bytes. Drivers before
// CUDA 12.4 do not tell: the error is [ErrNotSupported].
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

// do calls f with the kernel's context current and its module marked.
func (k *Kernel) do(op string, f func() error) error {
	c, err := k.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.ctx.withCurrent(f))
}

// Attribute is one of the kernel's attributes, such as
// driver.CU_FUNC_ATTRIBUTE_NUM_REGS. Source: cuFuncGetAttribute.
func (k *Kernel) Attribute(a driver.CUfunction_attribute) (int, error) {
	var n int32
	err := k.do("Kernel.Attribute", func() error { return driver.CuFuncGetAttribute(&n, a, k.function) })
	return int(n), err
}

// SetAttribute changes one of the attributes that can be changed. A kernel that
// is to have more than 48 KiB of dynamic shared memory, say, needs
// driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES. It holds for all
// users of the module. Source: cuFuncSetAttribute.
func (k *Kernel) SetAttribute(a driver.CUfunction_attribute, value int) error {
	const op = "Kernel.SetAttribute"
	if int(int32(value)) != value {
		return refuse(op, ErrRange, "%d does not fit into 32 bits", value)
	}
	return k.do(op, func() error { return driver.CuFuncSetAttribute(k.function, a, int32(value)) })
}

// SetCacheConfig says whether the kernel would rather have more shared memory
// or more L1 cache. Source: cuFuncSetCacheConfig.
func (k *Kernel) SetCacheConfig(c driver.CUfunc_cache) error {
	return k.do("Kernel.SetCacheConfig", func() error { return driver.CuFuncSetCacheConfig(k.function, c) })
}

// MaxBlocksPerMultiprocessor is how many blocks of so many threads, with so
// many bytes of dynamic shared memory each, a multiprocessor runs at once.
// Source: cuOccupancyMaxActiveBlocksPerMultiprocessor.
func (k *Kernel) MaxBlocksPerMultiprocessor(threads int, sharedBytes uint64) (int, error) {
	const op = "Kernel.MaxBlocksPerMultiprocessor"
	var n int32
	if int(int32(threads)) != threads {
		return 0, refuse(op, ErrRange, "%d threads", threads)
	}
	err := k.do(op, func() error {
		return driver.CuOccupancyMaxActiveBlocksPerMultiprocessor(&n, k.function, int32(threads), sharedBytes)
	})
	return int(n), err
}

// FunctionAttributes are what the compiler made of a kernel.
type FunctionAttributes struct {
	MaxThreadsPerBlock int // for this kernel
	Registers          int // of each thread
	SharedBytes        int // of each block, declared in the code
	ConstBytes         int
	LocalBytes         int // of each thread
	MaxDynamicShared   int // bytes, see [Kernel.SetAttribute]
	PTXVersion         int // 70 for 7.0
	BinaryVersion      int // 90 for 9.0
}

// Attributes asks for the common attributes. Source: cuFuncGetAttribute.
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
