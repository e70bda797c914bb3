//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Calls that enqueue copies and writes of memory of another device, beside its reset. Each test runs in its
// own process.

package safe_test

import ()
