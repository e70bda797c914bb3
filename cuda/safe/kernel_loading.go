package safe

import (
	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// ModuleLoadingMode returns whether this process loads kernels at their first use
// (driver.CU_MODULE_LAZY_LOADING) or together with their module
// (driver.CU_MODULE_EAGER_LOADING). The environment variable CUDA_MODULE_LOADING selects
// the mode. Source: cuModuleGetLoadingMode.
func ModuleLoadingMode() (driver.CUmoduleLoadingMode, error) {
	const op = "ModuleLoadingMode"
	if err := initialize(); err != nil {
		return 0, wrap(op, err)
	}
	var mode driver.CUmoduleLoadingMode
	err := driver.CuModuleGetLoadingMode(&mode)
	return mode, wrap(op, err)
}

// Loaded reports whether the kernel's code is loaded on the device. It returns
// [ErrNotSupported] if the driver is older than CUDA 12.4. Source: cuFuncIsLoaded.
func (k *Kernel) Loaded() (bool, error) {
	var state driver.CUfunctionLoadingState
	err := k.do("Kernel.Loaded", func() error { return driver.CuFuncIsLoaded(&state, k.function) })
	return state == driver.CU_FUNCTION_LOADING_STATE_LOADED, err
}

// Load loads the kernel's code on the device, so that the first launch need not. It may
// wait for work on the device. It returns [ErrNotSupported] if the driver is older than
// CUDA 12.4. Source: cuFuncLoad, cuFuncIsLoaded, cuFuncGetAttribute.
func (k *Kernel) Load() error {
	return k.do("Kernel.Load", func() error {
		if err := driver.CuFuncLoad(k.function); err != nil {
			return err
		}
		return k.askPrepared()
	})
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
		var n uint32
		if err := driver.CuLibraryGetKernelCount(&n, c.library); err != nil || n == 0 {
			return err
		}
		raw := make([]driver.CUkernel, n)
		if err := driver.CuLibraryEnumerateKernels(&raw[0], n, c.library); err != nil {
			return err
		}
		for _, r := range raw {
			var name *byte // memory of the driver
			if err := driver.CuKernelGetName(&name, r); err != nil {
				return err
			}
			k := &Kernel{module: m, name: ffi.GoString(name)}
			if err := driver.CuKernelGetFunction(&k.function, r); err != nil {
				return err
			}
			if err := k.ask(); err != nil {
				return err
			}
			kernels = append(kernels, k)
		}
		return nil
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return kernels, nil
}
