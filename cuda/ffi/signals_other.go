//go:build !linux

package ffi

import "os"

// RestoreSignals does nothing, as only on Linux C functions are known that change how the Go runtime handles signals.
func RestoreSignals() (restored []os.Signal) { return nil }
