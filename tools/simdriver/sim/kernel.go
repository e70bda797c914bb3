//go:build (linux && (cgo || cudabind_nocgo)) || (windows && amd64)

package sim

import (
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"unsafe"
)

// Dim is a size in three dimensions; each is at least 1.
type Dim struct{ X, Y, Z int }

// Count returns X*Y*Z.
func (d Dim) Count() int { return d.X * d.Y * d.Z }

// Grid is the size of a launch.
type Grid struct {
	Grid    Dim // in blocks
	Block   Dim // in threads
	Cluster Dim // in blocks
	Shared  int // bytes of dynamic shared memory of each block
}

// Threads returns the number of threads of all blocks.
func (g Grid) Threads() int { return g.Grid.Count() * g.Block.Count() }

// A registered function is a kernel.
type registered struct {
	call     reflect.Value
	in       []reflect.Type // of the parameters after the Grid
	elements []reflect.Type // of those that are slices, else nil
}

// all are the registered kernels; an index is what the driver knows. None is ever removed,
// because graphs hold them.
var all struct {
	sync.RWMutex
	list []*registered
}

// most is the number of parameters that a kernel can have.
const most = 64

// Kernel registers a function of Go as the kernel that images call name. It replaces an
// earlier one; work that is already enqueued keeps its own. C++ kernels can also be
// registered under the name in the source, such as "ns::scale<float,4>", or under it without
// template arguments.
//
// The function does the work of all threads: the driver calls it once for each launch, in
// stream order, one kernel at a time. Its first parameter is a [Grid]. The others are the
// kernel's parameters:
//
//   - a slice for an address. It holds the values from there to the end of the allocation, and
//     is nil for a null address;
//   - a number, a bool, an array or a struct of these for a value. A C int is an int32; int, uint
//     and uintptr are not allowed. An address in a struct is a uint64: see [Slice].
//
// [Variable] returns a variable of the kernel's module. Slices must not be used after the function returns. The function must not call CUDA: such
// calls return CUDA_ERROR_NOT_PERMITTED. If it panics, the launch fails as that of a faulty
// kernel, with CUDA_ERROR_ILLEGAL_ADDRESS for an index out of range and other runtime errors,
// else with CUDA_ERROR_LAUNCH_FAILED; [Control.Violation] returns the message.
//
// Kernel returns an error if the function has other parameters than these, or results. A
// launch of an image whose parameters differ in number or size is refused with
// CUDA_ERROR_NOT_SUPPORTED.
func (Control) Kernel(name string, function any) error {
	k, err := newRegistered(name, function)
	if err != nil {
		return err
	}
	parameters := make([]parameter, len(k.in)+1)
	for i, t := range k.in {
		p := &parameters[i]
		if e := k.elements[i]; e != nil {
			p.address, t = 1, e
		}
		p.size, p.align = t.Size(), uintptr(t.Align())
	}
	all.Lock()
	all.list = append(all.list, k)
	id := len(all.list) - 1
	all.Unlock()
	pinned(&parameters[0], func(at uintptr) {
		named(name, func(name uintptr) { simKernel.call(name, uintptr(id), goKernel(), at, uintptr(len(k.in))) })
	})
	return nil
}

func newRegistered(name string, function any) (*registered, error) {
	refuse := func(format string, args ...any) (*registered, error) {
		return nil, fmt.Errorf("sim: kernel %q: %s", name, fmt.Sprintf(format, args...))
	}
	k := &registered{call: reflect.ValueOf(function)}
	t := reflect.TypeOf(function)
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return refuse("a kernel needs a name")
	case t == nil || t.Kind() != reflect.Func || k.call.IsNil():
		return refuse("%T is not a function", function)
	case t.NumIn() == 0 || t.In(0) != reflect.TypeFor[Grid]():
		return refuse("the first parameter of %v must be a sim.Grid", t)
	case t.IsVariadic():
		return refuse("%v has a variable number of parameters", t)
	case t.NumOut() > 0:
		return refuse("%v has results, a kernel has none", t)
	case t.NumIn()-1 > most:
		return refuse("%d parameters, the simulated driver allows %d", t.NumIn()-1, most)
	}
	for i := 1; i < t.NumIn(); i++ {
		in, element := t.In(i), reflect.Type(nil)
		if in.Kind() == reflect.Slice {
			element = in.Elem()
		}
		value := in
		if element != nil {
			value = element
		}
		if why := unfit(value); why != "" {
			return refuse("parameter %d is %v: %s", i, in, why)
		}
		k.in, k.elements = append(k.in, in), append(k.elements, element)
	}
	return k, nil
}

