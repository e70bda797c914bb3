package collective

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

// Op is how a reduction combines the values of the ranks. Integers wrap around. The order
// of additions is NCCL's choice, so that sums of floats may differ in the last bits between
// machines. The zero value is [Sum].
type Op struct{ of *reduction }

// The reductions. Average is the sum divided by the number of ranks, for integers rounded
// towards zero.
var (
	Sum     = Op{&reduction{name: "Sum", code: nccl.NcclSum}}
	Product = Op{&reduction{name: "Product", code: nccl.NcclProd}}
	Min     = Op{&reduction{name: "Min", code: nccl.NcclMin}}
	Max     = Op{&reduction{name: "Max", code: nccl.NcclMax}}
	Average = Op{&reduction{name: "Average", code: nccl.NcclAvg}}
)

// ScaledSum returns the sum of the values times a factor, by which each rank multiplies its
// own before they are added: 1/8 averages gradients of 8 ranks without the range of their sum.
// The ranks may have different factors. Operations round factor to the type of the values, and
// return [safe.ErrInvalidArgument] if that is an integer type that lacks it.
// Source: ncclRedOpCreatePreMulSum, ncclRedOpDestroy.
func ScaledSum(factor float64) Op {
	return Op{&reduction{name: fmt.Sprintf("ScaledSum(%g)", factor), scaled: true, factor: factor}}
}

// ScaledSumBy returns a sum as [ScaledSum] does, with a factor in device memory: the first value of a buffer, which an
// operation reads when it runs. Operations use the buffer as they use those that they reduce, which must have the same
// type and be on the same device. Source: ncclRedOpCreatePreMulSum, ncclRedOpDestroy.
func ScaledSumBy[T Element](factor *safe.Buffer[T]) Op {
	at := spanOf(factor)
	return Op{&reduction{name: "ScaledSumBy", scaled: true, at: &at, element: elementOf[T]()}}
}

// A reduction is an operator of NCCL, or says how to make one.
type reduction struct {
	name    string
	code    nccl.NcclRedOp_t // unless it is scaled
	scaled  bool
	factor  float64
	at      *span // of the factor on the device, or nil
	element nccl.NcclDataType_t
}

// String returns the name of the function or variable.
func (o Op) String() string { return o.reduction().name }

func (o Op) reduction() *reduction {
	if o.of == nil {
		return Sum.of
	}
	return o.of
}

// check refuses a factor that is no value of the type.
func (r *reduction) check(op string, t nccl.NcclDataType_t) error {
	switch {
	case !r.scaled:
	case r.at == nil:
		if _, ok := scalarOf(t, r.factor); !ok {
			return refuse(op, safe.ErrInvalidArgument, "%s, but the values are integers that lack the factor", r.name)
		}
	case r.element != t:
		return refuse(op, safe.ErrInvalidArgument, "the factor has another type than the values")
	case r.at.n == 0 && r.at.there:
		return refuse(op, safe.ErrRange, "the buffer of the factor is empty")
	}
	return nil
}

// with calls f with an operator of NCCL for the call. NCCL takes what it needs of it in f.
func (r *reduction) with(k *call, f func() error) error {
	if !r.scaled {
		k.op = r.code
		return f()
	}
	comm, residence := *k.core.raw, nccl.NcclScalarHostImmediate
	host, _ := scalarOf(k.element, r.factor)
	at := unsafe.Pointer(&host)
	if r.at != nil {
		at, residence = ffi.Pointer(r.at.address), nccl.NcclScalarDevice
	}
	if err := nccl.NcclRedOpCreatePreMulSum(&k.op, at, k.element, residence, comm); err != nil {
		return err
	}
	err := f()
	return both(err, nccl.NcclRedOpDestroy(k.op, comm))
}

// scalarOf returns a factor as a value of the type. ok tells whether an integer type has it.
func scalarOf(t nccl.NcclDataType_t, factor float64) (value [8]byte, ok bool) {
	at, single := unsafe.Pointer(&value), float32(factor)
	ok = true
	switch t {
	case nccl.NcclFloat64:
		*(*float64)(at) = factor
	case nccl.NcclFloat32:
		*(*float32)(at) = single
	case nccl.NcclFloat16:
		*(*dtype.Float16)(at) = dtype.NewFloat16(single)
	case nccl.NcclBfloat16:
		*(*dtype.BFloat16)(at) = dtype.NewBFloat16(single)
	case nccl.NcclFloat8e4m3:
		*(*dtype.Float8E4M3)(at) = dtype.NewFloat8E4M3(single)
	case nccl.NcclFloat8e5m2:
		*(*dtype.Float8E5M2)(at) = dtype.NewFloat8E5M2(single)
	case nccl.NcclInt8:
		*(*int8)(at), ok = whole[int8](factor)
	case nccl.NcclUint8:
		*(*uint8)(at), ok = whole[uint8](factor)
	case nccl.NcclInt32:
		*(*int32)(at), ok = whole[int32](factor)
	case nccl.NcclUint32:
		*(*uint32)(at), ok = whole[uint32](factor)
	case nccl.NcclInt64:
		*(*int64)(at), ok = whole[int64](factor)
	case nccl.NcclUint64:
		*(*uint64)(at), ok = whole[uint64](factor)
	}
	return value, ok
}

// whole returns a factor as an integer, if there is one.
func whole[T int8 | uint8 | int32 | uint32 | int64 | uint64](factor float64) (T, bool) {
	least, most := 0.0, math.Ldexp(1, 8*int(unsafe.Sizeof(T(0))))
	if T(0)-1 < 0 {
		least, most = -most/2, most/2
	}
	if factor != math.Trunc(factor) || !(factor >= least && factor < most) {
		return 0, false
	}
	return T(factor), true
}
