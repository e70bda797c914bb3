package blas

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	lib "github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe"
)

// MatmulOptions are the options of [Matmul]. The zero value is a plain product. All arrays are
// device memory of the handle's context, and packed unless another stride is stated.
type MatmulOptions struct {
	// Epilogue is a function that is applied to the result.
	Epilogue Epilogue
	// Bias has an element for each column of d, of d's type, and is added to every row, before
	// the Epilogue. For 8-bit floating-point inputs it is BFloat16, or Float16 if d is.
	Bias Array
	// Aux is what the gradient of the Epilogue needs: [ReLU] and [GELU] write it if it is
	// set, and [DReLU] and [DGELU] read it. See [AuxLen].
	Aux Array
	// BiasGrad receives the sum of every column of d, with [DReLU] and [DGELU]: the gradient
	// of their Bias. It has d's type.
	BiasGrad Array
	// SumA receives the sum of every row of a, and SumB that of every column of b, with no
	// Epilogue, and not both. They have d's type. In a step that multiplies the transpose of
	// inputs by gradients, SumB is the gradient of the bias. Store a by column for
	// SumA, and b by row for SumB: cuBLAS lacks some of the other orders, and Matmul then
	// returns [safe.ErrNotSupported].
	SumA, SumB Array
	// ScaleA, ScaleB and ScaleD are one factor each for a matrix of 8-bit floating-point
	// numbers; nil means 1. d is multiplied before it is rounded. AmaxD receives d's largest
	// magnitude before ScaleD.
	ScaleA, ScaleB, ScaleD, AmaxD *safe.Buffer[float32]
	// FastAccumulation adds products of 8-bit floating-point numbers faster and less
	// precisely, on GPUs of compute capability 8.9 and 9.0.
	FastAccumulation bool
}

// Matmul enqueues d = epilogue(alpha*a*b + beta*d + bias). The rules for shapes, views and factors, and the errors, are
// those of [Gemm]. These types go together:
//
//	a, b                              d
//	Float16                           Float16, float32
//	BFloat16                          BFloat16, float32
//	float32, as by [Handle.With]      float32
//	float64, complex64, complex128    the same
//	int8                              int32, int8, float32
//	Float8E4M3, Float8E5M2            Float16, BFloat16, float32, Float8E4M3, Float8E5M2
//
// a and b have the same type, but one may be Float8E4M3 and the other Float8E5M2. Float8E5M2 for d needs one of them to
// be Float8E5M2, and beta must be 0 if d has 8-bit floating-point numbers.
//
// With int8 and 8-bit floating-point numbers, the elements that are multiplied must lie side by side: a is stored by
// row and b by column. That is, with weights that are stored by row with a row for each output, b is weights.T(). GPUs
// of compute capability 10 and 11 take any order of 8-bit floating-point numbers. Before 8.9, GPUs have no products of
// these: Matmul returns [safe.ErrNotSupported]. For 8-bit floating-point numbers, the addresses in bytes, and the
// strides and lengths of stored rows or columns in elements, must be multiples of 16 for all matrices; for int8 they
// must be multiples of 4.
//
// If o has an Epilogue or an Array, d must be stored by row, and a, b and d must have real floating-point numbers.
//
// The first call with given shapes, strides, types and options asks cuBLAS for an algorithm, which the Handle keeps for
// later calls. Source: cublasLtMatmul, cublasLtMatmulAlgoGetHeuristic.
func Matmul[A, B, D Number, S Scalar](h *Handle, s *safe.Stream, alpha S, a Matrix[A], b Matrix[B], beta S, d Matrix[D], o MatmulOptions) error {
	const op = "blas.Matmul"
	q, err := newCall(h, s)
	if err != nil {
		return fail(op, err)
	}
	err = matmul(q, h.math, number(alpha), a, b, number(beta), d, &o)
	q.free()
	if err != nil {
		return failed(op, err, a, b, d)
	}
	return nil
}

func matmul[A, B, D Number](q *call, m Math, alpha complex128, a Matrix[A], b Matrix[B], beta complex128, d Matrix[D], o *MatmulOptions) error {
	if q.core.ltError != nil {
		return q.core.ltError
	}
	va, vb, vd := &q.views[0], &q.views[1], &q.views[2]
	var err error
	if *va, err = a.view("a"); err != nil {
		return err
	}
	if *vb, err = b.view("b"); err != nil {
		return err
	}
	if *vd, err = d.view("d"); err != nil {
		return err
	}
	if err := apart(vd, "d", va, "a"); err != nil {
		return err
	}
	if err := apart(vd, "d", vb, "b"); err != nil {
		return err
	}
	p := &q.lt
	*p = matmulCall{}
	if err := p.types(q, m, va, vb, vd, beta); err != nil {
		return err
	}
	if err := q.product(m, va, vb, vd, alpha, beta); err != nil {
		return err
	}
	if err := p.order(q.core.capability, va, vb, vd); err != nil {
		return err
	}
	if err := p.arrays(q, o, va, vb, vd); err != nil || vd.empty() {
		return err
	}
	p.problem(q, va, vb, vd)
	q.use3(a.Buffer.Arg(), b.Buffer.Arg(), d.Buffer.Arg())
	q.doLt = enqueueMatmul
	return q.submit()
}

