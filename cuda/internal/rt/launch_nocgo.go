//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// usualArgs is the number of arguments up to which a launch allocates nothing.
const usualArgs = 32

// params returns n pointers, in usual if they fit, and never an empty slice.
func params(usual *[usualArgs]unsafe.Pointer, n uint32) []unsafe.Pointer {
	if n <= usualArgs {
		return usual[:max(n, 1)]
	}
	return make([]unsafe.Pointer, n)
}

// paramsOf returns pointers to the values of n arguments, in usual if they fit. The
// compiler does not see the pointers, so that the arguments can stay on the stack: those in
// usual are on the same stack and move along, and for others the arguments are copied.
func paramsOf(usual *[usualArgs]unsafe.Pointer, args *Arg, n uint32) []unsafe.Pointer {
	all := unsafe.Slice((*Arg)(unseen(unsafe.Pointer(args))), n)
	if n > usualArgs {
		all = slices.Clone(all)
	}
	params := params(usual, n)
	for i := range all {
		params[i] = all[i].Pointer
		if all[i].Kind() != Far {
			params[i] = unsafe.Pointer(&all[i].A)
		}
	}
	return params
}

// Do is cuLaunchKernel, or cuLaunchKernelEx with attributes. args points to l.Args
// arguments.
func (l *Launch) Do(args *Arg) driver.CUresult {
	var usual [usualArgs]unsafe.Pointer
	params := paramsOf(&usual, args, l.Args)
	var calls list
	calls.in(l.Context, l.Prepared == 0) // else it could invalidate captures on other threads
	calls.notLegacy(l.Config.HStream)
	var with launchExArgs
	if l.Config.NumAttrs > 0 {
		with.set(l.Function, &l.Config, params)
		calls.next().set(cu[fnLaunchKernelEx], unsafe.Pointer(&with), 4)
	} else {
		calls.call.launch(l.Function, &l.Config, params)
		calls.next().set(cu[fnLaunchKernel], unsafe.Pointer(&calls.call), 11)
	}
	r := calls.do()
	runtime.KeepAlive(&with)
	runtime.KeepAlive(&usual)
	runtime.KeepAlive(params)
	runtime.KeepAlive(args)
	runtime.KeepAlive(l)
	return r
}

// launch makes a the arguments of cuLaunchKernel.
func (a *callArgs) launch(f driver.CUfunction, c *driver.CUlaunchConfig, params []unsafe.Pointer) {
	a.words = [9]uint64{uint64(f), uint64(c.GridDimX), uint64(c.GridDimY), uint64(c.GridDimZ),
		uint64(c.BlockDimX), uint64(c.BlockDimY), uint64(c.BlockDimZ), uint64(c.SharedMemBytes), uint64(c.HStream)}
	a.pointer = unseen(unsafe.Pointer(&params[0]))
}

// launchExArgs are the arguments of cuLaunchKernelEx.
type launchExArgs struct {
	config   unsafe.Pointer
	function driver.CUfunction
	params   unsafe.Pointer
	_        [5]uint64
}

func (a *launchExArgs) set(f driver.CUfunction, c *driver.CUlaunchConfig, params []unsafe.Pointer) {
	a.config, a.function, a.params = unseen(unsafe.Pointer(c)), f, unseen(unsafe.Pointer(&params[0]))
}
