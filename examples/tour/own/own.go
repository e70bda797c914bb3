//go:build linux && (amd64 || arm64)

// Package own is Go for a library in C that takes a stream: own.c stands for
// yours, or for one without sources.
package own

/*
#cgo LDFLAGS: -ldl
#include <stdint.h>
#include "own.h"

// Handles come as numbers: stream 1 is one too, and no pointer that Go may hold.
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

// Clear has the library clear a buffer on a stream. Keep the buffer open until
// that is done: only the library knows of it.
func Clear(x *safe.Context, s *safe.Stream, b *safe.Buffer[float32]) error {
	defer runtime.KeepAlive(b) // a raw handle keeps nothing alive
	defer runtime.KeepAlive(s)
	return x.WithCurrent(func() error { // the library wants the context to be current
		code := C.clear_on(C.uintptr_t(s.Raw()), C.ulonglong(b.Raw()), C.size_t(b.Size()))
		if code != 0 {
			return driver.CUresult(code)
		}
		return nil
	})
}
