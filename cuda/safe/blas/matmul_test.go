//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fp8 opens a context whose GPU has 8-bit floating-point numbers, or skips the test.
func fp8(t *testing.T) *safe.Context {
	t.Helper()
	x := open(t)
	major, minor, err := x.Device().ComputeCapability()
	require.NoError(t, err)
	if 10*major+minor < 89 {
		t.Skip("needs compute capability 8.9")
	}
	return x
}

// TestMatmulTypes: every combination of types, against gonum.
func TestMatmulTypes(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{FullReduction: true}), stream(t, x)
	for name, f := range map[string]func(t *testing.T, h *blas.Handle, s *safe.Stream){
		"Float16":               testMatmul[dtype.Float16, dtype.Float16, dtype.Float16],
		"Float16 to float32":    testMatmul[dtype.Float16, dtype.Float16, float32],
		"BFloat16":              testMatmul[dtype.BFloat16, dtype.BFloat16, dtype.BFloat16],
		"BFloat16 to float32":   testMatmul[dtype.BFloat16, dtype.BFloat16, float32],
		"float32":               testMatmul[float32, float32, float32],
		"float64":               testMatmul[float64, float64, float64],
		"complex64":             testMatmul[complex64, complex64, complex64],
		"complex128":            testMatmul[complex128, complex128, complex128],
		"int8 to int32":         testMatmul[int8, int8, int32],
		"int8 to float32":       testMatmul[int8, int8, float32],
		"int8":                  testMatmul[int8, int8, int8],
		"E4M3 to BFloat16":      test8[dtype.Float8E4M3, dtype.Float8E4M3, dtype.BFloat16],
		"E4M3 to Float16":       test8[dtype.Float8E4M3, dtype.Float8E4M3, dtype.Float16],
		"E4M3 to float32":       test8[dtype.Float8E4M3, dtype.Float8E4M3, float32],
		"E4M3":                  test8[dtype.Float8E4M3, dtype.Float8E4M3, dtype.Float8E4M3],
		"E5M2, E4M3 to float32": test8[dtype.Float8E5M2, dtype.Float8E4M3, float32],
		"E4M3, E5M2 to E5M2":    test8[dtype.Float8E4M3, dtype.Float8E5M2, dtype.Float8E5M2],
	} {
		t.Run(name, func(t *testing.T) { f(t, h, s) })
	}
}

func test8[A, B, D blas.Number](t *testing.T, h *blas.Handle, s *safe.Stream) {
	fp8(t)
	testMatmul[A, B, D](t, h, s)
}

// testMatmul multiplies a by row and b by column, as 8-bit types require.
func testMatmul[A, B, D blas.Number](t *testing.T, h *blas.Handle, s *safe.Stream) {
	const m, n, k = 32, 48, 64
	r := rand.New(rand.NewPCG(13, 14))
	x := h.Context()
	va, vb, vd := random[A](r, m*k), random[B](r, k*n), random[D](r, m*n)
	a, b, d := buffer(t, x, va), buffer(t, x, vb), buffer(t, x, vd)
	alpha, beta := complex(1, 0), complex(1, 0)
	switch any(*new(D)).(type) {
	case int8:
		alpha, beta = 0.125, 0 // results within the range
	case dtype.Float8E4M3, dtype.Float8E5M2:
		beta = 0
	}
	for _, byColumn := range []bool{false, true} {
		ma, mb := blas.Rows(a, m, k), blas.Rows(b, n, k).T()
		md := blas.Matrix[D]{Buffer: d, Rows: m, Cols: n, ByColumn: byColumn}
		require.NoError(t, d.CopyFromHost(vd))
		require.NoError(t, blas.Matmul(h, s, alpha, ma, mb, beta, md, blas.MatmulOptions{}))
		ra, rb, old, after := read(ma, va), read(mb, vb), read(md, vd), download(t, d)
		want := product(alpha, ra, rb, beta, old)
		bound := bounds[D](alpha, ra, rb, beta, old, want)
		more := 0.0
		if _, ok := any(*new(D)).(int8); ok {
			more = 0.5 // of rounding
		}
		switch any(*new(A)).(type) {
		case dtype.Float8E4M3, dtype.Float8E5M2:
			more = k * 0x1p-13 // tensor cores of compute capability 9.0 keep 14 bits of a sum
		}
		for i := range bound.data {
			bound.data[i] += complex(more, 0)
		}
		compare(t, fmt.Sprintf("by column: %v", byColumn), read(md, after), want, bound)
	}
}

