package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// ModuleLoadingMode is whether this process loads kernels when they are first
// used (driver.CU_MODULE_LAZY_LOADING) or with their module
// (driver.CU_MODULE_EAGER_LOADING), which the environment variable
// CUDA_MODULE_LOADING decides. Source: cuModuleGetLoadingMode.
func ModuleLoadingMode() (driver.CUmoduleLoadingMode, error) {
	const op = "ModuleLoadingMode"
	if err := rt.Init(); err != nil {
		return 0, wrap(op, err)
	}
	var mode driver.CUmoduleLoadingMode
	err := driver.CuModuleGetLoadingMode(&mode)
	return mode, wrap(op, err)
}

// Loaded tells whether the kernel is on the device yet. It needs a driver of
// CUDA 12.4. Source: cuFuncIsLoaded.
func (k *Kernel) Loaded() (bool, error) {
	var state driver.CUfunctionLoadingState
	err := k.do("Kernel.Loaded", func() error { return driver.CuFuncIsLoaded(&state, k.function) })
	return state == driver.CU_FUNCTION_LOADING_STATE_LOADED, err
}

// Load puts the kernel on the device, which the first launch would do else, and
// may wait for what runs there. It needs a driver of CUDA 12.4.
// Source: cuFuncLoad.
func (k *Kernel) Load() error {
	return k.do("Kernel.Load", func() error { return driver.CuFuncLoad(k.function) })
}

// Kernels lists the kernels of the module, in no order. It needs a driver of
// CUDA 12.4. Source: cuLibraryGetKernelCount, cuLibraryEnumerateKernels,
// cuKernelGetName, cuKernelGetFunction.
func (m *Module) Kernels() ([]*Kernel, error) {
	const op = "Module.Kernels"
	c, err := m.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	var kernels []*Kernel
	err = c.ctx.withCurrent(func() error {
		var n uint32
		if err := driver.CuLibraryGetKernelCount(&n, c.library); err != nil || n == 0 {
			return err
		}
		raw := make([]driver.CUkernel, n)
		if err := driver.CuLibraryEnumerateKernels(&raw[0], n, c.library); err != nil {
			return err
		}
		for _, r := range raw {
			var name *byte // the driver's
			if err := driver.CuKernelGetName(&name, r); err != nil {
				return err
			}
			k := &Kernel{module: m, name: goString(name)}
			if err := driver.CuKernelGetFunction(&k.function, r); err != nil {
				return err
			}
			if err := k.askParameters(); err != nil {
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

// goString copies a string of the driver's.
func goString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
