//go:build !((cgo || cudabind_nocgo) && linux && (amd64 || arm64))

// Package activity has the buffers that CUPTI fills with records: on Linux alone.
package activity

import (
	"errors"
	"unsafe"
)

// Size and Most are those of Linux.
const (
	Size = 1 << 20
	Most = 64
)

// Open returns an error: records need Linux, and a build with cgo or the tag cudabind_nocgo.
func Open(int) error { return errors.ErrUnsupported }

// Filled does nothing.
func Filled(func(p unsafe.Pointer, valid uint64)) {}

// Starved and Lent return 0.
func Starved() uint64 { return 0 }
func Lent() int       { return 0 }

// Requested, Completed and Ignored return 0.
func Requested() uintptr { return 0 }
func Completed() uintptr { return 0 }
func Ignored() uintptr   { return 0 }

// Scarce returns false.
func Scarce() bool { return false }
