//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gonum "gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
)

// TestLarge: matrices that use every part of the GPU, against gonum, in each arithmetic.
func TestLarge(t *testing.T) {
	needsGPU(t)
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	const m, n, k = 1111, 777, 999
	r := rand.New(rand.NewPCG(19, 20))
	va, vb := random[float32](r, m*k), random[float32](r, k*n)
	want := make([]float32, m*n)
	blas32.Gemm(gonum.NoTrans, gonum.NoTrans, 1, blas32.General{Rows: m, Cols: k, Stride: k, Data: va}, blas32.General{Rows: k, Cols: n, Stride: n, Data: vb},
		0, blas32.General{Rows: m, Cols: n, Stride: n, Data: want})
	a, b := blas.Rows(buffer(t, x, va), m, k), blas.Rows(buffer(t, x, vb), k, n)
	for math_, bits := range map[blas.Math]int{blas.Float32: 23, blas.Pedantic: 23, blas.TF32: 10, blas.FastFloat16: 10, blas.FastBFloat16: 7} {
		c := blas.Rows(buffer(t, x, make([]float32, m*n)), m, n)
		require.NoError(t, blas.Gemm(h.With(math_), s, 1, a, b, 0, c))
		worst := 0.0
		for i, v := range download(t, c.Buffer) {
			worst = max(worst, math.Abs(float64(v-want[i])))
		}
		t.Logf("%v: the largest error is %.2g", math_, worst)
		assert.Less(t, worst, k*(math.Ldexp(1, -bits)+math.Ldexp(1, -22)), math_) // every product may be off by so much
	}

	wide := func(v []float32) []float64 {
		out := make([]float64, len(v))
		for i := range v {
			out[i] = float64(v[i])
		}
		return out
	}
	da, db, want64 := wide(va), wide(vb), make([]float64, m*n)
	blas64.Gemm(gonum.NoTrans, gonum.NoTrans, 1, blas64.General{Rows: m, Cols: k, Stride: k, Data: da}, blas64.General{Rows: k, Cols: n, Stride: n, Data: db},
		0, blas64.General{Rows: m, Cols: n, Stride: n, Data: want64})
	c := blas.Rows(buffer(t, x, make([]float64, m*n)), m, n)
	require.NoError(t, blas.Gemm(h, s, 1, blas.Rows(buffer(t, x, da), m, k), blas.Rows(buffer(t, x, db), k, n), 0, c))
	for i, v := range download(t, c.Buffer) {
		require.InDelta(t, want64[i], v, k*math.Ldexp(1, -50))
	}
}

// TestRepeatable: one stream gives the same bits again, whatever other streams do.
func TestRepeatable(t *testing.T) {
	needsGPU(t)
	x := open(t)
	h, s, other := handle(t, x, blas.Options{}), stream(t, x), stream(t, x)
	const n = 2048
	r := rand.New(rand.NewPCG(21, 22))
	m := func() blas.Matrix[dtype.BFloat16] {
		return blas.Rows(buffer(t, x, random[dtype.BFloat16](r, n*n)), n, n)
	}
	a, b, c, d := m(), m(), m(), m()
	var first []dtype.BFloat16
	for range 20 {
		require.NoError(t, blas.Gemm(h, s, 1, a, b, 0, c))
		require.NoError(t, blas.Gemm(h, other, 1, b, a, 0, d))
		got := download(t, c.Buffer)
		if first == nil {
			first = got
		}
		require.Equal(t, first, got)
	}
}

// rawGEMM is a handle of cuBLAS as a program without this package has it.
func rawGEMM(b *testing.B, x *safe.Context, s *safe.Stream) cublas.CublasHandle_t {
	b.Helper()
	var raw cublas.CublasHandle_t
	require.NoError(b, x.WithoutCaptures(func() error {
		if err := cublas.CublasCreate(&raw); err != nil {
			return err
		}
		return cublas.CublasSetStream(raw, s.Raw())
	}))
	b.Cleanup(func() {
		require.NoError(b, x.WithoutCaptures(func() error { return cublas.CublasDestroy(raw) }))
	})
	return raw
}

func address[T any](b *safe.Buffer[T]) unsafe.Pointer {
	raw := b.Raw()
	return *(*unsafe.Pointer)(unsafe.Pointer(&raw))
}

// benchmark measures square products beside those of raw cuBLAS.
func benchmark[T blas.Element](b *testing.B, n int, data librarytypes.CudaDataType) {
	if !onGPU {
		b.Skip("needs cuBLAS and a GPU")
	}
	x := open(b)
	s := stream(b, x)
	r := rand.New(rand.NewPCG(23, 24))
	one := random[T](r, n*n)
	var m [3]blas.Matrix[T]
	for i := range m {
		m[i] = blas.Rows(buffer(b, x, one), n, n)
	}
	h := handle(b, x, blas.Options{})
	raw := rawGEMM(b, x, s)
	alpha, beta, size := float32(1), float32(0), int64(n)
	enqueueRaw := func() error {
		return cublas.CublasGemmEx_64(raw, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, size, size, size, unsafe.Pointer(&alpha), address(m[1].Buffer), data, size,
			address(m[0].Buffer), data, size, unsafe.Pointer(&beta), address(m[2].Buffer), data, size, cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT)
	}
	measure := func(b *testing.B, enqueue func() error) {
		for range 3 {
			require.NoError(b, enqueue())
		}
		require.NoError(b, driver.CuStreamSynchronize(s.Raw()))
		start := time.Now()
		b.ResetTimer()
		for i := range b.N {
			if err := enqueue(); err != nil {
				b.Fatal(err)
			}
			if n < 64 && i%500 == 499 { // the queue has 1,000 places or so: measure no waiting for it
				b.StopTimer()
				require.NoError(b, driver.CuStreamSynchronize(s.Raw()))
				b.StartTimer()
			}
		}
		if n >= 64 {
			require.NoError(b, driver.CuStreamSynchronize(s.Raw()))
			b.ReportMetric(2*float64(n)*float64(n)*float64(n)*float64(b.N)/time.Since(start).Seconds()/1e12, "TFLOP/s")
		}
	}
	b.Run("raw", func(b *testing.B) {
		require.NoError(b, x.WithCurrent(func() error {
			measure(b, enqueueRaw)
			return nil
		}))
	})
	b.Run("blas.Gemm", func(b *testing.B) {
		require.NoError(b, x.WithCurrent(func() error {
			measure(b, func() error { return blas.Gemm(h, s, 1, m[0], m[1], 0, m[2]) })
			return nil
		}))
	})
	b.Run("blas.Matmul", func(b *testing.B) {
		require.NoError(b, x.WithCurrent(func() error {
			measure(b, func() error { return blas.Matmul(h, s, 1, m[0], m[1], 0, m[2], blas.MatmulOptions{}) })
			return nil
		}))
	})
}

func BenchmarkFloat32_4096(b *testing.B) { benchmark[float32](b, 4096, librarytypes.CUDA_R_32F) }

func BenchmarkBFloat16_8192(b *testing.B) {
	benchmark[dtype.BFloat16](b, 8192, librarytypes.CUDA_R_16BF)
}

// BenchmarkCall measures the host's part of a small product: what a call costs.
func BenchmarkCall(b *testing.B) { benchmark[float32](b, 16, librarytypes.CUDA_R_32F) }
