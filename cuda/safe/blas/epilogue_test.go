//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Functions that Matmul applies to its result, and sums beside it. Runs on the simulated driver
// with a double of cuBLASLt, and on GPUs.

package blas_test

import (
	"errors"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/require"
)

func gelu(v float64) float64 {
	return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
}

// slope is the derivative of gelu, by differences.
func slope(v float64) float64 { return (gelu(v+1e-5) - gelu(v-1e-5)) / 2e-5 }

// near checks elements whose function has slopes of at most 2.
func near(t *testing.T, what string, got, want dense) {
	t.Helper()
	for i, v := range got.data {
		require.InDelta(t, real(want.data[i]), real(v), 0.03*max(1, cmplx.Abs(want.data[i])), "%s: element %d", what, i)
	}
}

// mapped applies a function to each element and its column.
func mapped(d dense, f func(i, j int, v float64) float64) dense {
	out := dense{d.rows, d.cols, make([]complex128, len(d.data))}
	for i := range d.rows {
		for j := range d.cols {
			out.data[i*d.cols+j] = complex(f(i, j, real(d.at(i, j))), 0)
		}
	}
	return out
}

// TestEpilogues: forward with and without Aux, and the gradients from it.
func TestEpilogues(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	type T = dtype.Float16
	const m, n, k = 16, 24, 32
	r := rand.New(rand.NewPCG(17, 18))
	va, vb, vbias := random[T](r, m*k), random[T](r, k*n), random[T](r, n)
	a, b, bias := blas.Rows(buffer(t, x, va), m, k), blas.Rows(buffer(t, x, vb), n, k).T(), buffer(t, x, vbias)
	d := blas.Rows(buffer(t, x, make([]T, m*n)), m, n)
	plain := product(1, read(a, va), read(b, vb), 0, dense{m, n, make([]complex128, m*n)})
	biased := mapped(plain, func(_, j int, v float64) float64 { return v + real(wide(vbias[j])) })
	relu := func(_, _ int, v float64) float64 { return max(v, 0) }
	smooth := func(_, _ int, v float64) float64 { return gelu(v) }
	got := func() dense { return read(d, download(t, d.Buffer)) }
	run := func(what string, want dense, o blas.MatmulOptions) {
		t.Helper()
		require.NoError(t, blas.Matmul(h, s, 1, a, b, 0, d, o), what)
		near(t, what, got(), want)
	}
	run("bias", biased, blas.MatmulOptions{Bias: bias})
	run("relu", mapped(plain, relu), blas.MatmulOptions{Epilogue: blas.ReLU})
	run("relu and bias", mapped(biased, relu), blas.MatmulOptions{Epilogue: blas.ReLU, Bias: bias})
	run("gelu", mapped(plain, smooth), blas.MatmulOptions{Epilogue: blas.GELU})
	run("gelu and bias", mapped(biased, smooth), blas.MatmulOptions{Epilogue: blas.GELU, Bias: bias})

	mask := buffer(t, x, make([]uint8, blas.AuxLen(blas.ReLU, m, n)))
	inputs := buffer(t, x, make([]T, blas.AuxLen(blas.GELU, m, n)))
	run("relu, bias and aux", mapped(biased, relu), blas.MatmulOptions{Epilogue: blas.ReLU, Bias: bias, Aux: mask})
	run("gelu, bias and aux", mapped(biased, smooth), blas.MatmulOptions{Epilogue: blas.GELU, Bias: bias, Aux: inputs})

	grad := buffer(t, x, make([]T, n))
	columns := func(v dense) dense {
		out := dense{1, n, make([]complex128, n)}
		for i, v := range v.data {
			out.data[i%n] += v
		}
		return out
	}
	sums := func() dense { return read(blas.Rows(grad, 1, n), download(t, grad)) }
	step := mapped(plain, func(i, j int, v float64) float64 {
		if real(biased.at(i, j)) > 0 {
			return v
		}
		return 0
	})
	run("drelu", step, blas.MatmulOptions{Epilogue: blas.DReLU, Aux: mask})
	run("drelu and its bias", step, blas.MatmulOptions{Epilogue: blas.DReLU, Aux: mask, BiasGrad: grad})
	near(t, "gradient of the bias of relu", sums(), columns(step))
	smoothStep := mapped(plain, func(i, j int, v float64) float64 { return v * slope(real(biased.at(i, j))) })
	run("dgelu", smoothStep, blas.MatmulOptions{Epilogue: blas.DGELU, Aux: inputs})
	run("dgelu and its bias", smoothStep, blas.MatmulOptions{Epilogue: blas.DGELU, Aux: inputs, BiasGrad: grad})
	near(t, "gradient of the bias of gelu", sums(), columns(smoothStep))
}

