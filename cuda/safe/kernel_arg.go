package safe

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

// Arg is a kernel argument, made by [Val], [Ref], [Buffer.Arg] and similar methods. Make
// a new one for each launch.
type Arg struct{ raw rt.Arg }

// Kinds of bad arguments. Making an argument cannot fail, so the launch reports them.
const (
	argUnfit  = rt.FirstOther + iota // Pointer is a string that says why
	argClosed                        // its memory is nil, or has no device address
)

// Val passes v to a kernel by value. T is a number, a bool, or a struct without Go pointers,
// of the same size as the kernel's parameter. Go's int has 8 bytes and C's has 4, so convert
// ints: Val(int32(n)). Values of up to 16 bytes cost no allocation; use [Ref] for larger
// ones.
//
// A device address inside v, such as [Buffer.Raw] in a field, is only a number to this
// package: it does not retain the memory, which might be freed before the kernel runs.
// List such memory in [LaunchConfig].Uses.
func Val[T any](v T) Arg {
	if !plain(v) {
		return unfit(toDevice(reflect.TypeFor[T]()))
	}
	tag := rt.Tag(rt.Near, unsafe.Sizeof(v))
	switch unsafe.Sizeof(v) { // a load wider than the store just before it would stall
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

// Ref passes *v to a kernel by value, as [Val] does, with no allocation for any size. The
// launch reads *v; later changes do not affect it.
func Ref[T any](v *T) Arg {
	if t := reflect.TypeFor[T](); faultOf(t).pointer != "" {
		return unfit(toDevice(t))
	} else if v == nil {
		return unfit(fmt.Sprintf("the Ref is of a nil *%v", t))
	}
	const most = math.MaxUint32 // more than any parameter has
	return Arg{rt.Arg{Tag: rt.Tag(rt.Far, min(unsafe.Sizeof(*v), most)), Pointer: unsafe.Pointer(v)}}
}

// unfit returns an argument that launches refuse.
func unfit(why string) Arg {
	return Arg{rt.Arg{Tag: rt.Tag(argUnfit, 0), Pointer: unsafe.Pointer(&why)}}
}

// plain tells whether a value holds no Go pointers; it is fast for numbers.
func plain[T any](v T) bool {
	switch any(v).(type) {
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, uintptr, float32, float64, bool,
		dtype.Float16, dtype.BFloat16, dtype.Float8E4M3, dtype.Float8E5M2:
		return true
	}
	return faultOf(reflect.TypeFor[T]()).pointer == ""
}

// Arg passes the buffer's device address to a kernel: 0 if the buffer is empty. The launch
// retains the memory.
func (b *Buffer[T]) Arg() Arg {
	if b == nil || b.memory == nil {
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	}
	if b.n == 0 {
		return addressArg(b.memory, 0)
	}
	return addressArg(b.memory, uint64(b.address))
}

// Arg passes the memory's device address to a kernel: 0 if the memory is empty. The launch
// retains the memory.
func (h *Pinned[T]) Arg() Arg {
	switch {
	case h == nil || h.memory == nil || h.n > 0 && h.memory.address == 0:
		return Arg{rt.Arg{Tag: rt.Tag(argClosed, 0)}}
	case h.n == 0:
		return addressArg(h.memory, 0)
	}
	offset := uintptr(h.data) - uintptr(h.memory.host)
	return addressArg(h.memory, uint64(h.memory.address)+uint64(offset))
}

// addressArg is an address in m. It points to m, so m is not collected before the launch.
func addressArg(m *memory, address uint64) Arg {
	return Arg{rt.Arg{Tag: rt.Tag(rt.NearOfBlock, unsafe.Sizeof(address)), Pointer: unsafe.Pointer(m), A: address}}
}

// block returns the block of an argument of kind NearOfBlock.
func (a *Arg) block() *block { return (*memory)(a.raw.Pointer).block }
