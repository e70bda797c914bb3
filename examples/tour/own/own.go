//go:build linux && (amd64 || arm64)

// Package own calls a C library that takes a stream. own.c stands for your library,
// or for one without sources.
package own

/*
#cgo LDFLAGS: -ldl
#include <stdint.h>
#include "own.h"

// Handles arrive as integers: stream 1 is not a pointer that Go may hold.
static int clear_on(uintptr_t stream, unsigned long long memory, size_t bytes)
{
	return own_clear((own_stream)stream, memory, bytes);
}
*/
import "C"

import (
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Clear clears a buffer on a stream, with the C library. Keep the buffer open until
// the stream is done: package safe does not know about this use.
func Clear(x *safe.Context, s *safe.Stream, b *safe.Buffer[float32]) error {
	defer runtime.KeepAlive(b) // a raw handle keeps no object alive
	defer runtime.KeepAlive(s)
	return x.WithCurrent(func() error { // the library needs a current context
		code := C.clear_on(C.uintptr_t(s.Raw()), C.ulonglong(b.Raw()), C.size_t(b.Size()))
		if code != 0 {
			return driver.CUresult(code)
		}
		return nil
	})
}