// TestSums: of the columns of b and the rows of a, which cuBLAS computes where these lie side
// by side.
func TestSums(t *testing.T) {
	t.Run("Float16", testSums[dtype.Float16])
	t.Run("BFloat16", testSums[dtype.BFloat16])
	t.Run("float32", testSums[float32])
}

func testSums[T blas.Element](t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	const m, n, k = 16, 24, 32
	r := rand.New(rand.NewPCG(19, 20))
	va, vb := random[T](r, k*m), random[T](r, k*n)
	a, b := blas.Rows(buffer(t, x, va), k, m).T(), blas.Rows(buffer(t, x, vb), k, n)
	d := blas.Rows(buffer(t, x, make([]T, m*n)), m, n)
	rows, cols := buffer(t, x, make([]T, m)), buffer(t, x, make([]T, n))
	wantRows, wantCols := dense{1, m, make([]complex128, m)}, dense{1, n, make([]complex128, n)}
	for i := range k {
		for j := range m {
			wantRows.data[j] += wide(va[i*m+j])
		}
		for j := range n {
			wantCols.data[j] += wide(vb[i*n+j])
		}
	}
	plain := product(1, read(a, va), read(b, vb), 0, dense{m, n, make([]complex128, m*n)})
	require.NoError(t, blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{SumA: rows}))
	near(t, "a*b", read(d, download(t, d.Buffer)), plain)
	near(t, "SumA", read(blas.Rows(rows, 1, m), download(t, rows)), wantRows)
	require.NoError(t, blas.Matmul(h, s, 1, a, b, 0, d, blas.MatmulOptions{SumB: cols}))
	near(t, "a*b", read(d, download(t, d.Buffer)), plain)
	near(t, "SumB", read(blas.Rows(cols, 1, n), download(t, cols)), wantCols)
}

// TestEpilogueOrders: whatever the orders of a and b, Matmul works or returns
// ErrNotSupported. On a GPU, the log lists the latter.
func TestEpilogueOrders(t *testing.T) {
	t.Run("Float16", testEpilogueOrders[dtype.Float16])
	t.Run("BFloat16", testEpilogueOrders[dtype.BFloat16])
	t.Run("float32", testEpilogueOrders[float32])
	t.Run("float64", testEpilogueOrders[float64])
}

func testEpilogueOrders[T blas.Element](t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	for _, size := range [][3]int{{16, 24, 32}, {63, 65, 3}, {64, 128, 32}} {
		m, n, k := size[0], size[1], size[2]
		array := func(n int) *safe.Buffer[T] { return buffer(t, x, make([]T, n)) }
		d, a, b, cols, rows := blas.Rows(array(m*n), m, n), array(m*k), array(k*n), array(n), array(m)
		mask, inputs := buffer(t, x, make([]uint8, blas.AuxLen(blas.ReLU, m, n))), array(blas.AuxLen(blas.GELU, m, n))
		for name, o := range map[string]blas.MatmulOptions{
			"Bias":            {Bias: cols},
			"ReLU":            {Epilogue: blas.ReLU},
			"ReLU, Bias":      {Epilogue: blas.ReLU, Bias: cols},
			"ReLU, Bias, Aux": {Epilogue: blas.ReLU, Bias: cols, Aux: mask},
			"GELU":            {Epilogue: blas.GELU},
			"GELU, Bias":      {Epilogue: blas.GELU, Bias: cols},
			"GELU, Bias, Aux": {Epilogue: blas.GELU, Bias: cols, Aux: inputs},
			"DReLU":           {Epilogue: blas.DReLU, Aux: mask},
			"DReLU, BiasGrad": {Epilogue: blas.DReLU, Aux: mask, BiasGrad: cols},
			"DGELU":           {Epilogue: blas.DGELU, Aux: inputs},
			"DGELU, BiasGrad": {Epilogue: blas.DGELU, Aux: inputs, BiasGrad: cols},
			"SumA":            {SumA: rows},
			"SumB":            {SumB: cols},
		} {
			for order, ab := range map[string][2]blas.Matrix[T]{
				"a by row, b by row":       {blas.Rows(a, m, k), blas.Rows(b, k, n)},
				"a by row, b by column":    {blas.Rows(a, m, k), blas.Rows(b, n, k).T()},
				"a by column, b by row":    {blas.Rows(a, k, m).T(), blas.Rows(b, k, n)},
				"a by column, b by column": {blas.Rows(a, k, m).T(), blas.Rows(b, n, k).T()},
			} {
				err := blas.Matmul(h, s, 1, ab[0], ab[1], 0, d, o)
				if errors.Is(err, safe.ErrNotSupported) {
					t.Logf("not supported: %v, %s, %s", size, name, order)
					continue
				}
				require.NoError(t, err, "%v, %s, %s", size, name, order)
			}
		}
		require.NoError(t, s.Synchronize())
	}
}
