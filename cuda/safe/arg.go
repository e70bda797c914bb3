package safe

import (
	"reflect"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Arg is an argument of a kernel: see [Val], [Ref] and [Buffer.Arg]. It is made
// for one launch, and not to be kept.
type Arg struct{ raw rt.Arg }

// What can be wrong with an argument, which the launch reports.
const (
	argFine     uint32 = iota
	argPointers        // its type holds Go pointers; Far is the type's name
	argClosed          // its buffer is closed, nil or not for kernels
)

// Val is an argument of any type that holds no Go pointers: a number or a
// struct, as large as the kernel's parameter. Go's int has 8 bytes, where C's
// has 4: convert. Up to 32 bytes it costs no allocation; see [Ref] for more.
func Val[T any](v T) Arg {
	var a Arg
	if !plain(v) {
		return pointers[T]()
	}
	a.raw.Size = uint32(unsafe.Sizeof(v))
	if unsafe.Sizeof(v) <= unsafe.Sizeof(a.raw.Near) {
		*(*T)(unsafe.Pointer(&a.raw.Near)) = v
		return a
	}
	far := new(T)
	*far = v
	a.raw.Far = unsafe.Pointer(far)
	return a
}

// Ref is [Val] of *v, which is read at the launch, without an allocation
// whatever its size.
func Ref[T any](v *T) Arg {
	if v == nil || !holdsNoPointers(reflect.TypeFor[T]()) {
		return pointers[T]()
	}
	return Arg{rt.Arg{Size: uint32(unsafe.Sizeof(*v)), Far: unsafe.Pointer(v)}}
}

func pointers[T any]() Arg {
	name := reflect.TypeFor[T]().String()
	return Arg{rt.Arg{State: argPointers, Far: unsafe.Pointer(&name)}}
}

// plain tells that a value holds no Go pointers, fast for numbers.
func plain[T any](v T) bool {
	switch any(v).(type) {
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, uintptr, float32, float64, bool:
		return true
	}
	return holdsNoPointers(reflect.TypeFor[T]())
}

// Arg is the buffer's address as an argument of a kernel.
func (b *Buffer[T]) Arg() Arg {
	if b == nil || b.memory == nil {
		return Arg{rt.Arg{State: argClosed}}
	}
	return Arg{rt.Arg{Block: unsafe.Pointer(b.memory.block), Size: 8, Near: [4]uint64{uint64(b.address)}}}
}

// Arg is the address at which kernels see the memory, as an argument of one.
func (h *HostBuffer[T]) Arg() Arg {
	if h == nil || h.memory == nil || h.memory.address == 0 {
		return Arg{rt.Arg{State: argClosed}}
	}
	offset := uintptr(h.data) - uintptr(h.memory.host)
	return Arg{rt.Arg{Block: unsafe.Pointer(h.memory.block), Size: 8, Near: [4]uint64{uint64(h.memory.address) + uint64(offset)}}}
}
