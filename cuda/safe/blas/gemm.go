package blas

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Gemm enqueues c = alpha*a*b + beta*c. a has as many rows as c, b as many columns as c, and a as many columns as b has
// rows. Each of them may be stored by row or by column: transpose an input by [Matrix.T] or [Matrix.H]. If beta is 0, c
// is not read.
//
// alpha and beta are read before Gemm returns. The matrices are retained until the work has completed, as by
// [safe.Kernel.Launch]; in a capture the graph retains them.
//
// It returns [safe.ErrInvalidArgument] if the shapes do not fit, or if a Conjugate cannot be computed: see [Matrix.H];
// [safe.ErrRange] if a matrix is not within its buffer; [safe.ErrOverlap] if c overlaps a or b;
// [safe.ErrContextMismatch] if the stream belongs to another context; and [safe.ErrClosed]. Source: cublasGemmEx_64.
func Gemm[T Element, S Scalar](h *Handle, s *safe.Stream, alpha S, a, b Matrix[T], beta S, c Matrix[T]) error {
	const op = "blas.Gemm"
	q, err := newCall(h, s)
	if err != nil {
		return fail(op, err)
	}
	err = gemm(q, h.math, number(alpha), a, b, number(beta), c)
	q.free()
	if err != nil {
		return failed(op, err, a, b, c)
	}
	return nil
}

func gemm[T Element](q *call, m Math, alpha complex128, a, b Matrix[T], beta complex128, c Matrix[T]) error {
	va, vb, vc, err := views(a, b, c)
	if err != nil {
		return err
	}
	if err := apartFrom(&vc, &va, &vb); err != nil {
		return err
	}
	if err := q.product(m, &va, &vb, &vc, alpha, beta); err != nil || vc.empty() {
		return err
	}
	q.use3(a.Buffer.Arg(), b.Buffer.Arg(), c.Buffer.Arg())
	q.do = enqueueGemm
	return q.submit()
}

func enqueueGemm(q *call, h cublas.CublasHandle_t) error {
	data := q.kind.data
	return cublas.CublasGemmEx_64(h, q.opX, q.opY, q.m, q.n, q.k, q.alpha.pointer(), ffi.Pointer(q.x), data, q.ldx,
		ffi.Pointer(q.y), data, q.ldy, q.beta.pointer(), ffi.Pointer(q.z), data, q.ldz, q.compute, cublas.CUBLAS_GEMM_DEFAULT)
}

// GemmStrided enqueues c = alpha*a*b + beta*c for every matrix of the stacks. An input with a Count of 1 is used for
// all matrices of c. Otherwise the rules and errors are those of [Gemm]. For the check of overlaps, a stack counts from
// its first element to the last. Source: cublasGemmStridedBatchedEx_64.
func GemmStrided[T Element, S Scalar](h *Handle, s *safe.Stream, alpha S, a, b Stack[T], beta S, c Stack[T]) error {
	const op = "blas.GemmStrided"
	q, err := newCall(h, s)
	if err != nil {
		return fail(op, err)
	}
	err = gemmStrided(q, h.math, number(alpha), a, b, number(beta), c)
	q.free()
	if err != nil {
		return failed(op, err, a, b, c)
	}
	return nil
}

func gemmStrided[T Element](q *call, m Math, alpha complex128, a, b Stack[T], beta complex128, c Stack[T]) error {
	va, vb, vc, err := views(a.Matrix, b.Matrix, c.Matrix)
	if err != nil {
		return err
	}
	if err := q.product(m, &va, &vb, &vc, alpha, beta); err != nil {
		return err
	}
	stepA, err := a.check(&va, "a", c.Count)
	if err != nil {
		return err
	}
	stepB, err := b.check(&vb, "b", c.Count)
	if err != nil {
		return err
	}
	stepC, err := c.checkOutput(&vc)
	if err != nil || vc.empty() || c.Count == 0 {
		return err
	}
	wholeA, wholeB, wholeC := va.extent(stepA, a.Count), vb.extent(stepB, b.Count), vc.extent(stepC, c.Count)
	if err := apartFrom(&wholeC, &wholeA, &wholeB); err != nil {
		return err
	}
	q.stepX, q.stepY, q.stepZ = int64(stepA), int64(stepB), int64(stepC)
	if !vc.byColumn {
		q.stepX, q.stepY = q.stepY, q.stepX
	}
	q.count = int64(c.Count)
	q.use3(a.Buffer.Arg(), b.Buffer.Arg(), c.Buffer.Arg())
	q.do = enqueueStrided
	return q.submit()
}