// TestMatmulShapes: every order of float32, as Gemm.
func TestMatmulShapes(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	r := rand.New(rand.NewPCG(15, 16))
	const m, n, k = 3, 4, 5
	va, vb, vc := random[float32](r, 400), random[float32](r, 400), random[float32](r, 400)
	a, b, c := buffer(t, x, va), buffer(t, x, vb), buffer(t, x, vc)
	for nameA, ma := range views(a, m, k) {
		for nameB, mb := range views(b, k, n) {
			for nameC, mc := range views(c, m, n) {
				what := fmt.Sprintf("a %s, b %s, c %s", nameA, nameB, nameC)
				require.NoError(t, c.CopyFromHost(vc))
				require.NoError(t, blas.Matmul(h, s, 2, ma, mb, -1, mc, blas.MatmulOptions{}), what)
				check(t, what, 2, read(ma, va), read(mb, vb), -1, mc, vc, download(t, c))
			}
		}
	}
}

// TestCapability: what depends on the compute capability of the GPU.
func TestCapability(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s := stream(t, x)
	t.Cleanup(func() { simulated.Capability(0, 0) })
	const n = 32
	a, b, d := buffer(t, x, make([]dtype.Float8E4M3, n*n)), buffer(t, x, make([]dtype.Float8E4M3, n*n)), buffer(t, x, make([]float32, n*n))
	for _, c := range []struct {
		major, minor int
		float8       bool
		anyOrder     bool // of 8-bit floating-point numbers
		workspace    int
	}{
		{7, 5, false, false, 4 << 20},
		{8, 0, false, false, 4 << 20},
		{8, 8, false, false, 4 << 20},
		{8, 9, true, false, 4 << 20},
		{9, 0, true, false, 32 << 20},
		{10, 0, true, true, 32 << 20},
		{11, 0, true, true, 32 << 20},
		{12, 0, true, false, 32 << 20},
	} {
		t.Run(fmt.Sprintf("%d.%d", c.major, c.minor), func(t *testing.T) {
			simulated.Capability(c.major, c.minor)
			h, err := blas.Open(x, blas.Options{})
			require.NoError(t, err)
			defer h.Close()
			_, workspace := h.Workspaces()
			assert.Equal(t, c.workspace, workspace)
			ma, mb, md := blas.Rows(a, n, n), blas.Rows(b, n, n), blas.Rows(d, n, n)
			sideBySide := blas.Matmul(h, s, 1, ma, mb.T(), 0, md, blas.MatmulOptions{})
			other := blas.Matmul(h, s, 1, ma, mb, 0, md, blas.MatmulOptions{})
			if !c.float8 {
				for _, err := range []error{sideBySide, other} {
					assert.ErrorIs(t, err, safe.ErrNotSupported)
					assert.ErrorContains(t, err, fmt.Sprintf("need compute capability 8.9, this GPU has %d.%d", c.major, c.minor))
				}
				return
			}
			assert.NoError(t, sideBySide)
			if c.anyOrder {
				assert.NoError(t, other)
			} else {
				assert.ErrorIs(t, other, safe.ErrInvalidArgument)
			}
		})
	}
}

// TestScales: of 8-bit floating-point numbers, in either order of the result.
func TestScales(t *testing.T) {
	x := fp8(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	const m, n, k = 32, 48, 64
	ones := func(n int, v float32) *safe.Buffer[dtype.Float8E4M3] {
		values := make([]dtype.Float8E4M3, n)
		for i := range values {
			values[i] = dtype.NewFloat8E4M3(v)
		}
		return buffer(t, x, values)
	}
	a, b := blas.Rows(ones(m*k, 1), m, k), blas.Rows(ones(k*n, 0.5), n, k).T()
	o := blas.MatmulOptions{
		ScaleA: buffer(t, x, []float32{4}), ScaleB: buffer(t, x, []float32{0.25}), ScaleD: buffer(t, x, []float32{0.125}), AmaxD: buffer(t, x, []float32{0}),
		FastAccumulation: true,
	}
	d := blas.Rows(ones(m*n, 0), m, n)
	require.NoError(t, blas.Matmul(h, s, 1, a, b, 0, d, o))
	assert.EqualValues(t, 4, download(t, d.Buffer)[17].Float32(), "32 by 1/8")
	assert.EqualValues(t, 32, download(t, o.AmaxD)[0])
	require.NoError(t, blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{FastAccumulation: true}))
	assert.EqualValues(t, 32, download(t, d.Buffer)[17].Float32(), "the scales were those of the call before")

	wide := blas.Matrix[float32]{Buffer: buffer(t, x, make([]float32, m*n)), Rows: m, Cols: n, ByColumn: true}
	bias := buffer(t, x, make([]dtype.BFloat16, n))
	require.NoError(t, blas.Matmul(h, s, 1, a, b, 0, wide, blas.MatmulOptions{ScaleA: o.ScaleA}))
	assert.EqualValues(t, 128, download(t, wide.Buffer)[17])
	assert.ErrorContains(t, blas.Matmul(h, s, 1, a, b, 1, d, o), "must be 0 for a result of Float8E4M3")
	wide.ByColumn = false
	require.NoError(t, blas.Matmul(h, s, 1, a, b, 0, wide, blas.MatmulOptions{Bias: bias}))
	assert.EqualValues(t, 32, download(t, wide.Buffer)[17])
}