// matmulCall is what a call of Matmul has beside [call].
type matmulCall struct {
	key       planKey
	addresses [numAddresses]driver.CUdeviceptr
}

// Addresses of a call beside the matrices.
const (
	addressBias = iota // also of what BiasGrad, SumA and SumB receive
	addressAux
	addressScaleX
	addressScaleY
	addressScaleD
	addressAmax
	numAddresses
)

// types finds the types that go together.
func (p *matmulCall) types(q *call, m Math, a, b, d *view, beta complex128) error {
	k := &p.key
	k.compute, k.scale, k.c = m.compute(a.kind), d.kind.scale, d.kind.data
	ok := a.kind == b.kind
	switch a.kind {
	case kindFloat16, kindBFloat16:
		ok = ok && (d.kind == a.kind || d.kind == kindFloat32)
	case kindInt8:
		ok = ok && (d.kind == kindInt8 || d.kind == kindInt32 || d.kind == kindFloat32)
		if d.kind != kindFloat32 {
			k.compute = cublas.CUBLAS_COMPUTE_32I
		} else {
			k.compute = cublas.CUBLAS_COMPUTE_32F
		}
	case kindFloat8E4M3, kindFloat8E5M2:
		ok = b.kind.float8() && (a.kind == kindFloat8E4M3 || b.kind == kindFloat8E4M3)
		k.compute = cublas.CUBLAS_COMPUTE_32F
		switch d.kind {
		case kindFloat16, kindBFloat16, kindFloat32:
		case kindFloat8E4M3:
			k.c = lib.CUDA_R_16BF
		case kindFloat8E5M2:
			ok = ok && (a.kind == kindFloat8E5M2 || b.kind == kindFloat8E5M2)
			k.c = lib.CUDA_R_16BF
		default:
			ok = false
		}
	case kindInt32:
		ok = false
	default:
		ok = ok && d.kind == a.kind
	}
	if !ok {
		return fmt.Errorf("%w: cuBLAS does not multiply %v by %v with a result of %v", safe.ErrInvalidArgument, a.kind, b.kind, d.kind)
	}
	if d.kind.float8() && beta != 0 {
		return fmt.Errorf("%w: beta is %v, but must be 0 for a result of %v", safe.ErrInvalidArgument, beta, d.kind)
	}
	return nil
}

func (k *kind) float8() bool { return k == kindFloat8E4M3 || k == kindFloat8E5M2 }

// order checks what 8-bit types need.
func (p *matmulCall) order(capability int, a, b, d *view) error {
	switch major := capability / 10; {
	case a.kind == kindInt8:
		return narrow(a, b, d, true, 4)
	case a.kind.float8() && capability < 89:
		return fmt.Errorf("%w: products of 8-bit floating-point numbers need compute capability 8.9, this GPU has %d.%d", safe.ErrNotSupported, major, capability%10)
	case a.kind.float8():
		return narrow(a, b, d, major < 10 || major > 11, 16)
	}
	return nil
}

func narrow(a, b, d *view, sideBySide bool, multiple int) error {
	if sideBySide && (a.byColumn || !b.byColumn) {
		return fmt.Errorf("%w: for %v, a must be stored by row and b by column: multiply by the T() of a matrix whose rows are the columns of b", safe.ErrInvalidArgument, a.kind)
	}
	for i, v := range [...]*view{a, b, d} {
		if _, length := v.lines(); v.stride%multiple != 0 || uint64(v.address)%uint64(multiple) != 0 || length%multiple != 0 {
			return fmt.Errorf("%w: for products of %v, addresses, strides and the lengths of stored rows or columns must be multiples of %d: %s is %v with stride %d",
				safe.ErrInvalidArgument, a.kind, multiple, "abd"[i:i+1], v.String(), v.stride)
		}
	}
	return nil
}

// problem makes the key of the plan.
func (p *matmulCall) problem(q *call, a, b, d *view) {
	x, y := a, b
	if !d.byColumn {
		x, y = b, a
	}
	k := &p.key
	k.x, k.y, k.d = x.kind.data, y.kind.data, d.kind.data
	k.m, k.n, k.k, k.opX, k.opY = q.m, q.n, q.k, q.opX, q.opY
	k.ldx, k.ldy, k.ldd = q.ldx, q.ldy, q.ldz
	k.alignX, k.alignY, k.alignD = alignment(q.x), alignment(q.y), alignment(q.z)
	for i, address := range p.addresses {
		if address != 0 {
			k.given |= 1 << i
			if i <= addressAux {
				k.aligned[i] = alignment(address)
			}
		}
	}
}

// alignment returns the largest power of two that divides the address, up to 256.
func alignment(address driver.CUdeviceptr) uint16 {
	a := uint16(256)
	for uint64(address)%uint64(a) != 0 {
		a /= 2
	}
	return a
}
