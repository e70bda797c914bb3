//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forEach runs a test for every type of elements.
func forEach(t *testing.T, x *safe.Context, h *blas.Handle, s *safe.Stream, f func(t *testing.T, e each)) {
	t.Helper()
	all := []each{of[float32]("float32"), of[float64]("float64"), of[complex64]("complex64"), of[complex128]("complex128"),
		of[dtype.Float16]("Float16"), of[dtype.BFloat16]("BFloat16")}
	for _, e := range all {
		e.x, e.h, e.s = x, h, s
		t.Run(e.name, func(t *testing.T) { f(t, e) })
	}
}

// each is a type with its tests.
type each struct {
	name string
	x    *safe.Context
	h    *blas.Handle
	s    *safe.Stream

	gemm, strided, batched, gemv, level1 func(t *testing.T, e each)
}

func of[T blas.Element](name string) each {
	return each{name: name, gemm: testGemm[T], strided: testStrided[T], batched: testBatched[T], gemv: testGemv[T], level1: testLevel1[T]}
}

// views are ways to see rows by cols elements of a buffer of 400 values.
func views[T blas.Element](b *safe.Buffer[T], rows, cols int) map[string]blas.Matrix[T] {
	m := map[string]blas.Matrix[T]{
		"by row":               blas.Rows(b, rows, cols),
		"by column":            {Buffer: b, Rows: rows, Cols: cols, ByColumn: true},
		"transposed":           blas.Rows(b, cols, rows).T(),
		"part by row":          {Buffer: b, Rows: rows, Cols: cols, Offset: 5, Stride: cols + 3},
		"part by column":       blas.Matrix[T]{Buffer: b, Rows: rows + 4, Cols: cols + 2, ByColumn: true}.Sub(1, 2, rows, cols),
		"part of a transposed": blas.Rows(b, cols+2, rows+3).T().Sub(3, 1, rows, cols),
	}
	return m
}

func testGemm[T blas.Element](t *testing.T, e each) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range [][3]int{{3, 4, 5}, {1, 1, 1}, {1, 7, 2}, {6, 1, 3}, {8, 8, 1}} {
		m, n, k := size[0], size[1], size[2]
		va, vb, vc := random[T](r, 400), random[T](r, 400), random[T](r, 400)
		a, b, c := buffer(t, e.x, va), buffer(t, e.x, vb), buffer(t, e.x, vc)
		for nameA, ma := range views(a, m, k) {
			for nameB, mb := range views(b, k, n) {
				for nameC, mc := range views(c, m, n) {
					alpha, beta := complex(1.5, 0), complex(float64(r.IntN(2))*-0.5, 0)
					what := fmt.Sprintf("%v, a %s, b %s, c %s", size, nameA, nameB, nameC)
					require.NoError(t, c.CopyFromHost(vc))
					require.NoError(t, blas.Gemm(e.h, e.s, alpha, ma, mb, beta, mc), what)
					check(t, what, alpha, read(ma, va), read(mb, vb), beta, mc, vc, download(t, c))
				}
			}
		}
	}
}

// check compares c after alpha*a*b + beta*c with gonum's result.
func check[T blas.Number](t *testing.T, what string, alpha complex128, a, b dense, beta complex128, c blas.Matrix[T], before, after []T) {
	t.Helper()
	old := read(c, before)
	want := product(alpha, a, b, beta, old)
	compare(t, what, read(c, after), want, bounds[T](alpha, a, b, beta, old, want))
	untouched(t, c, before, after)
}

func TestGemm(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{FullReduction: true}), stream(t, x)
	forEach(t, x, h, s, func(t *testing.T, e each) { e.gemm(t, e) })
}

// TestGemmConjugate: H of either order is computed where cuBLAS can, and refused elsewhere.
func TestGemmConjugate(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	r := rand.New(rand.NewPCG(3, 4))
	const m, n, k = 3, 4, 5
	va, vb, vc := random[complex64](r, 400), random[complex64](r, 400), random[complex64](r, 400)
	a, b, c := buffer(t, x, va), buffer(t, x, vb), buffer(t, x, vc)
	alpha, beta := complex(0.5, -1), complex(0.25, 2)
	computed := 0
	for nameA, ma := range views(a, k, m) {
		for nameB, mb := range views(b, n, k) {
			for nameC, mc := range views(c, m, n) {
				what := fmt.Sprintf("a %s, b %s, c %s", nameA, nameB, nameC)
				ma, mb := ma.H(), mb.H()
				require.NoError(t, c.CopyFromHost(vc))
				err := blas.Gemm(h, s, alpha, ma, mb, beta, mc)
				if ma.ByColumn == mc.ByColumn || mb.ByColumn == mc.ByColumn {
					require.ErrorIs(t, err, safe.ErrInvalidArgument, what)
					require.ErrorContains(t, err, "conjugated without being transposed")
					continue
				}
				computed++
				require.NoError(t, err, what)
				check(t, what, alpha, read(ma, va), read(mb, vb), beta, mc, vc, download(t, c))
			}
		}
	}
	assert.NotZero(t, computed)
	assert.ErrorContains(t, blas.Gemm(h, s, 1, blas.Rows(a, 2, 2), blas.Rows(b, 2, 2), 0, blas.Rows(c, 2, 2).H()), "conjugate the inputs")
}