// TestPlans: calls of one shape share a plan, and there are never too many.
func TestPlans(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s := stream(t, x)
	matrices := func(n int) [3]blas.Matrix[float32] {
		var m [3]blas.Matrix[float32]
		for i := range m {
			m[i] = blas.Rows(buffer(t, x, make([]float32, n*n)), n, n)
		}
		return m
	}
	count := func(entries []entry, op string) (n int) {
		for _, e := range entries {
			if e.op == op {
				n++
			}
		}
		return n
	}
	before := len(lines(t))
	calls := logged(t, func() {
		h, err := blas.Open(x, blas.Options{Workspace: 4096, Plans: 2})
		require.NoError(t, err)
		matmul := func(n int) error {
			m := matrices(n)
			return blas.Matmul(h, s, 1, m[0], m[1], 0, m[2], blas.MatmulOptions{})
		}
		one := logged(t, func() {
			require.NoError(t, matmul(8))
			require.NoError(t, matmul(8), "other matrices")
		})
		assert.Equal(t, 1, count(one, "heuristic"))
		assert.Equal(t, 2, count(one, "matmul"))
		for n := range 9 {
			require.NoError(t, matmul(n+2))
		}
		made := lines(t)[before:]
		assert.LessOrEqual(t, count(made, "desc")-count(made, "undesc"), 2)
		for range 2 {
			err := matmul(13)
			assert.ErrorIs(t, err, safe.ErrNotSupported)
			assert.ErrorContains(t, err, "no algorithm")
		}
		require.NoError(t, h.Close())
	})
	assert.Equal(t, count(calls, "desc"), count(calls, "undesc"), "descriptors")
	assert.Greater(t, count(calls, "undesc"), 8)
}

// TestPlanAlignment: calls share a plan only if the addresses are multiples of the same powers of two, as the algorithm
// may rely on that.
func TestPlanAlignment(t *testing.T) {
	needsDouble(t)
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	operands := func(at ...int) (m [3]blas.Matrix[float32], o blas.MatmulOptions) {
		for i := range m {
			m[i] = blas.Matrix[float32]{Buffer: buffer(t, x, make([]float32, 64+4)), Rows: 8, Cols: 8, Offset: at[i]}
		}
		bias, err := buffer(t, x, make([]float32, 8+4)).Slice(at[3], at[3]+8)
		require.NoError(t, err)
		aux, err := buffer(t, x, make([]float32, 64+4)).Slice(at[4], at[4]+64)
		require.NoError(t, err)
		return m, blas.MatmulOptions{Epilogue: blas.GELU, Bias: bias, Aux: aux}
	}
	for _, row := range []struct {
		name string
		at   []int
	}{{"all", []int{0, 0, 0, 0, 0}}, {"a", []int{1, 0, 0, 0, 0}}, {"b", []int{0, 1, 0, 0, 0}}, {"d", []int{0, 0, 1, 0, 0}}, {"Bias", []int{0, 0, 0, 1, 0}}, {"Aux", []int{0, 0, 0, 0, 1}}, {"two", []int{2, 0, 0, 0, 0}}} {
		for _, want := range []int{1, 0} {
			m, o := operands(row.at...)
			searches := 0
			for _, e := range logged(t, func() { require.NoError(t, blas.Matmul(h, s, 1, m[0], m[1], 0, m[2], o)) }) {
				if e.op == "heuristic" {
					searches++
				}
			}
			assert.Equal(t, want, searches, row.name)
		}
	}
}

// TestPlansFail: a plan that fails while another call makes room for its own is destroyed once.
func TestPlansFail(t *testing.T) {
	needsDouble(t)
	x := open(t)
	calls := logged(t, func() {
		h, err := blas.Open(x, blas.Options{Workspace: 4096, Plans: 1})
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 8 {
			s, in, out := stream(t, x), buffer(t, x, make([]float32, 8*13)), blas.Rows(buffer(t, x, make([]float32, 13)), 1, 13)
			all.Go(func() {
				for n := range 2000 {
					k := 1 + n%8
					assert.ErrorIs(t, blas.Matmul(h, s, 1, blas.Rows(in, 1, k), blas.Rows(in, k, 13), 0, out, blas.MatmulOptions{}), safe.ErrNotSupported)
				}
			})
		}
		all.Wait()
		require.NoError(t, h.Close())
	})
	made := 0
	for _, c := range calls {
		switch c.op {
		case "desc":
			made++
		case "undesc":
			made--
		}
	}
	assert.Zero(t, made)
}

