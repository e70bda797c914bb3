package blas

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cublas"
	lib "github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Gemv enqueues y = alpha*a*x + beta*y. a has as many rows as y has elements, and as many columns as x has. Otherwise
// the rules and errors are those of [Gemm]. Source: cublasSgemv_64 and the like; cublasGemmEx_64 for 16-bit types and
// where a is conjugated without being transposed.
func Gemv[T Element, S Scalar](h *Handle, s *safe.Stream, alpha S, a Matrix[T], x Vector[T], beta S, y Vector[T]) error {
	const op = "blas.Gemv"
	q, err := newCall(h, s)
	if err != nil {
		return fail(op, err)
	}
	err = gemv(q, h.math, number(alpha), a, x, number(beta), y)
	q.free()
	if err != nil {
		return failed(op, err, a, x, y)
	}
	return nil
}

func gemv[T Element](q *call, m Math, alpha complex128, a Matrix[T], x Vector[T], beta complex128, y Vector[T]) error {
	va, err := a.view("a")
	if err != nil {
		return err
	}
	vx, err := x.view("x")
	if err != nil {
		return err
	}
	vy, err := y.view("y")
	if err != nil {
		return err
	}
	if a.Cols != x.N || a.Rows != y.N {
		return fmt.Errorf("%w: a (%dx%d) times x (%d elements) does not make y (%d elements)", safe.ErrInvalidArgument, a.Rows, a.Cols, x.N, y.N)
	}
	if err := apart(&vy, "y", &va, "a"); err != nil {
		return err
	}
	if err := apart(&vy, "y", &vx, "x"); err != nil {
		return err
	}
	trans, unsupported := va.op("a")
	// gemv does nothing where a has no columns, gemm scales y.
	if unsupported != nil || va.kind.size == 2 || vx.conjugate || a.Cols == 0 {
		if err := q.product(m, &va, &vx, &vy, alpha, beta); err != nil {
			return err
		}
		q.do = enqueueGemm
	} else {
		if vy.conjugate {
			return fmt.Errorf("%w: the result y is a conjugate", safe.ErrInvalidArgument)
		}
		rows, cols := va.rows, va.cols
		if !va.byColumn {
			rows, cols = cols, rows
		}
		q.kind, q.opX, q.m, q.n = va.kind, trans, int64(rows), int64(cols)
		q.x, q.y, q.z = va.address, vx.address, vy.address
		q.ldx, q.ldy, q.ldz = va.leading(), int64(x.step()), int64(y.step())
		if err := q.factors(va.kind, alpha, beta); err != nil {
			return err
		}
		q.do = enqueueGemv
	}
	if vy.empty() {
		return nil
	}
	q.use3(a.Buffer.Arg(), x.Buffer.Arg(), y.Buffer.Arg())
	return q.submit()
}

func enqueueGemv(q *call, h cublas.CublasHandle_t) error {
	alpha, beta, a, x, y := q.alpha.pointer(), q.beta.pointer(), ffi.Pointer(q.x), ffi.Pointer(q.y), ffi.Pointer(q.z)
	switch q.kind.data {
	case lib.CUDA_R_32F:
		return cublas.CublasSgemv_64(h, q.opX, q.m, q.n, (*float32)(alpha), (*float32)(a), q.ldx, (*float32)(x), q.ldy, (*float32)(beta), (*float32)(y), q.ldz)
	case lib.CUDA_R_64F:
		return cublas.CublasDgemv_64(h, q.opX, q.m, q.n, (*float64)(alpha), (*float64)(a), q.ldx, (*float64)(x), q.ldy, (*float64)(beta), (*float64)(y), q.ldz)
	case lib.CUDA_C_32F:
		return cublas.CublasCgemv_64(h, q.opX, q.m, q.n, (*complex64)(alpha), (*complex64)(a), q.ldx, (*complex64)(x), q.ldy, (*complex64)(beta), (*complex64)(y), q.ldz)
	}
	return cublas.CublasZgemv_64(h, q.opX, q.m, q.n, (*complex128)(alpha), (*complex128)(a), q.ldx, (*complex128)(x), q.ldy, (*complex128)(beta), (*complex128)(y), q.ldz)
}