func testStrided[T blas.Element](t *testing.T, e each) {
	r := rand.New(rand.NewPCG(5, 6))
	const m, n, k, count = 3, 4, 2, 3
	va, vb, vc := random[T](r, 400), random[T](r, 400), random[T](r, 400)
	a, b, c := buffer(t, e.x, va), buffer(t, e.x, vb), buffer(t, e.x, vc)
	for _, byColumn := range []bool{false, true} {
		for name, stacks := range map[string][3]blas.Stack[T]{
			"packed": {{Matrix: blas.Rows(a, m, k), Count: count}, {Matrix: blas.Rows(b, k, n), Count: count}, {Matrix: blas.Rows(c, m, n), Count: count}},
			"one a":  {{Matrix: blas.Rows(a, m, k), Count: 1}, {Matrix: blas.Rows(b, n, k).T(), Count: count}, {Matrix: blas.Rows(c, m, n), Count: count}},
			"steps": {{Matrix: blas.Rows(a, m, k), Count: count, Step: 7}, {Matrix: blas.Rows(b, k, n), Count: count, Step: 11},
				{Matrix: blas.Matrix[T]{Buffer: c, Rows: m, Cols: n, Offset: 3, Stride: count * n}, Count: count, Step: n}}, // side by side
		} {
			sa, sb, sc := stacks[0], stacks[1], stacks[2]
			if byColumn {
				sc.Matrix, sa.Matrix, sb.Matrix = sc.T(), sb.T(), sa.T()
				sa.Count, sb.Count, sa.Step, sb.Step = sb.Count, sa.Count, sb.Step, sa.Step
			}
			what := fmt.Sprintf("%s, by column %v", name, byColumn)
			require.NoError(t, c.CopyFromHost(vc))
			require.NoError(t, blas.GemmStrided(e.h, e.s, 2, sa, sb, -1, sc), what)
			after, dense := download(t, c), [3][]T{va, vb, vc}
			if byColumn {
				dense[0], dense[1] = vb, va
			}
			for i := range count {
				ma, mb, mc := sa.Matrix, sb.Matrix, sc.Matrix
				ma.Offset += i * stepOf(sa)
				mb.Offset += i * stepOf(sb)
				mc.Offset += i * stepOf(sc)
				ra, rb, old := read(ma, dense[0]), read(mb, dense[1]), read(mc, vc)
				want := product(2, ra, rb, -1, old)
				compare(t, fmt.Sprintf("%s, matrix %d", what, i), read(mc, after), want, bounds[T](2, ra, rb, -1, old, want))
			}
		}
	}
}

func stepOf[T blas.Number](s blas.Stack[T]) int {
	switch {
	case s.Count == 1:
		return 0
	case s.Step != 0:
		return s.Step
	}
	return s.Rows * s.Cols
}

func TestGemmStrided(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{FullReduction: true}), stream(t, x)
	forEach(t, x, h, s, func(t *testing.T, e each) { e.strided(t, e) })
}

func testBatched[T blas.Element](t *testing.T, e each) {
	r := rand.New(rand.NewPCG(7, 8))
	const m, n, k, count, each = 4, 2, 3, 4, 16
	va, vb, vc := random[T](r, 400), random[T](r, 400), random[T](r, 400)
	a, b, c := buffer(t, e.x, va), buffer(t, e.x, vb), buffer(t, e.x, vc)
	for _, byColumn := range []bool{false, true} {
		var as, bs, cs []blas.Matrix[T]
		for i := range count {
			as = append(as, blas.Matrix[T]{Buffer: a, Rows: m, Cols: k, Offset: each * (count - i)})
			bs = append(bs, blas.Matrix[T]{Buffer: b, Rows: n, Cols: k, Offset: 2 * i * each}.T())
			cs = append(cs, blas.Matrix[T]{Buffer: c, Rows: m, Cols: n, Offset: i * each, ByColumn: byColumn})
		}
		p, err := blas.NewBatch(e.h, as, bs, cs)
		require.NoError(t, err)
		require.NoError(t, c.CopyFromHost(vc))
		require.NoError(t, blas.GemmBatched(p, e.s, 0.5, 1))
		after := download(t, c)
		for i := range count {
			ra, rb, old := read(as[i], va), read(bs[i], vb), read(cs[i], vc)
			want := product(0.5, ra, rb, 1, old)
			compare(t, fmt.Sprintf("matrix %d", i), read(cs[i], after), want, bounds[T](0.5, ra, rb, 1, old, want))
		}
		require.NoError(t, p.Close())
		require.ErrorIs(t, blas.GemmBatched(p, e.s, 1, 0), safe.ErrClosed)
	}
}