// TestMatmulRefused: errors before cuBLAS sees a call.
func TestMatmulRefused(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	f := func(rows, cols int) blas.Matrix[float32] {
		return blas.Rows(buffer(t, x, make([]float32, rows*cols)), rows, cols)
	}
	i := func(rows, cols int) blas.Matrix[int8] {
		return blas.Rows(buffer(t, x, make([]int8, rows*cols)), rows, cols)
	}
	a, b, d := f(4, 4), f(4, 4), f(4, 4)
	four, five := buffer(t, x, make([]float32, 4)), buffer(t, x, make([]float32, 5))
	closed, err := safe.NewBuffer[float32](x, 4)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	double := buffer(t, x, make([]float64, 4))
	aux := buffer(t, x, make([]float32, blas.AuxLen(blas.GELU, 4, 4)))
	for _, c := range []struct {
		want error
		text string
		got  error
	}{
		{safe.ErrInvalidArgument, "cuBLAS does not multiply int8 by float32 with a result of float32", blas.Matmul(h, s, 1, i(4, 4), b, 0, d, blas.MatmulOptions{})},
		{safe.ErrInvalidArgument, "for int8, a must be stored by row and b by column", blas.Matmul(h, s, 1, i(4, 4), i(4, 4), 0, d, blas.MatmulOptions{})},
		{safe.ErrInvalidArgument, "must be multiples of 4: a is 4x6 int8", blas.Matmul(h, s, 1, i(4, 6), i(4, 6).T(), 0, d, blas.MatmulOptions{})},
		{safe.ErrInvalidArgument, "a is 4x4 int8 at", blas.Matmul(h, s, 1, blas.Matrix[int8]{Buffer: i(4, 6).Buffer, Rows: 4, Cols: 4, Stride: 6}, i(4, 4).T(), 0, d, blas.MatmulOptions{})},
		{safe.ErrInvalidArgument, "a is 4x6 int8 at", blas.Matmul(h, s, 1, blas.Matrix[int8]{Buffer: i(4, 8).Buffer, Rows: 4, Cols: 6, Stride: 8}, i(4, 6).T(), 0, d, blas.MatmulOptions{})},
		{safe.ErrInvalidArgument, "must be multiples of 4: d is 4x6 float32", blas.Matmul(h, s, 1, i(4, 4), i(6, 4).T(), 0, f(4, 6), blas.MatmulOptions{})},
		{safe.ErrInvalidArgument, "Bias has 5 elements, but must have 4", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Bias: five})},
		{safe.ErrInvalidArgument, "Bias must be a Buffer of float32", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Bias: double})},
		{safe.ErrClosed, "Bias", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Bias: closed})},
		{safe.ErrInvalidArgument, "do not go with the epilogue ReLU", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Epilogue: blas.ReLU, BiasGrad: four})},
		{safe.ErrInvalidArgument, "DGELU needs Aux", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Epilogue: blas.DGELU})},
		{safe.ErrInvalidArgument, "9 is no constant of Epilogue", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Epilogue: 9})},
		{safe.ErrInvalidArgument, "Aux must be a Buffer of uint8", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Epilogue: blas.ReLU, Aux: four})},
		{safe.ErrInvalidArgument, "a result that is stored by row", blas.Matmul(h, s, 1, a, b, 0, d.T(), blas.MatmulOptions{Bias: four})},
		{safe.ErrInvalidArgument, "are for matrices of 8-bit floating-point numbers", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{ScaleA: buffer(t, x, []float32{1})})},
		{safe.ErrOverlap, "d (4x4 float32 at", blas.Matmul(h, s, 1, a, b, 0, a, blas.MatmulOptions{})},
		{safe.ErrOverlap, "SumB", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{SumB: part(t, b.Buffer, 4)})},
		{safe.ErrOverlap, "Bias", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Bias: part(t, d.Buffer, 4)})},
		{safe.ErrOverlap, "Aux (1x32 float32 at", blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Epilogue: blas.GELU, Aux: aux, Bias: part(t, aux, 4)})},
	} {
		assert.ErrorIs(t, c.got, c.want, c.text)
		assert.ErrorContains(t, c.got, c.text)
	}
	require.NoError(t, blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{Bias: four}), "nothing half done")
	var code driver.CUresult
	assert.NotErrorAs(t, blas.Matmul(h, s, 1, a, b, 0, a, blas.MatmulOptions{}), &code)
}

func part[T any](t *testing.T, b *safe.Buffer[T], n int) *safe.Buffer[T] {
	t.Helper()
	p, err := b.Slice(0, n)
	require.NoError(t, err)
	return p
}
