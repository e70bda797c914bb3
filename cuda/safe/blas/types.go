package blas

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	lib "github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

// Element is a type that all operations but [Matmul] take. Operations on Float16 and
// BFloat16 compute in float32.
type Element interface {
	float32 | float64 | complex64 | complex128 | dtype.Float16 | dtype.BFloat16
}

// Number is a type that matrices of [Matmul] may have.
type Number interface {
	Element | dtype.Float8E4M3 | dtype.Float8E5M2 | int8 | int32
}

// Real is the type of a norm: see [Nrm2To].
type Real interface {
	float32 | float64 | dtype.Float16 | dtype.BFloat16
}

// Scalar is the type of a factor. It is rounded to the type that the operation computes in.
// A factor of real matrices must have no imaginary part.
type Scalar interface {
	int | float32 | float64 | complex64 | complex128
}

// Array is a [safe.Buffer] of any type of elements.
type Array interface {
	Raw() driver.CUdeviceptr
	Arg() safe.Arg
	Len() int
}

// kind is what an operation needs to know about a type of elements.
type kind struct {
	name  string
	data  lib.CudaDataType
	scale lib.CudaDataType // of factors, and what level 1 computes in
	norm  lib.CudaDataType // of a norm
	size  int              // bytes
}

var (
	kindFloat32    = &kind{"float32", lib.CUDA_R_32F, lib.CUDA_R_32F, lib.CUDA_R_32F, 4}
	kindFloat64    = &kind{"float64", lib.CUDA_R_64F, lib.CUDA_R_64F, lib.CUDA_R_64F, 8}
	kindComplex64  = &kind{"complex64", lib.CUDA_C_32F, lib.CUDA_C_32F, lib.CUDA_R_32F, 8}
	kindComplex128 = &kind{"complex128", lib.CUDA_C_64F, lib.CUDA_C_64F, lib.CUDA_R_64F, 16}
	kindFloat16    = &kind{"Float16", lib.CUDA_R_16F, lib.CUDA_R_32F, lib.CUDA_R_16F, 2}
	kindBFloat16   = &kind{"BFloat16", lib.CUDA_R_16BF, lib.CUDA_R_32F, lib.CUDA_R_16BF, 2}
	kindFloat8E4M3 = &kind{"Float8E4M3", lib.CUDA_R_8F_E4M3, lib.CUDA_R_32F, 0, 1}
	kindFloat8E5M2 = &kind{"Float8E5M2", lib.CUDA_R_8F_E5M2, lib.CUDA_R_32F, 0, 1}
	kindInt8       = &kind{"int8", lib.CUDA_R_8I, lib.CUDA_R_32F, 0, 1}
	kindInt32      = &kind{"int32", lib.CUDA_R_32I, lib.CUDA_R_32I, 0, 4}
	kindUint8      = &kind{"uint8", lib.CUDA_R_8U, 0, 0, 1} // of masks
)

func kindOf[T Number]() *kind {
	var zero T
	switch any(zero).(type) {
	case float32:
		return kindFloat32
	case float64:
		return kindFloat64
	case complex64:
		return kindComplex64
	case complex128:
		return kindComplex128
	case dtype.Float16:
		return kindFloat16
	case dtype.BFloat16:
		return kindBFloat16
	case dtype.Float8E4M3:
		return kindFloat8E4M3
	case dtype.Float8E5M2:
		return kindFloat8E5M2
	case int8:
		return kindInt8
	}
	return kindInt32
}

// kindOfArray returns nil for a type that no operation takes.
func kindOfArray(a Array) *kind {
	switch a.(type) {
	case *safe.Buffer[float32]:
		return kindFloat32
	case *safe.Buffer[float64]:
		return kindFloat64
	case *safe.Buffer[dtype.Float16]:
		return kindFloat16
	case *safe.Buffer[dtype.BFloat16]:
		return kindBFloat16
	case *safe.Buffer[dtype.Float8E4M3]:
		return kindFloat8E4M3
	case *safe.Buffer[dtype.Float8E5M2]:
		return kindFloat8E5M2
	case *safe.Buffer[uint8]:
		return kindUint8
	}
	return nil
}

func (k *kind) String() string { return k.name }

func (k *kind) complex() bool { return k == kindComplex64 || k == kindComplex128 }

// factor is a host value of the type of a kind's scale, as C expects it.
type factor [2]uint64

// factorAlignment: cuBLAS loads a cuDoubleComplex by instructions that fault at other addresses.
const factorAlignment = 16

func (f *factor) pointer() unsafe.Pointer { return unsafe.Pointer(f) }

// number returns v as the largest type of [Scalar].
func number[S Scalar](v S) complex128 {
	switch v := any(v).(type) {
	case int:
		return complex(float64(v), 0)
	case float32:
		return complex(float64(v), 0)
	case float64:
		return complex(v, 0)
	case complex64:
		return complex128(v)
	case complex128:
		return v
	}
	panic("unreachable")
}

// set stores v as a value of type scale.
func (f *factor) set(name string, v complex128, scale lib.CudaDataType) error {
	p := f.pointer()
	switch scale {
	case lib.CUDA_C_32F:
		*(*complex64)(p) = complex64(v)
		return nil
	case lib.CUDA_C_64F:
		*(*complex128)(p) = v
		return nil
	}
	if imag(v) != 0 {
		return fmt.Errorf("%w: %s is %v, but a factor of real numbers has no imaginary part", safe.ErrInvalidArgument, name, v)
	}
	switch r := real(v); scale {
	case lib.CUDA_R_64F:
		*(*float64)(p) = r
	case lib.CUDA_R_32I:
		if r != math.Trunc(r) || math.Abs(r) > math.MaxInt32 {
			return fmt.Errorf("%w: %s is %v, but a factor of int32 must be one", safe.ErrInvalidArgument, name, r)
		}
		*(*int32)(p) = int32(r)
	default:
		*(*float32)(p) = float32(r)
	}
	return nil
}
