//go:build cgo && linux && (amd64 || arm64)

package activity

// #include <stdint.h>
// void cudabind_activity_publish(uintptr_t p);
// uintptr_t cudabind_activity_function(int i);
// void cudabind_activity_call(uintptr_t f, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e);
import "C"
import "unsafe"

func publish(t *shared) { C.cudabind_activity_publish(C.uintptr_t(uintptr(unsafe.Pointer(t)))) }

// Requested, Completed and Ignored return the addresses of the functions for CUPTI.
func Requested() uintptr { return uintptr(C.cudabind_activity_function(0)) }
func Completed() uintptr { return uintptr(C.cudabind_activity_function(1)) }
func Ignored() uintptr   { return uintptr(C.cudabind_activity_function(2)) }

// call calls one of them, as CUPTI does, for tests.
func call(f uintptr, args [5]uintptr) {
	C.cudabind_activity_call(C.uintptr_t(f), C.uintptr_t(args[0]), C.uintptr_t(args[1]), C.uintptr_t(args[2]), C.uintptr_t(args[3]), C.uintptr_t(args[4]))
}
