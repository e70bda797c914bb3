//go:build (linux && (cgo || cudabind_nocgo)) || (windows && amd64)

package sim

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// A symbol is a function of simulate.h.
type symbol int

const (
	simFail symbol = iota
	simFailed
	simCalls
	simDelay
	simHold
	simFault
	simReset
	simLive
	simList
	simLost
	simPurge
	simViolations
	simViolation
	simStrict
	simOddNodes
	simWiden
	simFlying
	simFaultDelay
	simKernel
	simInside
	simCondition
	simCapability
	simMemory
	simVariable
	simEmpty
)

var symbols = [...]string{
	simFail: "simFail", simFailed: "simFailed", simCalls: "simCalls", simDelay: "simDelay", simHold: "simHold",
	simFault: "simFault", simReset: "simReset", simLive: "simLive", simList: "simList", simLost: "simLost",
	simPurge: "simPurge", simViolations: "simViolations", simViolation: "simViolation", simStrict: "simStrict",
	simOddNodes: "simOddNodes", simWiden: "simWiden", simFlying: "simFlying", simFaultDelay: "simFaultDelay",
	simKernel: "simKernel", simInside: "simInside", simCondition: "simCondition",
	simCapability: "simCapability", simMemory: "simMemory", simVariable: "simVariable",
	simEmpty: "simEmpty",
}

// bound are the functions' addresses, once [Attach] has found them.
var bound atomic.Pointer[[len(symbols)]uintptr]

// call calls a function whose arguments and result are integers or addresses.
func (s symbol) call(args ...uintptr) uintptr {
	var all [5]uintptr
	copy(all[:], args)
	return enter(bound.Load()[s], all)
}

// Control controls the simulated driver of this process. A process has one driver, so all
// Controls are alike.
type Control struct{}

// Attach returns the Control of the simulated driver that this process has loaded from a
// file of [Build]. It returns an error if no driver was loaded from that file yet.
func Attach(file string) (Control, error) {
	lib := loaded(file)
	if lib == 0 {
		return Control{}, fmt.Errorf("%s is not loaded: call CUDA first", file)
	}
	var found [len(symbols)]uintptr
	for s, name := range symbols {
		if found[s] = find(lib, name); found[s] == 0 {
			return Control{}, fmt.Errorf("%s is not a simulated driver: it has no %s", file, name)
		}
	}
	bound.Store(&found)
	return Control{}, nil
}

// named calls f with the C string of a function's name, or 0 for "".
func named(function string, f func(name uintptr)) {
	if function == "" {
		f(0)
		return
	}
	text := append([]byte(function), 0)
	pinned(&text[0], f)
}

// pinned calls f with the address of a value, which does not move meanwhile.
func pinned[T any](p *T, f func(address uintptr)) {
	var pin runtime.Pinner
	pin.Pin(p)
	defer pin.Unpin()
	f(uintptr(unsafe.Pointer(p)))
}