func enqueueStrided(q *call, h cublas.CublasHandle_t) error {
	data := q.kind.data
	return cublas.CublasGemmStridedBatchedEx_64(h, q.opX, q.opY, q.m, q.n, q.k, q.alpha.pointer(), ffi.Pointer(q.x), data, q.ldx, q.stepX,
		ffi.Pointer(q.y), data, q.ldy, q.stepY, q.beta.pointer(), ffi.Pointer(q.z), data, q.ldz, q.stepZ, q.count, q.compute, cublas.CUBLAS_GEMM_DEFAULT)
}

// check checks that all matrices of an input are within its buffer, and returns the step.
func (m Stack[T]) check(v *view, name string, count int) (step int, err error) {
	if m.Count == 1 && count != 1 {
		return 0, nil
	}
	if m.Count != count {
		return 0, fmt.Errorf("%w: %s has %d matrices, c has %d", safe.ErrInvalidArgument, name, m.Count, count)
	}
	return m.within(v, name)
}

func (m Stack[T]) within(v *view, name string) (step int, err error) {
	step = m.Step
	if step == 0 {
		step = v.span()
	}
	free := m.Buffer.Len() - m.Offset - v.span()
	if m.Count < 0 || step < 0 || m.Count > 1 && step > free/(m.Count-1) {
		return 0, fmt.Errorf("%w: %s is %v from value %d on, but its buffer has %d values", safe.ErrRange, name, m, m.Offset, m.Buffer.Len())
	}
	return step, nil
}

// checkOutput also checks that no two matrices of c overlap.
func (m Stack[T]) checkOutput(v *view) (step int, err error) {
	if step, err = m.within(v, "c"); err != nil {
		return 0, err
	}
	other := *v
	for i := 1; i < m.Count && !v.empty() && i*step < v.span(); i++ {
		other.address = v.at(i * step)
		if other.overlap(v) {
			return 0, fmt.Errorf("%w: c is %v: matrices 0 and %d", safe.ErrOverlap, m, i)
		}
	}
	return step, nil
}

// views checks three matrices.
func views[T Element](a, b, c Matrix[T]) (va, vb, vc view, err error) {
	if va, err = a.view("a"); err != nil {
		return
	}
	if vb, err = b.view("b"); err != nil {
		return
	}
	vc, err = c.view("c")
	return
}

func apartFrom(c, a, b *view) error {
	if err := apart(c, "c", a, "a"); err != nil {
		return err
	}
	return apart(c, "c", b, "b")
}

// product fills in a product of matrices as cuBLAS takes it. A matrix that is stored by row
// is, to cuBLAS, its transpose stored by column. So if c is stored by row, the transpose of
// c is computed: that of b times that of a.
func (q *call) product(m Math, a, b, c *view, alpha, beta complex128) error {
	if a.cols != b.rows || a.rows != c.rows || b.cols != c.cols {
		return fmt.Errorf("%w: a (%dx%d) times b (%dx%d) does not make c (%dx%d)", safe.ErrInvalidArgument, a.rows, a.cols, b.rows, b.cols, c.rows, c.cols)
	}
	if c.conjugate {
		return fmt.Errorf("%w: the result c is a conjugate: conjugate the inputs instead", safe.ErrInvalidArgument)
	}
	x, y, z, nameX, nameY := *a, *b, *c, "a", "b"
	if !c.byColumn {
		x, y, z, nameX, nameY = b.t(), a.t(), c.t(), "b", "a"
	}
	var err error
	if q.opX, err = x.op(nameX); err != nil {
		return err
	}
	if q.opY, err = y.op(nameY); err != nil {
		return err
	}
	q.m, q.n, q.k = int64(z.rows), int64(z.cols), int64(x.cols)
	q.x, q.y, q.z = x.address, y.address, z.address
	if q.k == 0 {
		q.x, q.y = q.z, q.z // any address: nothing is read
	}
	q.ldx, q.ldy, q.ldz = x.leading(), y.leading(), z.leading()
	q.kind, q.compute = c.kind, m.compute(c.kind)
	return q.factors(c.kind, alpha, beta)
}

func (q *call) factors(k *kind, alpha, beta complex128) error {
	if err := q.alpha.set("alpha", alpha, k.scale); err != nil {
		return err
	}
	return q.beta.set("beta", beta, k.scale)
}

// op returns what cuBLAS has to do with a matrix to get v.
func (v *view) op(name string) (cublas.CublasOperation_t, error) {
	switch {
	case !v.byColumn && v.conjugate:
		return cublas.CUBLAS_OP_C, nil
	case !v.byColumn:
		return cublas.CUBLAS_OP_T, nil
	case v.conjugate:
		return 0, fmt.Errorf("%w: %s would have to be conjugated without being transposed, which cuBLAS cannot do: store it or c in the other order",
			safe.ErrInvalidArgument, name)
	}
	return cublas.CUBLAS_OP_N, nil
}

// leading returns the leading dimension, which cuBLAS checks even if there is one line.
func (v *view) leading() int64 {
	_, length := v.lines()
	return int64(max(v.stride, length, 1))
}
