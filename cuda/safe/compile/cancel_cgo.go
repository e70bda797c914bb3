//go:build cgo && linux && (amd64 || arm64)

package compile

/*
#include <stdint.h>

// NVRTC asks it hundreds of times in a compilation, whether to stop.
static int stopped(void *flag, void *reserved)
{
	(void)reserved;
	return __atomic_load_n((int32_t *)flag, __ATOMIC_RELAXED) != 0;
}

static uintptr_t stopped_address(void) { return (uintptr_t)stopped; }
*/
import "C"

// stopped is the address of the C function that tells NVRTC whether to stop: 1 if the int32 at
// its first argument is not 0.
var stopped = uintptr(C.stopped_address())
