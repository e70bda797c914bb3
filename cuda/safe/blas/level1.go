package blas

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cublas"
	lib "github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

// Axpy enqueues y = alpha*x + y. x and y have the same number of elements and do not overlap. It returns the errors of
// [Gemm]. Source: cublasAxpyEx_64.
func Axpy[T Element, S Scalar](h *Handle, s *safe.Stream, alpha S, x, y Vector[T]) error {
	const op = "blas.Axpy"
	return vectors(op, h, s, x, y, func(q *call, vx, vy *view) error {
		if vx.conjugate || vy.conjugate {
			return errConjugate
		}
		if err := apart(vy, "y", vx, "x"); err != nil {
			return err
		}
		q.do = enqueueAxpy
		return q.factors(q.kind, number(alpha), 0)
	})
}

func enqueueAxpy(q *call, h cublas.CublasHandle_t) error {
	k := q.kind
	return cublas.CublasAxpyEx_64(h, q.n, q.alpha.pointer(), k.scale, ffi.Pointer(q.x), k.data, q.ldx, ffi.Pointer(q.y), k.data, q.ldy, k.scale)
}

var errConjugate = fmt.Errorf("%w: cuBLAS cannot conjugate this vector", safe.ErrInvalidArgument)

// Scal enqueues x = alpha*x. It returns the errors of [Gemm]. Source: cublasScalEx_64.
func Scal[T Element, S Scalar](h *Handle, s *safe.Stream, alpha S, x Vector[T]) error {
	const op = "blas.Scal"
	return vectors(op, h, s, x, x, func(q *call, v, _ *view) error {
		if v.conjugate {
			return errConjugate
		}
		q.do = enqueueScal
		return q.factors(q.kind, number(alpha), 0)
	})
}

func enqueueScal(q *call, h cublas.CublasHandle_t) error {
	k := q.kind
	return cublas.CublasScalEx_64(h, q.n, q.alpha.pointer(), k.scale, ffi.Pointer(q.x), k.data, q.ldx, k.scale)
}

// DotTo enqueues the sum of x[i]*y[i], with the result in out[0] on the device. If x has Conjugate set, its elements
// are conjugated. It returns the errors of [Gemm]. Source: cublasDotEx_64, cublasDotcEx_64.
func DotTo[T Element](h *Handle, s *safe.Stream, x, y Vector[T], out *safe.Buffer[T]) error {
	return dot("blas.DotTo", h, s, x, y, out, false)
}

// Dot returns the sum of x[i]*y[i], with the elements of x conjugated if x has Conjugate set. It waits for the stream.
// It returns [safe.ErrCapturing] if the stream is capturing, and otherwise the errors of [Gemm]. Source:
// cublasDotEx_64, cublasDotcEx_64.
func Dot[T Element](h *Handle, s *safe.Stream, x, y Vector[T]) (T, error) {
	const op = "blas.Dot"
	return waited(op, h, func(out *safe.Buffer[T]) error { return dot(op, h, s, x, y, out, true) })
}

func dot[T Element](op string, h *Handle, s *safe.Stream, x, y Vector[T], out *safe.Buffer[T], waits bool) error {
	return vectors(op, h, s, x, y, func(q *call, vx, vy *view) error {
		if vy.conjugate {
			return errConjugate
		}
		q.do, q.waits = enqueueDot, waits
		if vx.conjugate {
			q.opX = cublas.CUBLAS_OP_C
		}
		return into(q, out, vx, vy)
	})
}

func enqueueDot(q *call, h cublas.CublasHandle_t) error {
	k, dot := q.kind, cublas.CublasDotEx_64
	if q.opX == cublas.CUBLAS_OP_C {
		dot = cublas.CublasDotcEx_64
	}
	return dot(h, q.n, ffi.Pointer(q.x), k.data, q.ldx, ffi.Pointer(q.y), k.data, q.ldy, ffi.Pointer(q.z), k.data, k.scale)
}

// Nrm2To enqueues the Euclidean norm of x, with the result in out[0] on the device. R is the type of x's elements, or
// for complex64 and complex128 that of their parts. For another type it returns [safe.ErrInvalidArgument], and
// otherwise the errors of [Gemm]. Source: cublasNrm2Ex_64.
func Nrm2To[T Element, R Real](h *Handle, s *safe.Stream, x Vector[T], out *safe.Buffer[R]) error {
	return nrm2("blas.Nrm2To", h, s, x, out, false)
}

