// Package ffi helps to call the raw packages in cuda/generated. It converts between Go values and what C functions take, so
// that callers need no package unsafe, and restores what C functions change for the Go runtime.
package ffi

import (
	"bytes"
	"unsafe"
)

// Pointer returns a device address, a driver.CUdeviceptr, as a pointer for functions of C that take
// one. Convert it where they declare its type: cublas.CublasSgemm takes (*float32)(ffi.Pointer(a)).
//
// Go must not read or write device memory through the pointer, and the pointer keeps nothing alive. The address must be one
// of memory, or 0: Go ends a program that has a small number, such as a handle, in a pointer.
func Pointer[A ~uint64](address A) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// CString returns text as a C string: its bytes and a zero byte, in Go memory. C sees the text up to its
// first zero byte. The memory needs no free. If C keeps the address after the call, pin it with a
// [runtime.Pinner].
func CString(text string) *byte {
	return unsafe.SliceData(append([]byte(text), 0))
}

// GoString copies the text at p, which ends before a zero byte. It returns "" for nil.
func GoString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// GoStringN copies the text that C wrote into buffer: up to the first zero byte, or all of it. It
// serves arrays in structs, too, as in GoStringN(properties.Name[:]).
func GoStringN(buffer []byte) string {
	text, _, _ := bytes.Cut(buffer, []byte{0})
	return string(text)
}

// Aligned copies value to an address that is a multiple of alignment, a power of two, and returns the address. C aligns some
// types more strictly than Go does: cuDoubleComplex, which is complex128 in Go, to 16 bytes, and cuBLAS ends the program if
// its alpha is anywhere else. T must have no pointers, as the garbage collector does not see them there.
func Aligned[T any](value T, alignment uintptr) *T {
	words := make([]uint64, (unsafe.Sizeof(value)+alignment+7)/8)
	start := unsafe.Pointer(unsafe.SliceData(words))
	p := (*T)(unsafe.Add(start, -uintptr(start)&(alignment-1)))
	*p = value
	return p
}