// unfit says why values of a type cannot be in device memory, "" if they can.
func unfit(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Uint, reflect.Uintptr:
		return fmt.Sprintf("%v has no size of its own in C; use int32 for int, int64 for long long, uint64 for size_t", t.Kind())
	case reflect.Array:
		if t.Len() > 0 {
			return unfit(t.Elem())
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if why := unfit(t.Field(i).Type); why != "" {
				return why
			}
		}
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32,
		reflect.Uint64, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
	default:
		return "device memory cannot hold " + t.String()
	}
	if t.Size() == 0 {
		return "it has no bytes"
	}
	return ""
}

// Codes of failed launches.
const (
	notFound          = 500
	illegalAddress    = 700
	misalignedAddress = 716
	launchFailed      = 719
	notPermitted      = 800
)

// parameter is a struct simParameter.
type parameter struct {
	address     int32
	size, align uintptr
}

// launched is a struct simGrid.
type launched struct {
	grid, block, cluster [3]uint32
	shared               uint32
	condition, variable  uintptr
}

// runKernel is called by the driver, on a thread of its own. rest are the sizes from each
// address, and why has room for the message of a failure.
func runKernel(id uintptr, g *launched, args *unsafe.Pointer, rest *uintptr, why *byte, room uintptr) uint32 {
	all.RLock()
	k := all.list[id]
	all.RUnlock()
	in := append(make([]reflect.Value, 0, len(k.in)+1), reflect.ValueOf(g.size()))
	addresses, sizes := unsafe.Slice(args, len(k.in)), unsafe.Slice(rest, len(k.in))
	for i, t := range k.in {
		if k.elements[i] == nil {
			in = append(in, reflect.NewAt(t, addresses[i]).Elem())
			continue
		}
		in = append(in, sliceAt(t, *(*unsafe.Pointer)(addresses[i]), int(sizes[i])))
	}
	message, code := k.run(in)
	if code != 0 {
		text := unsafe.Slice(why, int(room))
		text[copy(text[:room-1], message)] = 0
	}
	return code
}

func (g *launched) size() Grid {
	dim := func(d [3]uint32) Dim { return Dim{int(d[0]), int(d[1]), int(d[2])} }
	return Grid{dim(g.grid), dim(g.block), dim(g.cluster), int(g.shared)}
}

// sliceAt is a slice of type t of the memory at an address, nil for a null address.
func sliceAt(t reflect.Type, address unsafe.Pointer, bytes int) reflect.Value {
	if address == nil {
		return reflect.Zero(t)
	}
	n := bytes / int(t.Elem().Size())
	slice := struct {
		address       unsafe.Pointer
		length, limit int
	}{address, n, n}
	return reflect.NewAt(t, unsafe.Pointer(&slice)).Elem()
}

// run calls the function on a goroutine, which it may end as t.FailNow does. A code other
// than 0 says that it did not return.
func (k *registered) run(in []reflect.Value) (message string, code uint32) {
	done := make(chan struct{})
	message, code = "it ended its goroutine, as t.FailNow does", launchFailed
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				message, code = panicked(p)
			}
		}()
		debug.SetPanicOnFault(true) // memory may be unmapped meanwhile
		withoutCUDA(func() { k.call.Call(in) })
		message, code = "", 0
	}()
	<-done
	return message, code
}

// own is the beginning of the names of this package's functions.
var own = reflect.TypeFor[Grid]().PkgPath() + "."

// panicked describes a panic that was just recovered, with the line of the program.
func panicked(p any) (message string, code uint32) {
	switch p := p.(type) {
	case fault:
		code = p.code
	case runtime.Error:
		code = illegalAddress
	default:
		code = launchFailed
	}
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	inPanic := false
	for {
		f, more := frames.Next()
		inPanic = inPanic || f.Function == "runtime.gopanic"
		if inPanic && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, own) {
			return fmt.Sprintf("panic: %v, at %s:%d", p, f.File, f.Line), code
		}
		if !more {
			return fmt.Sprintf("panic: %v", p), code
		}
	}
}