// Nrm2 returns the Euclidean norm of x. It waits for the stream. It returns [safe.ErrCapturing] if the stream is
// capturing, and otherwise the errors of [Gemm]. Source: cublasNrm2Ex_64.
func Nrm2[T Element](h *Handle, s *safe.Stream, x Vector[T]) (norm float64, err error) {
	const op = "blas.Nrm2"
	switch kindOf[T]().norm {
	case lib.CUDA_R_16F:
		v, err := waited(op, h, func(out *safe.Buffer[dtype.Float16]) error { return nrm2(op, h, s, x, out, true) })
		return float64(v.Float32()), err
	case lib.CUDA_R_16BF:
		v, err := waited(op, h, func(out *safe.Buffer[dtype.BFloat16]) error { return nrm2(op, h, s, x, out, true) })
		return float64(v.Float32()), err
	case lib.CUDA_R_32F:
		v, err := waited(op, h, func(out *safe.Buffer[float32]) error { return nrm2(op, h, s, x, out, true) })
		return float64(v), err
	}
	return waited(op, h, func(out *safe.Buffer[float64]) error { return nrm2(op, h, s, x, out, true) })
}

func nrm2[T Element, R Real](op string, h *Handle, s *safe.Stream, x Vector[T], out *safe.Buffer[R], waits bool) error {
	return vectors(op, h, s, x, x, func(q *call, v, _ *view) error {
		if r := kindOf[R](); r.data != q.kind.norm {
			return fmt.Errorf("%w: the norm of %v does not have the type %v", safe.ErrInvalidArgument, x, r)
		}
		q.do, q.waits = enqueueNrm2, waits
		return into(q, out, v, v)
	})
}

func enqueueNrm2(q *call, h cublas.CublasHandle_t) error {
	k := q.kind
	execution := k.norm
	if k.size == 2 {
		execution = lib.CUDA_R_32F
	}
	return cublas.CublasNrm2Ex_64(h, q.n, ffi.Pointer(q.x), k.data, q.ldx, ffi.Pointer(q.z), k.norm, execution)
}

// vectors checks x and y, which have one length, and enqueues what set prepares.
func vectors[T Element](op string, h *Handle, s *safe.Stream, x, y Vector[T], set func(q *call, vx, vy *view) error) error {
	q, err := newCall(h, s)
	if err != nil {
		return fail(op, err)
	}
	err = withVectors(q, x, y, set)
	q.free()
	if err != nil {
		return failed(op, err, x, y)
	}
	return nil
}

func withVectors[T Element](q *call, x, y Vector[T], set func(q *call, vx, vy *view) error) error {
	vx, vy := &q.views[0], &q.views[1]
	var err error
	if *vx, err = x.view("x"); err != nil {
		return err
	}
	if *vy, err = y.view("y"); err != nil {
		return err
	}
	if x.N != y.N {
		return fmt.Errorf("%w: x has %d elements, y has %d", safe.ErrInvalidArgument, x.N, y.N)
	}
	q.kind, q.n, q.x, q.y = vx.kind, int64(x.N), vx.address, vy.address
	q.ldx, q.ldy = int64(x.step()), int64(y.step())
	q.use(x.Buffer.Arg())
	q.use(y.Buffer.Arg())
	if err := set(q, vx, vy); err != nil || x.N == 0 && !q.toDevice {
		return err
	}
	return q.submit()
}

// into makes the first value of out the result.
func into[T Number](q *call, out *safe.Buffer[T], inputs ...*view) error {
	v, err := Matrix[T]{Buffer: out, Rows: 1, Cols: 1}.view("out")
	if err != nil {
		return err
	}
	for _, in := range inputs {
		if err := apart(&v, "out", in, "an input"); err != nil {
			return err
		}
	}
	q.z, q.toDevice = v.address, true
	q.use(out.Arg())
	return nil
}

// waited calls f, which enqueues a result, and returns it.
func waited[T any](op string, h *Handle, f func(out *safe.Buffer[T]) error) (result T, err error) {
	core, err := h.acquire()
	if err != nil {
		return result, fail(op, err)
	}
	defer core.Release()
	out, err := safe.NewBuffer[T](core.Context(), 1)
	if err != nil {
		return result, fail(op, err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := f(out); err != nil {
		return result, err
	}
	values, err := out.Download()
	if err != nil {
		return result, fail(op, err)
	}
	return values[0], nil
}
