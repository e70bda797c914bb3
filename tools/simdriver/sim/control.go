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

// bind returns the name of what is missing, or 0.
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

// Control tells a simulated driver that this process has loaded how to behave.
// There is one driver in a process, so all Controls are the same.
type Control struct{}

// Attach finds the simulated driver that was loaded from a file.
func Attach(file string) (Control, error) {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	if missing := C.bind(name); missing != nil {
		return Control{}, fmt.Errorf("%s is not loaded, or is no simulated driver: no %s", file, C.GoString(missing))
	}
	return Control{}, nil
}

// named calls f with the C name of a function, NULL for "".
func named(function string, f func(*C.char)) {
	if function == "" {
		f(nil)
		return
	}
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	f(name)
}

// Fail makes the nth call from now, 1 being the next, of an exported function
// such as "cuStreamDestroy_v2" do nothing and return code. With "" it is the nth
// call of any function but those that only prepare others, such as
// cuCtxSetCurrent. An nth of 0 takes that back.
func (Control) Fail(function string, nth int, code uint32) {
	named(function, func(name *C.char) { C.fail(name, C.long(nth), C.uint(code)) })
}

// Failed is the function that was made to fail last since Reset, and "" if none was.
func (Control) Failed() string { return C.GoString(C.failed()) }

// Calls is how often a function was called, with "" how many calls counted for
// Fail.
func (Control) Calls(function string) (n int) {
	named(function, func(name *C.char) { n = int(C.calls(name)) })
	return n
}

// Delay makes every call of a function take so much longer.
func (Control) Delay(function string, d time.Duration) {
	named(function, func(name *C.char) { C.delay(name, C.long(d.Microseconds())) })
}

// Hold keeps streams from beginning new work, until it is called with false.
func (Control) Hold(on bool) { C.hold(flag(on)) }

// Strict makes every call need the context of what it is for to be current, as
// with older drivers.
func (Control) Strict(on bool) { C.strict(flag(on)) }

// OddNodes makes every node of a graph be of a type, such as one of a newer driver
// that the program does not know. A type of 0 takes that back.
func (Control) OddNodes(kind uint32) { C.odd(C.uint(kind)) }

// Widen makes some of the calls that must not overlap with others wait for d before
// they do anything, and the rest yield, so that overlaps happen on a machine of few
// cores too. A d of 0 takes that back. The environment variable SIMDRIVER_WIDEN
// does the same, in microseconds.
func (Control) Widen(d time.Duration) { C.widen(C.long(d.Microseconds())) }

// Flying is how many of the calls that must not overlap with others have begun, and
// neither returned nor begun to wait for work.
func (Control) Flying() int { return int(C.flying()) }

func flag(on bool) C.int {
	if on {
		return 1
	}
	return 0
}

// Fault kills all contexts of the process, as a bad store of a kernel does. As
// with a real one, calls fail only a little later, and one that has nothing to
// wait for may succeed before.
func (Control) Fault(code uint32) { C.fault(C.uint(code)) }

// FaultDelay is how long it takes from a fault, of [Control.Fault] or of a kernel,
// until calls fail: 20 ms unless this changes it, and 100 to 200 ms on real GPUs.
// With 0 they do at once.
func (Control) FaultDelay(d time.Duration) { C.fault_delay(C.long(d.Microseconds())) }

// Reset takes back failures, delays, a hold, odd nodes, a fault and its delay, and
// forgets violations.
func (Control) Reset() { C.reset() }

// Live is how many objects of a kind are alive: primary (retains), context,
// stream, event, memory, async, host, registered, module, graph, exec,
// userobject, green, physical, reserved, linker, pool, ipc, or "" for all.
func (Control) Live(kind string) (n int) {
	named(kind, func(name *C.char) { n = int(C.live(name)) })
	return n
}

// List says what is alive, a line a kind.
func (Control) List() string {
	var text [1024]byte
	C.list((*C.char)(unsafe.Pointer(&text[0])), C.ulong(len(text)))
	return C.GoString((*C.char)(unsafe.Pointer(&text[0])))
}

// Lost is how many objects have gone with their context since the last call.
func (Control) Lost() int { return int(C.lost()) }

// Purge destroys whatever is alive, as after a failure of what should have.
func (Control) Purge() { C.purge() }

// Violation is the first wrong use that was seen since Reset, such as one of
// memory that was freed, and "" if there was none.
func (Control) Violation() string {
	if C.violations() == 0 {
		return ""
	}
	return C.GoString(C.violation())
}
