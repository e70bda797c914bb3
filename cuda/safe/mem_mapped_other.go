//go:build !linux

package safe

import "unsafe"

// registrable checks host memory that is to be registered with ReadOnly. Nothing is known to hang here.
func registrable(string, unsafe.Pointer, uint64) error { return nil }

// whyNotRegistered says what the caller may do if cuMemHostRegister refuses memory.
func whyNotRegistered(unsafe.Pointer, uint64) string { return "" }