func TestGemmBatched(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{FullReduction: true}), stream(t, x)
	forEach(t, x, h, s, func(t *testing.T, e each) { e.batched(t, e) })
}

// products are the products among calls: handles of earlier tests may be destroyed beside them.
func products(calls []entry) (ops []string) {
	for _, c := range calls {
		if strings.HasPrefix(c.op, "gemm") {
			ops = append(ops, c.op)
		}
	}
	return ops
}

// TestMath: the arithmetic reaches cuBLAS with each call.
func TestMath(t *testing.T) {
	needsDouble(t)
	x := open(t)
	h, s := handle(t, x, blas.Options{Math: blas.TF32}), stream(t, x)
	a, b, c := buffer(t, x, make([]float32, 4)), buffer(t, x, make([]float32, 4)), buffer(t, x, make([]float32, 4))
	for m, want := range map[blas.Math]string{blas.Float32: "gemm/68", blas.TF32: "gemm/77", blas.FastBFloat16: "gemm/75", blas.FastFloat16: "gemm/74", blas.Pedantic: "gemm/69"} {
		calls := logged(t, func() {
			require.NoError(t, blas.Gemm(h.With(m), s, 1, blas.Rows(a, 2, 2), blas.Rows(b, 2, 2), 0, blas.Rows(c, 2, 2)))
		})
		assert.Equal(t, []string{want}, products(calls), m)
	}
	calls := logged(t, func() {
		require.NoError(t, blas.Gemm(h, s, 1, blas.Rows(a, 2, 2), blas.Rows(b, 2, 2), 0, blas.Rows(c, 2, 2)))
	})
	assert.Equal(t, []string{"gemm/77"}, products(calls))
	assert.NoError(t, h.With(blas.Pedantic).Close(), "closes nothing")
	assert.ErrorIs(t, blas.Gemm(h.With(9), s, 1, blas.Rows(a, 2, 2), blas.Rows(b, 2, 2), 0, blas.Rows(c, 2, 2)), safe.ErrInvalidArgument)
	calls = slices.DeleteFunc(logged(t, func() { handle(t, x, blas.Options{Atomics: true, FullReduction: true, Handles: 1}) }),
		func(c entry) bool { return strings.HasSuffix(c.op, "destroy") })
	assert.Equal(t, []string{"create", "math", "atomics", "ltcreate"}, []string{calls[0].op, calls[1].op, calls[2].op, calls[3].op})
	assert.Equal(t, "16", calls[1].size)
	assert.Equal(t, "1", calls[2].size)
}

// TestBatchShares: many products with one input in common are checked in no time.
func TestBatchShares(t *testing.T) {
	x := open(t)
	h := handle(t, x, blas.Options{})
	const count = 50_000
	all, weights := buffer(t, x, make([]float32, 4*count)), blas.Rows(buffer(t, x, make([]float32, 4)), 2, 2)
	shared, results := make([]blas.Matrix[float32], count), make([]blas.Matrix[float32], count)
	for i := range count {
		shared[i], results[i] = weights, blas.Matrix[float32]{Buffer: all, Rows: 2, Cols: 2, Offset: 4 * i}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	worked := func() time.Duration { // of the processor, which other processes may have meanwhile
		var of syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_THREAD, &of))
		return time.Duration(of.Utime.Nano() + of.Stime.Nano())
	}
	before := worked()
	p, err := blas.NewBatch(h, shared, shared, results)
	require.NoError(t, err)
	assert.Less(t, worked()-before, 5*time.Second)
	require.NoError(t, p.Close())
	results[7] = weights
	_, err = blas.NewBatch(h, shared, shared, results)
	assert.ErrorIs(t, err, safe.ErrOverlap)
	results[7] = results[8]
	_, err = blas.NewBatch(h, shared, shared, results)
	assert.ErrorIs(t, err, safe.ErrOverlap)
}

// TestPedantic: products of float64 have a pedantic arithmetic, too, and no faster one.
func TestPedantic(t *testing.T) {
	needsDouble(t)
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	a, b, c := buffer(t, x, make([]float64, 4)), buffer(t, x, make([]float64, 4)), buffer(t, x, make([]float64, 4))
	for m, want := range map[blas.Math]string{blas.Float32: "gemm/70", blas.TF32: "gemm/70", blas.Pedantic: "gemm/71"} {
		calls := logged(t, func() {
			require.NoError(t, blas.Gemm(h.With(m), s, 1, blas.Rows(a, 2, 2), blas.Rows(b, 2, 2), 0, blas.Rows(c, 2, 2)))
		})
		assert.Equal(t, []string{want}, products(calls), m)
	}
}
