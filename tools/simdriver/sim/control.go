//go:build cgo && linux

package sim

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "c/simulate.h"

static struct control {
	void (*fail)(const char *, long, unsigned);
	const char *(*failed)(void);
	long (*calls)(const char *);
	void (*delay)(const char *, long);
	void (*hold)(int);
	void (*fault)(unsigned);
	void (*reset)(void);
	int (*live)(const char *);
	void (*list)(char *, unsigned long);
	int (*lost)(void);
	void (*purge)(void);
	int (*violations)(void);
	const char *(*violation)(void);
	void (*strict)(int);
	void (*odd)(unsigned);
	void (*widen)(long);
	int (*flying)(void);
	void (*fault_delay)(long);
} sim;

// bind returns the name of the library or symbol that is missing, or 0.
static const char *bind(const char *file)
{
	void *lib = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
	struct control found;

	if (!lib)
		return file;
#define FIND(member, name) \
	if (!(*(void **)&found.member = dlsym(lib, name))) \
		return name;
	FIND(fail, "simFail")
	FIND(failed, "simFailed")
	FIND(calls, "simCalls")
	FIND(delay, "simDelay")
	FIND(hold, "simHold")
	FIND(fault, "simFault")
	FIND(reset, "simReset")
	FIND(live, "simLive")
	FIND(list, "simList")
	FIND(lost, "simLost")
	FIND(purge, "simPurge")
	FIND(violations, "simViolations")
	FIND(violation, "simViolation")
	FIND(strict, "simStrict")
	FIND(odd, "simOddNodes")
	FIND(widen, "simWiden")
	FIND(flying, "simFlying")
	FIND(fault_delay, "simFaultDelay")
	sim = found;
	return 0;
}

static void fail(const char *f, long nth, unsigned code) { sim.fail(f, nth, code); }
static const char *failed(void) { return sim.failed(); }
static long calls(const char *f) { return sim.calls(f); }
static void delay(const char *f, long us) { sim.delay(f, us); }
static void hold(int on) { sim.hold(on); }
static void fault(unsigned code) { sim.fault(code); }
static void reset(void) { sim.reset(); }
static int live(const char *kind) { return sim.live(kind); }
static void list(char *text, unsigned long size) { sim.list(text, size); }
static int lost(void) { return sim.lost(); }
static void purge(void) { sim.purge(); }
static int violations(void) { return sim.violations(); }
static const char *violation(void) { return sim.violation(); }
static void strict(int on) { sim.strict(on); }
static void odd(unsigned type) { sim.odd(type); }
static void widen(long us) { sim.widen(us); }
static void fault_delay(long us) { sim.fault_delay(us); }
static int flying(void) { return sim.flying(); }
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"
)

// Control controls the simulated driver of this process. A process has one driver, so all
// Controls are alike.
type Control struct{}

// Attach returns the Control of the simulated driver that this process has loaded from a
// file of [Build]. It returns an error if no driver was loaded from that file yet.
func Attach(file string) (Control, error) {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	if missing := C.bind(name); missing != nil {
		if name := C.GoString(missing); name != file {
			return Control{}, fmt.Errorf("%s is not a simulated driver: it has no %s", file, name)
		}
		return Control{}, fmt.Errorf("%s is not loaded: call CUDA first", file)
	}
	return Control{}, nil
}

// named calls f with the C string of a function's name, or NULL for "".
func named(function string, f func(*C.char)) {
	if function == "" {
		f(nil)
		return
	}
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	f(name)
}

// Fail makes the nth call from now of an exported function, such as "cuStreamDestroy_v2",
// do nothing and return code; 1 is the next call. The function "" counts the calls of all
// functions except auxiliary ones such as cuCtxSetCurrent. An nth of 0 cancels it.
func (Control) Fail(function string, nth int, code uint32) {
	named(function, func(name *C.char) { C.fail(name, C.long(nth), C.uint(code)) })
}

// Failed returns the function that [Control.Fail] made fail last, or "" if none has failed
// since [Control.Reset].
func (Control) Failed() string { return C.GoString(C.failed()) }

// Calls returns the number of calls of a function; for "", the number of calls that
// [Control.Fail] counts.
func (Control) Calls(function string) (n int) {
	named(function, func(name *C.char) { n = int(C.calls(name)) })
	return n
}

// Delay makes every call of a function take longer by d.
func (Control) Delay(function string, d time.Duration) {
	named(function, func(name *C.char) { C.delay(name, C.long(d.Microseconds())) })
}

// Hold(true) keeps streams from starting new work until Hold(false).
func (Control) Hold(on bool) { C.hold(flag(on)) }

// Strict(true) makes calls fail unless the context of their object is current, as with older
// drivers.
func (Control) Strict(on bool) { C.strict(flag(on)) }

// OddNodes makes the driver report the given type for every graph node, such as a type of a
// newer driver that the program does not know. 0 cancels it.
func (Control) OddNodes(kind uint32) { C.odd(C.uint(kind)) }

// Widen makes data races more likely on machines with few cores: of the calls that must not
// overlap with others, some first wait for d and the rest yield. 0 cancels it. The
// environment variable SIMDRIVER_WIDEN does the same, in microseconds.
func (Control) Widen(d time.Duration) { C.widen(C.long(d.Microseconds())) }

// Flying returns the number of calls in flight that must not overlap with others, without
// those that wait for work.
func (Control) Flying() int { return int(C.flying()) }

func flag(on bool) C.int {
	if on {
		return 1
	}
	return 0
}

// Fault makes all contexts of the process fail with code, as an illegal access of a kernel
// does. As on a GPU, calls begin to fail only after a delay: see [Control.FaultDelay].
func (Control) Fault(code uint32) { C.fault(C.uint(code)) }

// FaultDelay sets the time between a fault, of [Control.Fault] or a kernel, and the first
// call that fails. The default is 20 ms; real GPUs take 100 to 200 ms. With 0, calls fail
// at once.
func (Control) FaultDelay(d time.Duration) { C.fault_delay(C.long(d.Microseconds())) }

// Reset cancels failures, delays, Hold, OddNodes, a fault and FaultDelay, and clears
// violations.
func (Control) Reset() { C.reset() }

// Live returns the number of live objects of a kind: "primary" (retained primary contexts),
// "context", "stream", "event", "memory", "async" (stream-ordered memory), "host",
// "registered", "module", "graph", "exec", "userobject", "green", "physical", "reserved",
// "linker", "pool", "ipc", "array", "texture" or "surface"; or "" for all.
func (Control) Live(kind string) (n int) {
	named(kind, func(name *C.char) { n = int(C.live(name)) })
	return n
}

// List returns the number of live objects by kind, one line each.
func (Control) List() string {
	var text [1024]byte
	C.list((*C.char)(unsafe.Pointer(&text[0])), C.ulong(len(text)))
	return C.GoString((*C.char)(unsafe.Pointer(&text[0])))
}

// Lost returns the number of objects destroyed along with their context since the last call
// of Lost.
func (Control) Lost() int { return int(C.lost()) }

// Purge destroys all live objects, for tests that made their destruction fail.
func (Control) Purge() { C.purge() }

// Violation describes the first misuse of CUDA since [Control.Reset], such as a use of freed
// memory. It returns "" if there was none.
func (Control) Violation() string {
	if C.violations() == 0 {
		return ""
	}
	return C.GoString(C.violation())
}
