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
	argPointers = rt.FirstOther + iota // its type holds Go pointers; Pointer is the type's name
	argClosed                          // its buffer is closed, nil or not for kernels
)

// Val is an argument of any type that holds no Go pointers: a number or a
// struct, as large as the kernel's parameter. Go's int has 8 bytes, where C's
// has 4: convert. Up to 16 bytes it costs no allocation; see [Ref] for more.
//
// An address in v, such as [Buffer.Raw], is a number like others: the memory is not
// known to be used by the kernel, and may be freed before it runs. Name it in
// [LaunchConfig].Uses.
func Val[T any](v T) Arg {
	if !plain(v) {
		return pointers[T]()
	}
	tag := rt.Tag(rt.Near, unsafe.Sizeof(v))
	switch unsafe.Sizeof(v) { // reading more than was written just now is slow
	case 1:
		return Arg{rt.Arg{Tag: tag, A: uint64(*(*uint8)(unsafe.Pointer(&v)))}}
	case 2:
		return Arg{rt.Arg{Tag: tag, A: uint64(*(*uint16)(unsafe.Pointer(&v)))}}
	case 4:
		return Arg{rt.Arg{Tag: tag, A: uint64(*(*uint32)(unsafe.Pointer(&v)))}}
	case 8:
		return Arg{rt.Arg{Tag: tag, A: *(*uint64)(unsafe.Pointer(&v))}}
	}
	if unsafe.Sizeof(v) <= 16 {
		var near [2]uint64
		*(*T)(unsafe.Pointer(&near)) = v
		return Arg{rt.Arg{Tag: tag, A: near[0], B: near[1]}}
	}
	far := new(T)
	*far = v
	return Ref(far)
}

// Ref is [Val] of *v, which is read at the launch, without an allocation
// whatever its size.
func Ref[T any](v *T) Arg {
	if v == nil || !holdsNoPointers(reflect.TypeFor[T]()) {
		return pointers[T]()
	}
	return Arg{rt.Arg{Tag: rt.Tag(rt.Far, unsafe.Sizeof(*v)), Pointer: unsafe.Pointer(v)}}
}

func pointers[T any]() Arg {
	name := reflect.TypeFor[T]().String()
	return Arg{rt.Arg{Tag: rt.Tag(argPointers, 0), Pointer: unsafe.Pointer(&name)}}
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
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	return addressArg(b.memory, uint64(b.address))
}

// Arg is the address at which kernels see the memory, as an argument of one.
func (h *Pinned[T]) Arg() Arg {
	if h == nil || h.memory == nil || h.memory.address == 0 {
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	offset := uintptr(h.data) - uintptr(h.memory.host)
	return addressArg(h.memory, uint64(h.memory.address)+uint64(offset))
}

// addressArg is an address in memory, which is not collected before the launch.
func addressArg(m *memory, address uint64) Arg {
	return Arg{rt.Arg{Tag: rt.Tag(rt.NearOfBlock, unsafe.Sizeof(address)), Pointer: unsafe.Pointer(m), A: address}}
}

// block is that of an argument of the kind NearOfBlock.
func (a *Arg) block() *block { return (*memory)(a.raw.Pointer).block }