// text returns the string at an address of C.
func text(address uintptr) string {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

func micros(d time.Duration) uintptr { return uintptr(d.Microseconds()) }

// withoutCUDA calls f, whose calls of CUDA are refused.
func withoutCUDA(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	simInside.call(1)
	defer simInside.call(0)
	f()
}

// SetCondition sets a condition of a graph, for functions of [Control.Kernel]: it stands for
// cudaGraphSetConditional in device code. A handle of no condition of the kernel's context
// fails the launch.
func (Control) SetCondition(handle uint64, value uint32) {
	simCondition.call(uintptr(handle), uintptr(value))
}

// Fail makes the nth call from now of an exported function, such as "cuStreamDestroy_v2",
// do nothing and return code; 1 is the next call. The function "" counts the calls of all
// functions except auxiliary ones such as cuCtxSetCurrent. An nth of 0 cancels it.
func (Control) Fail(function string, nth int, code uint32) {
	named(function, func(name uintptr) { simFail.call(name, uintptr(nth), uintptr(code)) })
}

// Failed returns the function that [Control.Fail] made fail last, or "" if none has failed
// since [Control.Reset].
func (Control) Failed() string { return text(simFailed.call()) }

// Calls returns the number of calls of a function; for "", the number of calls that
// [Control.Fail] counts.
func (Control) Calls(function string) (n int) {
	named(function, func(name uintptr) { n = int(simCalls.call(name)) })
	return n
}

// Delay makes every call of a function take longer by d, or until [Control.Reset].
func (Control) Delay(function string, d time.Duration) {
	named(function, func(name uintptr) { simDelay.call(name, micros(d)) })
}

// Hold(true) keeps streams from starting new work until Hold(false). Allocations and releases
// of stream-ordered memory are no such work.
func (Control) Hold(on bool) { simHold.call(flag(on)) }

// Strict(true) makes calls fail unless the context of their object is current, as with older
// drivers.
func (Control) Strict(on bool) { simStrict.call(flag(on)) }

// OddNodes makes the driver report the given type for every graph node, such as a type of a
// newer driver that the program does not know. 0 cancels it.
func (Control) OddNodes(kind uint32) { simOddNodes.call(uintptr(kind)) }

// Capability makes all devices report a compute capability, such as 8, 6. It changes nothing else.
// 0, 0 cancels it.
func (Control) Capability(major, minor int) { simCapability.call(uintptr(major), uintptr(minor)) }

// Widen makes data races more likely on machines with few cores: of the calls that must not
// overlap with others, some first wait for d and the rest yield. 0 cancels it. The
// environment variable SIMDRIVER_WIDEN does the same, in microseconds.
func (Control) Widen(d time.Duration) { simWiden.call(micros(d)) }

// Flying returns the number of calls in flight that must not overlap with others, without
// those that wait for work.
func (Control) Flying() int { return int(int32(simFlying.call())) }

func flag(on bool) uintptr {
	if on {
		return 1
	}
	return 0
}

// Fault makes all contexts of the process fail with code, as an illegal access of a kernel
// does. As on a GPU, calls begin to fail only after a delay: see [Control.FaultDelay].
func (Control) Fault(code uint32) { simFault.call(uintptr(code)) }

// FaultDelay sets the time between a fault, of [Control.Fault] or a kernel, and the first
// call that fails. The default is 20 ms; real GPUs take 100 to 200 ms. With 0, calls fail
// at once.
func (Control) FaultDelay(d time.Duration) { simFaultDelay.call(micros(d)) }

// Reset cancels failures, delays, Hold, OddNodes, Capability, a fault and FaultDelay, and
// clears violations.
func (Control) Reset() { simReset.call() }

// Live returns the number of live objects of a kind: "primary" (retained primary contexts),
// "context", "stream", "event", "memory", "async" (stream-ordered memory), "host",
// "registered", "module", "graph", "exec", "userobject", "green", "physical", "reserved",
// "linker", "pool", "ipc", "array", "texture" or "surface"; or "" for all.
func (Control) Live(kind string) (n int) {
	named(kind, func(name uintptr) { n = int(int32(simLive.call(name))) })
	return n
}

// List returns the number of live objects by kind, one line each.
func (Control) List() string {
	var list string
	pinned(new([1024]byte), func(room uintptr) {
		simList.call(room, 1024)
		list = text(room)
	})
	return list
}

// Lost returns the number of objects destroyed along with their context since the last call
// of Lost.
func (Control) Lost() int { return int(int32(simLost.call())) }

// Purge destroys all live objects, for tests that made their destruction fail. Nothing may
// still be destroying objects in the background (see [Control.Live]): it would meet objects
// of the next test.
func (Control) Purge() { simPurge.call() }

// Violation describes the first misuse of CUDA since [Control.Reset], such as a use of freed
// memory. It returns "" if there was none.
func (Control) Violation() string {
	if int32(simViolations.call()) == 0 {
		return ""
	}
	return text(simViolation.call())
}
