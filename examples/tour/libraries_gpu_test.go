//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/generated/nvml"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// needsLibrary skips a test without a GPU or without the library.
func needsLibrary(t *testing.T, library func() (file, version string, err error)) {
	t.Helper()
	if !onGPU {
		t.Skip("needs a GPU")
	}
	file, version, err := library()
	if err != nil {
		t.Skip(err)
	}
	t.Log(file, version)
}

// nonBlocking creates a stream that is closed with the test.
func nonBlocking(t *testing.T, x *safe.Context) *safe.Stream {
	t.Helper()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// filled allocates n values, f(i) each.
func filled[T any](t *testing.T, x *safe.Context, n int, f func(i int) T) *safe.Buffer[T] {
	t.Helper()
	values := make([]T, n)
	for i := range values {
		values[i] = f(i)
	}
	b, err := safe.NewBuffer[T](x, n)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	require.NoError(t, b.CopyFromHost(values))
	return b
}

func cleared[T any](t *testing.T, x *safe.Context, n int) *safe.Buffer[T] {
	return filled(t, x, n, func(int) (zero T) { return zero })
}

func contents[T any](t *testing.T, b *safe.Buffer[T]) []T {
	t.Helper()
	values := make([]T, b.Len())
	require.NoError(t, b.CopyToHost(values))
	return values
}

// address is a device address as C's functions take it. Go must not use it.
func address[T any](b *safe.Buffer[T]) unsafe.Pointer { return ffi.Pointer(b.Raw()) }

// timed runs enqueue ten times on s after it has run once, and returns the time of one.
func timed(t *testing.T, s *safe.Stream, enqueue func() error) time.Duration {
	t.Helper()
	require.NoError(t, errors.Join(enqueue(), s.Synchronize()))
	start := time.Now()
	for range 10 {
		require.NoError(t, enqueue())
	}
	require.NoError(t, s.Synchronize())
	return time.Since(start) / 10
}

// replayed captures enqueue on s, launches the graph once and waits.
func replayed(t *testing.T, s *safe.Stream, enqueue func() error) {
	t.Helper()
	g, err := s.Capture(enqueue)
	require.NoError(t, err)
	defer g.Close()
	e, err := g.Instantiate()
	require.NoError(t, err)
	defer e.Close()
	require.NoError(t, errors.Join(e.Launch(s), s.Synchronize()))
}

// TestGEMM multiplies matrices by cuBLAS, directly and in a graph.
func TestGEMM(t *testing.T) {
	needsLibrary(t, cublas.Library)
	const n = 2048
	x := open(t)
	s := nonBlocking(t, x)
	blas, err := newBLAS(x, s)
	require.NoError(t, err)
	a := filled(t, x, n*n, func(i int) float32 { return float32(i%7) - 3 })
	b := filled(t, x, n*n, func(i int) float32 { return float32(i%5) - 2 })
	c := cleared[float32](t, x, n*n)
	enqueue := func() error { return multiply(blas, s, n, a, b, c) }
	took := timed(t, s, enqueue)
	t.Logf("%.1f TFLOP/s", 2*n*n*n/took.Seconds()/1e12)
	check := func() {
		got, left, right := contents(t, c), contents(t, a), contents(t, b)
		for _, at := range [][2]int{{0, 0}, {17, 1000}, {n - 1, n - 1}} {
			want := float32(0)
			for k := range n {
				want += left[at[0]+k*n] * right[k+at[1]*n]
			}
			assert.Equal(t, want, got[at[0]+at[1]*n])
		}
	}
	check()
	require.NoError(t, c.Fill(0))
	replayed(t, s, enqueue)
	check()
	require.NoError(t, x.WithoutCaptures(func() error { return cublas.CublasDestroy(blas) }))
}

// bfloat16 returns the 16 bits of a number that needs no more.
func bfloat16(v float32) uint16 { return uint16(math.Float32bits(v) >> 16) }

// TestMatmulBF16 multiplies matrices of bfloat16 by cuBLASLt.
func TestMatmulBF16(t *testing.T) {
	needsLibrary(t, cublaslt.Library)
	const n, room = 1024, 32 << 20
	x := open(t)
	s := nonBlocking(t, x)
	a := filled(t, x, n*n, func(i int) uint16 { return bfloat16(float32(i%7) - 3) })
	b := filled(t, x, n*n, func(i int) uint16 { return bfloat16(float32(i%5) - 2) })
	c, workspace := cleared[float32](t, x, n*n), cleared[byte](t, x, room)
	var lt cublaslt.CublasLtHandle_t
	var op cublaslt.CublasLtMatmulDesc_t
	var in, out cublaslt.CublasLtMatrixLayout_t
	var preference cublaslt.CublasLtMatmulPreference_t
	var found cublaslt.CublasLtMatmulHeuristicResult_t
	var count int32
	limit := uint64(room)
	require.NoError(t, x.WithoutCaptures(func() error {
		for _, err := range []error{
			cublaslt.CublasLtCreate(&lt),
			cublaslt.CublasLtMatmulDescCreate(&op, cublas.CUBLAS_COMPUTE_32F, librarytypes.CUDA_R_32F),
			cublaslt.CublasLtMatrixLayoutCreate(&in, librarytypes.CUDA_R_16BF, n, n, n),
			cublaslt.CublasLtMatrixLayoutCreate(&out, librarytypes.CUDA_R_32F, n, n, n),
			cublaslt.CublasLtMatmulPreferenceCreate(&preference),
			cublaslt.CublasLtMatmulPreferenceSetAttribute(preference, cublaslt.CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, unsafe.Pointer(&limit), 8),
		} {
			if err != nil {
				return err
			}
		}
		return cublaslt.CublasLtMatmulAlgoGetHeuristic(lt, op, in, in, out, out, preference, 1, &found, &count)
	}))
	require.EqualValues(t, 1, count)
	one, zero := float32(1), float32(0)
	enqueue := func() error {
		return s.EnqueueRaw(func(raw driver.CUstream) error {
			return cublaslt.CublasLtMatmul(lt, op, unsafe.Pointer(&one), address(a), in, address(b), in,
				unsafe.Pointer(&zero), address(c), out, address(c), out, &found.Algo, address(workspace), room, raw)
		}, a.Arg(), b.Arg(), c.Arg(), workspace.Arg())
	}
	took := timed(t, s, enqueue)
	t.Logf("%.1f TFLOP/s", 2*n*n*n/took.Seconds()/1e12)
	want := float32(0)
	for k := range n {
		want += (float32((5+k*n)%7) - 3) * (float32((k+9*n)%5) - 2)
	}
	assert.Equal(t, want, contents(t, c)[5+9*n])
	require.NoError(t, c.Fill(0))
	replayed(t, s, enqueue)
	assert.Equal(t, want, contents(t, c)[5+9*n])
	require.NoError(t, x.WithoutCaptures(func() error {
		return errors.Join(cublaslt.CublasLtMatmulPreferenceDestroy(preference), cublaslt.CublasLtMatrixLayoutDestroy(in),
			cublaslt.CublasLtMatrixLayoutDestroy(out), cublaslt.CublasLtMatmulDescDestroy(op), cublaslt.CublasLtDestroy(lt))
	}))
}

// TestFFT transforms numbers forward and back by cuFFT.
func TestFFT(t *testing.T) {
	needsLibrary(t, cufft.Library)
	const n = 1 << 20
	x := open(t)
	s := nonBlocking(t, x)
	value := func(i int) complex64 { return complex(float32(i%17), float32(i%3)) }
	data := filled(t, x, n, value)
	var plan cufft.CufftHandle
	require.NoError(t, x.WithoutCaptures(func() error {
		return errors.Join(cufft.CufftPlan1d(&plan, n, cufft.CUFFT_C2C, 1), cufft.CufftSetStream(plan, s.Raw()))
	}))
	thereAndBack := func() error {
		return s.EnqueueRaw(func(driver.CUstream) error {
			p := (*cufft.CufftComplex)(address(data))
			return errors.Join(cufft.CufftExecC2C(plan, p, p, cufft.CUFFT_FORWARD), cufft.CufftExecC2C(plan, p, p, cufft.CUFFT_INVERSE))
		}, data.Arg())
	}
	require.NoError(t, errors.Join(thereAndBack(), s.Synchronize()))
	replayed(t, s, thereAndBack)
	worst := 0.0
	for i, v := range contents(t, data) {
		d := v/n/n - value(i)
		worst = max(worst, math.Hypot(float64(real(d)), float64(imag(d))))
	}
	t.Logf("the largest error after two round trips of %d numbers up to 16 is %.2g", n, worst)
	assert.Less(t, worst, 1e-3)
	require.NoError(t, x.WithoutCaptures(func() error { return cufft.CufftDestroy(plan) }))
}

// TestNormal checks the moments of normal numbers of cuRAND.
func TestNormal(t *testing.T) {
	needsLibrary(t, curand.Library)
	const n = 1 << 24
	x := open(t)
	s := nonBlocking(t, x)
	out := cleared[float32](t, x, n)
	var g curand.CurandGenerator_t
	require.NoError(t, x.WithoutCaptures(func() error {
		return errors.Join(curand.CurandCreateGenerator(&g, curand.CURAND_RNG_PSEUDO_PHILOX4_32_10), curand.CurandSetStream(g, s.Raw()),
			curand.CurandSetPseudoRandomGeneratorSeed(g, 42), curand.CurandGenerateSeeds(g))
	}))
	generate := func() error {
		return s.EnqueueRaw(func(driver.CUstream) error {
			return curand.CurandGenerateNormal(g, (*float32)(address(out)), n, 3, 2)
		}, out.Arg())
	}
	check := func() {
		var sum, squares float64
		for _, v := range contents(t, out) {
			sum += float64(v)
			squares += (float64(v) - 3) * (float64(v) - 3)
		}
		mean, deviation := sum/n, math.Sqrt(squares/n)
		t.Logf("mean %.5f, deviation %.5f of %d numbers", mean, deviation, n)
		assert.InDelta(t, 3, mean, 0.005)
		assert.InDelta(t, 2, deviation, 0.005)
	}
	require.NoError(t, errors.Join(generate(), s.Synchronize()))
	check()
	require.NoError(t, out.Fill(0))
	replayed(t, s, generate)
	check()
	require.NoError(t, x.WithoutCaptures(func() error { return curand.CurandDestroyGenerator(g) }))
}

// TestManagement compares NVML's figures with the driver's.
func TestManagement(t *testing.T) {
	needsLibrary(t, nvml.Library)
	require.NoError(t, nvml.NvmlInit_v2())
	defer nvml.NvmlShutdown()
	x := open(t)
	pci, err := x.Device().PCIAddress()
	require.NoError(t, err)
	var device nvml.NvmlDevice_t
	require.NoError(t, nvml.NvmlDeviceGetHandleByPciBusId(ffi.CString(pci), &device))
	var memory nvml.NvmlMemory_t
	require.NoError(t, nvml.NvmlDeviceGetMemoryInfo(device, &memory))
	var name [nvml.NVML_DEVICE_NAME_V2_BUFFER_SIZE]byte
	require.NoError(t, nvml.NvmlDeviceGetName(device, &name[0], uint32(len(name))))
	var milliwatts uint32
	require.NoError(t, nvml.NvmlDeviceGetPowerUsage(device, &milliwatts))
	var free, total uint64
	require.NoError(t, x.WithCurrent(func() error { return driver.CuMemGetInfo(&free, &total) }))
	text, _, _ := bytes.Cut(name[:], []byte{0})
	t.Logf("%s at %s: %d of %d MiB used, %d W", text, pci, memory.Used>>20, memory.Total>>20, milliwatts/1000)
	assert.InDelta(t, float64(total), float64(memory.Total), float64(total)/50)
}

// TestAllReduce sums 256 MiB of each GPU by NCCL, directly and in a graph.
func TestAllReduce(t *testing.T) {
	needsLibrary(t, nccl.Library)
	devices, err := safe.Devices()
	require.NoError(t, err)
	const n = 64 << 20
	var contexts []*safe.Context
	var streams []*safe.Stream
	var buffers []*safe.Buffer[float32]
	for i := range devices {
		x, err := safe.Open(i)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, x.Close()) })
		contexts, streams = append(contexts, x), append(streams, nonBlocking(t, x))
		b, err := safe.NewBufferWith[float32](x, n, safe.BufferOptions{Plain: true}) // NCCL may access it from the other GPUs
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, b.Close()) })
		buffers = append(buffers, b)
	}
	ranks := make([]nccl.NcclComm_t, len(devices))
	require.NoError(t, contexts[0].WithoutCaptures(func() error {
		return nccl.NcclCommInitAll(&ranks[0], int32(len(ranks)), nil)
	}, contexts[1:]...))
	synchronize := func() (err error) {
		for _, s := range streams {
			err = errors.Join(err, s.Synchronize())
		}
		return err
	}
	fill := func() {
		for i, b := range buffers {
			require.NoError(t, b.Fill(float32(i+1)))
		}
	}
	want := float32(len(devices) * (len(devices) + 1) / 2)
	check := func() {
		for _, b := range buffers {
			for i, v := range contents(t, b) {
				if v != want {
					t.Fatalf("value %d is %v instead of %v", i, v, want)
				}
			}
		}
	}
	fill()
	require.NoError(t, errors.Join(sum(ranks, streams, buffers), synchronize()))
	check()
	for _, b := range buffers {
		require.NoError(t, b.Fill(0))
	}
	start := time.Now()
	for range 10 {
		require.NoError(t, sum(ranks, streams, buffers))
	}
	require.NoError(t, synchronize())
	took := time.Since(start).Seconds() / 10
	ranksN := float64(len(devices))
	t.Logf("%d GPUs: %.1f GB/s of bus bandwidth", len(devices), 4*n*2*(ranksN-1)/ranksN/took/1e9)

	g, err := captured(streams, func() error { return sum(ranks, streams, buffers) })
	require.NoError(t, err)
	e, err := g.Instantiate()
	require.NoError(t, err)
	for range 2 {
		fill()
		require.NoError(t, errors.Join(e.Launch(streams[0]), synchronize()))
		check()
	}
	require.NoError(t, errors.Join(e.Close(), g.Close())) // before the communicators that they use
	require.NoError(t, contexts[0].WithoutCaptures(func() (err error) {
		for _, r := range ranks {
			err = errors.Join(err, nccl.NcclCommDestroy(r))
		}
		return err
	}, contexts[1:]...))
}

// captured captures work of several streams, of several GPUs, into one graph.
func captured(streams []*safe.Stream, work func() error) (*safe.Graph, error) {
	return streams[0].Capture(func() error {
		for _, s := range streams[1:] {
			if err := s.WaitStream(streams[0]); err != nil {
				return err
			}
		}
		err := work()
		for _, s := range streams[1:] {
			err = errors.Join(err, streams[0].WaitStream(s))
		}
		return err
	})
}
