package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Pointer is memory that a kernel reaches by a pointer to T: a [Buffer], [Pinned] or [Pitched] of T. Parameters of this
// type let the Go compiler check the arguments of a kernel, in a function that launches it with [PointerArg]. A nil
// Pointer is a null pointer, but a nil *Buffer is not: launches return [ErrClosed] for it.
type Pointer[T any] interface {
	VoidPointer
	pointsTo(*T) // the parameter is nil: it ties the memory to its type
}

// VoidPointer is memory that a kernel reaches by a void pointer: a [Buffer], [Pinned] or [Pitched] of
// any type, and any [Pointer]. A nil VoidPointer is a null pointer.
type VoidPointer interface {
	Arg() Arg
	pointsToVoid()
}

func (b *Buffer[T]) pointsTo(*T)  {}
func (h *Pinned[T]) pointsTo(*T)  {}
func (b *Pitched[T]) pointsTo(*T) {}

func (b *Buffer[T]) pointsToVoid()  {}
func (h *Pinned[T]) pointsToVoid()  {}
func (b *Pitched[T]) pointsToVoid() {}

// PointerArg returns the address of p as a kernel argument, or 0 if p is nil.
func PointerArg[T any](p Pointer[T]) Arg {
	if p == nil {
		return nullArg()
	}
	return p.Arg()
}

// VoidPointerArg returns the address of p as a kernel argument, or 0 if p is nil.
func VoidPointerArg(p VoidPointer) Arg {
	if p == nil {
		return nullArg()
	}
	return p.Arg()
}

// nullArg is an address without memory.
func nullArg() Arg { return Arg{rt.Arg{Tag: rt.Tag(rt.Near, unsafe.Sizeof(uint64(0)))}} }

// Address is a pointer to T on the device, as a field of a struct that a kernel takes, or as an
// element of a Buffer. The zero value is a null pointer. An Address is a number that does not retain
// the memory: see [PointerAddress].
type Address[T any] struct{ address uint64 }

// Raw returns the address for calls to package driver.
func (a Address[T]) Raw() driver.CUdeviceptr { return driver.CUdeviceptr(a.address) }

// PointerAddress returns the address of p, and appends p to uses, for the [LaunchConfig].Uses of each
// launch whose kernel follows the address. Then the launch retains the memory, and returns
// [ErrClosed] if it is closed. A nil p has the address 0, and adds nothing.
func PointerAddress[T any](p Pointer[T], uses []Arg) (Address[T], []Arg) {
	if p == nil {
		return Address[T]{}, uses
	}
	a := p.Arg()
	return Address[T]{a.raw.A}, append(uses, a)
}

// VoidPointerAddress returns the address of p and appends p to uses, as [PointerAddress] does for typed pointers.
func VoidPointerAddress(p VoidPointer, uses []Arg) (Address[byte], []Arg) {
	if p == nil {
		return Address[byte]{}, uses
	}
	a := p.Arg()
	return Address[byte]{a.raw.A}, append(uses, a)
}
