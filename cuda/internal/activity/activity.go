//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Package activity has the buffers that CUPTI fills with records, and the functions that CUPTI
// calls for them. It calls them inside calls of CUDA, where no Go code may run: so they are a
// few instructions of C or of assembly on two words, which buffers are free and which are
// filled. Go asks for the filled ones from time to time.
package activity

import (
	"math/bits"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	// Size is the size of a buffer; the assembly knows it.
	Size = 1 << 20
	// Most is how many buffers there can be: the bits of a word.
	Most = 64
)

// shared is what the functions see, outside of Go's heap: the same as in C and assembly.
type shared struct {
	base    uintptr       // 0: of the buffers
	size    uint64        // 8: of one
	free    atomic.Uint64 // 16: a bit for each buffer
	filled  atomic.Uint64 // 24
	starved atomic.Uint64 // 32: requests when no buffer was free
	_       [3]uint64     // 40
	valid   [Most]uint64  // 64: bytes filled
}

var (
	s       *shared
	allowed uint64 // buffers that Open has made available, a bit each
	parked  uint64 // others, unless CUPTI still has them
)

// Open makes so many buffers available, Most at most. They stay mapped until the process ends, as
// CUPTI may keep some; memory that it never touches costs only addresses. No other function of the
// package may run meanwhile.
func Open(count int) error {
	if s == nil {
		head := (int(unsafe.Sizeof(shared{})) + 4095) &^ 4095
		m, err := syscall.Mmap(-1, 0, head+Size*Most, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
		if err != nil {
			return err
		}
		s = (*shared)(unsafe.Pointer(&m[0]))
		s.base, s.size = uintptr(unsafe.Pointer(&m[head])), Size
		parked = ^uint64(0)
		publish(s)
	}
	allowed = ^uint64(0) >> (Most - min(max(count, 1), Most))
	parked |= s.free.And(allowed) &^ allowed
	s.free.Or(parked & allowed)
	parked &^= allowed
	return nil
}

// Filled calls f with each filled buffer, and frees it. Only one goroutine at a time may call it.
func Filled(f func(p unsafe.Pointer, valid uint64)) {
	if s == nil {
		return
	}
	for done := s.filled.Swap(0); done != 0; done &= done - 1 {
		i := bits.TrailingZeros64(done)
		if n := s.valid[i]; n > 0 {
			f(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&s.base)), i*Size), n)
		}
		parked |= 1 << i &^ allowed
		s.free.Or(1 << i & allowed)
	}
}

// Scarce returns whether few buffers are free. From CUDA 13 on, each thread that calls CUDA keeps one until it is full.
func Scarce() bool { return s != nil && bits.OnesCount64(s.free.Load()) < Most/4 }

// Starved returns how many requests have found no free buffer: CUPTI drops records then.
func Starved() uint64 {
	if s == nil {
		return 0
	}
	return s.starved.Load()
}

// Lent returns the number of buffers that CUPTI has.
func Lent() int {
	if s == nil {
		return 0
	}
	return Most - bits.OnesCount64(s.free.Load()|s.filled.Load()|parked)
}
