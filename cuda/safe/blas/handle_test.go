//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// square is three matrices of n by n ones.
func square(t testing.TB, x *safe.Context, n int) [3]blas.Matrix[float32] {
	t.Helper()
	ones := make([]float32, n*n)
	for i := range ones {
		ones[i] = 1
	}
	var m [3]blas.Matrix[float32]
	for i := range m {
		m[i] = blas.Rows(buffer(t, x, ones), n, n)
	}
	return m
}

func multiply(h *blas.Handle, s *safe.Stream, m [3]blas.Matrix[float32]) error {
	return blas.Gemm(h, s, 1, m[0], m[1], 0, m[2])
}

// workspacesOf are those that calls of one kind got.
func workspacesOf(calls []entry, op string) (found []string) {
	for _, c := range calls {
		if c.op == op {
			found = append(found, c.workspace)
		}
	}
	return found
}

func captured(t *testing.T, s *safe.Stream, f func() error) *safe.Graph {
	t.Helper()
	g, err := s.Capture(f)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// launch runs a graph and waits.
func launch(t *testing.T, g *safe.Graph, s *safe.Stream) {
	t.Helper()
	e, err := g.Instantiate()
	require.NoError(t, err)
	require.NoError(t, e.Launch(s))
	require.NoError(t, s.Synchronize())
	require.NoError(t, e.Close())
}

// TestCaptured: in a capture every kind of work is part of the graph, and runs with each launch.
func TestCaptured(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	m := square(t, x, 8)
	norm := buffer(t, x, []float32{0})
	clear := func() {
		require.NoError(t, m[2].Buffer.Fill(0))
		require.NoError(t, norm.Fill(0))
	}
	all := func() error {
		return errors.Join(multiply(h, s, m),
			blas.Matmul(h, s, 1, m[0], m[1], 1, m[2], blas.MatmulOptions{}),
			blas.Gemv(h, s, 1, m[0], m[1].Row(0), 1, m[2].Row(0)),
			blas.Nrm2To(h, s, m[2].Row(0), norm))
	}
	clear()
	require.NoError(t, all())
	want, wantNorm := download(t, m[2].Buffer), download(t, norm)
	require.EqualValues(t, 24, want[0])
	require.EqualValues(t, 16, want[8])
	for _, mode := range []safe.CaptureMode{safe.CaptureThreadLocal, safe.CaptureGlobal, safe.CaptureRelaxed} {
		clear()
		g, err := s.CaptureWith(t.Context(), safe.CaptureOptions{Mode: mode}, all)
		require.NoError(t, err)
		assert.Zero(t, download(t, m[2].Buffer)[0], "captured, not run")
		launch(t, g, s)
		assert.Equal(t, want, download(t, m[2].Buffer))
		assert.Equal(t, wantNorm, download(t, norm))
		require.NoError(t, g.Close())
	}
}

// TestGraphWorkspaces: a graph has workspaces of its own, one for each stream, which stay as
// long as the graph, and its executables.
func TestGraphWorkspaces(t *testing.T) {
	needsDouble(t)
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	other := stream(t, x)
	m, o := square(t, x, 4), square(t, x, 4)
	before := workspacesOf(logged(t, func() { require.NoError(t, multiply(h, s, m)) }), "gemm/68")
	var graphs [2]*safe.Graph
	var spaces [][]string
	for i := range graphs {
		calls := logged(t, func() {
			graphs[i] = captured(t, s, func() error {
				if err := errors.Join(multiply(h, s, m), multiply(h, s, m), other.WaitStream(s)); err != nil {
					return err
				}
				return errors.Join(multiply(h, other, o), s.WaitStream(other))
			})
		})
		spaces = append(spaces, workspacesOf(calls, "gemm/68"))
	}
	after := workspacesOf(logged(t, func() { require.NoError(t, multiply(h, s, m)) }), "gemm/68")
	assert.Equal(t, before, after, "the stream has its own")
	one, two := spaces[0], spaces[1]
	require.Len(t, one, 3)
	assert.Equal(t, one[0], one[1], "one stream")
	assert.Equal(t, two[0], two[1], "one stream")
	distinct := map[string]bool{before[0]: true, one[0]: true, one[2]: true, two[0]: true, two[2]: true}
	assert.Len(t, distinct, 5, "another graph, or another stream")

	n, size := h.Workspaces()
	assert.Equal(t, 4096, size)
	assert.LessOrEqual(t, n, 4, "those of captures that are over are closed by later ones")
	require.NoError(t, s.Synchronize())
	require.NoError(t, m[2].Buffer.Fill(0))
	require.NoError(t, h.Close())
	launch(t, graphs[0], s) // its workspaces and handles' work are there still
	assert.EqualValues(t, 4, download(t, m[2].Buffer)[0])
}

// TestOpenFails: an Open that fails destroys the handles that it has created.
func TestOpenFails(t *testing.T) {
	needsDouble(t)
	x := open(t)
	defer simulated.Reset()
	most := 0
	for nth := range 12 { // the doubles ask for the context
		calls := logged(t, func() {
			simulated.Fail("cuCtxGetCurrent", nth+1, uint32(driver.CUDA_ERROR_UNKNOWN))
			h, err := blas.Open(x, blas.Options{Workspace: 4096, Handles: 3})
			simulated.Fail("cuCtxGetCurrent", 0, 0)
			if err != nil {
				assert.ErrorContains(t, err, "cuda: blas.Open: ")
			}
			require.NoError(t, h.Close())
		})
		created := 0
		for _, c := range calls {
			if c.op == "create" || c.op == "ltcreate" {
				created++
			}
		}
		assert.Equal(t, created, destroyed(calls), "call %d fails", nth)
		if created < 4 {
			most = max(most, created)
		}
	}
	assert.GreaterOrEqual(t, most, 2, "some were created, and not all")
}

// TestGraphKeepsOperands: a graph keeps all memory that its work uses.
func TestGraphKeepsOperands(t *testing.T) {
	needsDouble(t)
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	require.NoError(t, multiply(h, s, square(t, x, 4)))
	for name, row := range map[string]struct {
		operands int
		f        func(v []*safe.Buffer[float32], m []blas.Matrix[float32]) error
	}{
		"Gemm": {3, func(_ []*safe.Buffer[float32], m []blas.Matrix[float32]) error {
			return blas.Gemm(h, s, 1, m[0], m[1], 0, m[2])
		}},
		"GemmStrided": {3, func(_ []*safe.Buffer[float32], m []blas.Matrix[float32]) error {
			of := func(i int) blas.Stack[float32] { return blas.Stack[float32]{Matrix: m[i], Count: 1} }
			return blas.GemmStrided(h, s, 1, of(0), of(1), 0, of(2))
		}},
		"Gemv": {3, func(_ []*safe.Buffer[float32], m []blas.Matrix[float32]) error {
			return blas.Gemv(h, s, 1, m[0], m[1].Row(0), 0, m[2].Row(0))
		}},
		"Axpy": {2, func(v []*safe.Buffer[float32], _ []blas.Matrix[float32]) error {
			return blas.Axpy(h, s, 1, blas.Vec(v[0]), blas.Vec(v[1]))
		}},
		"Scal": {1, func(v []*safe.Buffer[float32], _ []blas.Matrix[float32]) error {
			return blas.Scal(h, s, 1, blas.Vec(v[0]))
		}},
		"DotTo": {3, func(v []*safe.Buffer[float32], _ []blas.Matrix[float32]) error {
			return blas.DotTo(h, s, blas.Vec(v[0]), blas.Vec(v[1]), v[2])
		}},
		"Nrm2To": {2, func(v []*safe.Buffer[float32], _ []blas.Matrix[float32]) error {
			return blas.Nrm2To(h, s, blas.Vec(v[0]), v[1])
		}},
		"Matmul": {5, func(v []*safe.Buffer[float32], m []blas.Matrix[float32]) error {
			bias, err := v[3].Slice(0, 4)
			if err != nil {
				return err
			}
			aux, err := v[4].Slice(0, blas.AuxLen(blas.GELU, 4, 4))
			return errors.Join(err, blas.Matmul(h, s, 1, m[0], m[1], 0, m[2], blas.MatmulOptions{Epilogue: blas.GELU, Bias: bias, Aux: aux}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := simulated.Live("memory")
			var all []*safe.Buffer[float32]
			var m []blas.Matrix[float32]
			for range row.operands {
				b, err := safe.NewBufferWith[float32](x, 64, safe.BufferOptions{Plain: true})
				require.NoError(t, err)
				all, m = append(all, b), append(m, blas.Rows(b, 4, 4))
			}
			g, err := s.Capture(func() error { return row.f(all, m) })
			require.NoError(t, err)
			for _, b := range all {
				require.NoError(t, b.Close())
			}
			assert.Equal(t, before+row.operands, simulated.Live("memory"))
			require.NoError(t, g.Close())
			assert.Eventually(t, func() bool { return simulated.Live("memory") == before }, 10*time.Second, time.Millisecond)
		})
	}
}

// TestFirstInCapture: a stream's first call may be in a capture. Open may not.
func TestFirstInCapture(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	m := square(t, x, 4)
	out := buffer(t, x, []float32{0})
	g := captured(t, s, func() error {
		_, err := blas.Open(x, blas.Options{})
		assert.ErrorIs(t, err, safe.ErrCapturing)
		assert.ErrorContains(t, err, "blas.Open")
		_, err = blas.Dot(h, s, m[0].Row(0), m[1].Row(0))
		assert.ErrorIs(t, err, safe.ErrCapturing)
		assert.EqualError(t, err, "cuda: blas.Dot: a stream is capturing, and this call would invalidate the capture: its result would have to be waited for: use blas.DotTo")
		_, err = blas.Nrm2(h, s, m[0].Row(0))
		assert.ErrorIs(t, err, safe.ErrCapturing)
		return errors.Join(multiply(h, s, m), blas.DotTo(h, s, m[2].Row(0), m[1].Row(0), out))
	})
	launch(t, g, s)
	assert.EqualValues(t, 16, download(t, out)[0])
	dot, err := blas.Dot(h, s, m[2].Row(0), m[1].Row(0))
	require.NoError(t, err, "after the capture")
	assert.EqualValues(t, 16, dot)
}

// TestManyStreams: many streams share few workspaces, and keep their order.
func TestManyStreams(t *testing.T) {
	x := open(t)
	h := handle(t, x, blas.Options{Workspaces: 3})
	m := square(t, x, 4)
	count := 200
	var streams []*safe.Stream
	for range count {
		streams = append(streams, stream(t, x))
	}
	results := make([][3]blas.Matrix[float32], count)
	for i, s := range streams {
		results[i] = [3]blas.Matrix[float32]{m[0], m[1], blas.Rows(buffer(t, x, make([]float32, 16)), 4, 4)}
		require.NoError(t, multiply(h, s, results[i]))
		n, _ := h.Workspaces()
		require.LessOrEqual(t, n, 3)
	}
	for i := range results {
		assert.EqualValues(t, 4, download(t, results[i][2].Buffer)[0])
	}
	calls := func(s *safe.Stream) []string {
		return workspacesOf(logged(t, func() { require.NoError(t, multiply(h, s, m)) }), "gemm/68")
	}
	if !onGPU {
		assert.Equal(t, calls(streams[7]), calls(streams[7]), "a stream keeps its workspace while it is in use")
	}
	require.NoError(t, streams[7].Close())
	assert.ErrorIs(t, multiply(h, streams[7], m), safe.ErrClosed)
}

// TestDroppedStreams: a workspace keeps no stream that the program has dropped.
func TestDroppedStreams(t *testing.T) {
	needsDouble(t)
	x := open(t)
	h := handle(t, x, blas.Options{})
	m := square(t, x, 4)
	before := simulated.Live("stream")
	func() {
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		require.NoError(t, multiply(h, s, m))
		require.NoError(t, s.Synchronize())
	}()
	assert.Eventually(t, func() bool {
		runtime.GC()
		return simulated.Live("stream") <= before
	}, time.Minute, time.Millisecond)
}

// TestConcurrent: goroutines with their own streams, with one stream, and with captures.
func TestConcurrent(t *testing.T) {
	x := open(t)
	h := handle(t, x, blas.Options{Workspaces: 2})
	shared := stream(t, x)
	var all sync.WaitGroup
	for i := range 8 {
		s := stream(t, x)
		m := square(t, x, 4)
		out := buffer(t, x, []float32{0})
		all.Go(func() {
			for round := range 20 {
				var err error
				switch {
				case i < 3:
					err = errors.Join(multiply(h, s, m), blas.Matmul(h, s, 1, m[0], m[1], 1, m[2], blas.MatmulOptions{}))
				case i < 5:
					err = errors.Join(multiply(h, shared, m), blas.DotTo(h, shared, m[0].Row(0), m[1].Row(0), out))
				case i < 7:
					var g *safe.Graph
					if g, err = s.Capture(func() error { return multiply(h, s, m) }); err == nil {
						var e *safe.GraphExec
						if e, err = g.Instantiate(); err == nil {
							err = errors.Join(e.Launch(s), s.Synchronize(), e.Close())
						}
						err = errors.Join(err, g.Close())
					}
				default:
					var sum float32
					if sum, err = blas.Dot(h, s, m[0].Row(0), m[1].Row(1)); err == nil && sum != 4 {
						err = fmt.Errorf("the product is %v", sum)
					}
				}
				if !assert.NoError(t, err, "goroutine %d, round %d", i, round) {
					return
				}
			}
			if values, err := m[2].Buffer.Download(); assert.NoError(t, err) && i < 7 {
				assert.Contains(t, []float32{4, 8}, values[0], "goroutine %d", i)
			}
		})
	}
	all.Wait()
}

// TestCloseWhileUsed: calls in flight succeed, later ones return ErrClosed.
func TestCloseWhileUsed(t *testing.T) {
	x := open(t)
	h, err := blas.Open(x, blas.Options{Workspace: 4096})
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 4 {
		s, m := stream(t, x), square(t, x, 4)
		all.Go(func() {
			for {
				if err := multiply(h, s, m); err != nil {
					assert.ErrorIs(t, err, safe.ErrClosed)
					return
				}
			}
		})
	}
	time.Sleep(5 * time.Millisecond) // any time will do
	require.NoError(t, h.Close())
	all.Wait()
	require.NoError(t, h.Close(), "again")
}

// destroyed returns how many of the handles that calls has created it has also destroyed.
func destroyed(calls []entry) (n int) {
	alive := map[string]bool{}
	for _, c := range calls {
		switch c.op {
		case "create", "ltcreate":
			alive[c.handle] = true
		case "destroy", "ltdestroy":
			if alive[c.handle] {
				n++
			}
			alive[c.handle] = false
		}
	}
	return n
}

// TestCloseInCapture: the release waits for the end of the capture.
func TestCloseInCapture(t *testing.T) {
	needsDouble(t)
	x := open(t)
	before := len(lines(t))
	h, err := blas.Open(x, blas.Options{Workspace: 4096})
	require.NoError(t, err)
	s, m := stream(t, x), square(t, x, 4)
	g := captured(t, s, func() error {
		err := errors.Join(multiply(h, s, m), h.Close())
		assert.Zero(t, destroyed(lines(t)[before:]))
		return err
	})
	assert.Eventually(t, func() bool { return destroyed(lines(t)[before:]) == 3 }, time.Minute, time.Millisecond)
	require.NoError(t, m[2].Buffer.Fill(0))
	launch(t, g, s)
	assert.EqualValues(t, 4, download(t, m[2].Buffer)[0])
}

// TestCloseAllInCapture: a handle whose release waits for a capture keeps the context until then, also if
// the program closes everything.
func TestCloseAllInCapture(t *testing.T) {
	needsDouble(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	before := len(lines(t))
	h, err := blas.Open(x, blas.Options{Workspace: 4096})
	require.NoError(t, err)
	g, err := stream(t, x).Capture(func() error { return errors.Join(h.Close(), x.CloseAll(), x.Close()) })
	require.NoError(t, errors.Join(err, g.Close()))
	assert.Eventually(t, func() bool { return destroyed(lines(t)[before:]) == 3 }, time.Minute, time.Millisecond)
	assert.Eventually(t, func() bool { return simulated.Live("") == 0 }, time.Minute, time.Millisecond, "nothing keeps the context")
}

// TestDroppedHandle: the garbage collector destroys handles that the program has not closed.
func TestDroppedHandle(t *testing.T) {
	needsDouble(t)
	x := open(t)
	before := len(lines(t))
	_, err := blas.Open(x, blas.Options{Workspace: 4096, Handles: 3})
	require.NoError(t, err)
	assert.Eventually(t, func() bool {
		runtime.GC()
		return destroyed(lines(t)[before:]) == 4
	}, time.Minute, time.Millisecond)
}

// TestClosedContext: the Handle keeps the context.
func TestClosedContext(t *testing.T) {
	x, err := safe.Open(0)
	require.NoError(t, err)
	h := handle(t, x, blas.Options{})
	s, m := stream(t, x), square(t, x, 4)
	require.NoError(t, x.Close())
	require.NoError(t, multiply(h, s, m))
	assert.EqualValues(t, 4, download(t, m[2].Buffer)[0])
}

// TestKindsOfStreams: the legacy stream, a borrowed one, and branches of a fork.
func TestKindsOfStreams(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	borrowed, err := s.Borrow()
	require.NoError(t, err)
	for name, s := range map[string]*safe.Stream{"legacy": legacy, "borrowed": borrowed, "own": s} {
		m := square(t, x, 4)
		require.NoError(t, multiply(h, s, m), name)
		assert.EqualValues(t, 4, download(t, m[2].Buffer)[0], name)
	}
	require.NoError(t, borrowed.Close())
	for range 20 {
		m := [2][3]blas.Matrix[float32]{square(t, x, 4), square(t, x, 4)}
		require.NoError(t, s.Fork(2, func(branches []*safe.Stream) error {
			return errors.Join(multiply(h, branches[0], m[0]), multiply(h, branches[1], m[1]))
		}))
		assert.EqualValues(t, 4, download(t, m[1][2].Buffer)[0])
	}
}

// TestOtherContext: streams and memory of other devices are refused.
func TestOtherContext(t *testing.T) {
	devices, err := safe.Devices()
	require.NoError(t, err)
	if len(devices) < 2 {
		t.Skip("needs two devices")
	}
	x := open(t)
	y, err := safe.Open(1)
	require.NoError(t, err)
	defer y.Close()
	h := handle(t, x, blas.Options{})
	err = multiply(h, stream(t, y), square(t, y, 4))
	assert.ErrorIs(t, err, safe.ErrContextMismatch)
	assert.ErrorContains(t, err, "the blas handle belongs to a context of device 0")
	assert.ErrorIs(t, multiply(h, stream(t, x), square(t, y, 4)), safe.ErrContextMismatch)
}

// TestNoLibrary: where there is no cuBLAS, Open says that it would not work with the simulated driver.
func TestNoLibrary(t *testing.T) {
	needsDouble(t)
	drivertest.InChild(t, func(t *testing.T) {
		if _, _, err := cublas.Library(); err == nil {
			t.Skip("this machine has cuBLAS")
		}
		_, err := blas.Open(open(t), blas.Options{})
		assert.ErrorIs(t, err, safe.ErrNotSupported)
		var missing *cublas.LibraryError
		require.ErrorAs(t, err, &missing)
		assert.EqualError(t, err, "cuda: blas.Open: NVIDIA's libraries need a GPU, and do not work with the simulated driver: see Limits in docs/testing.md")
	}, "CUDABIND_TEST_NO_CUBLAS=1", "CUDA_HOME=", "CUDA_PATH=", "VIRTUAL_ENV=", "CONDA_PREFIX=", "XDG_CACHE_HOME="+t.TempDir(), "LD_LIBRARY_PATH=")
}

// TestNoAllocations: calls allocate nothing.
func TestNoAllocations(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	m := square(t, x, 4)
	stack := func(i int) blas.Stack[float32] { return blas.Stack[float32]{Matrix: m[i], Count: 1} }
	batch, err := blas.NewBatch(h, m[:1], m[1:2], m[2:])
	require.NoError(t, err)
	defer batch.Close()
	bias := buffer(t, x, make([]float32, 4))
	for name, f := range map[string]func() error{
		"Gemm":        func() error { return multiply(h, s, m) },
		"GemmStrided": func() error { return blas.GemmStrided(h, s, 1, stack(0), stack(1), 0, stack(2)) },
		"GemmBatched": func() error { return blas.GemmBatched(batch, s, 1, 0) },
		"Gemv":        func() error { return blas.Gemv(h, s, 1, m[0], m[1].Row(0), 0, m[2].Row(0)) },
		"Axpy":        func() error { return blas.Axpy(h, s, 1, m[0].Row(0), m[2].Row(0)) },
		"Scal":        func() error { return blas.Scal(h, s, 1, m[2].Row(0)) },
		"DotTo":       func() error { return blas.DotTo(h, s, m[0].Row(0), m[1].Row(0), m[2].Buffer) },
		"Nrm2To":      func() error { return blas.Nrm2To(h, s, m[0].Row(0), m[2].Buffer) },
		"Matmul":      func() error { return blas.Matmul(h, s, 1, m[0], m[1], 0, m[2], blas.MatmulOptions{}) },
		"Matmul with a bias": func() error {
			return blas.Matmul(h, s, 1, m[0], m[1], 0, m[2], blas.MatmulOptions{Epilogue: blas.ReLU, Bias: bias})
		},
	} {
		drivertest.NoAllocations(t, name, f, s.Synchronize)
	}
}

// TestBatchReplaced: a Batch keeps the buffers that it was made of, whatever the program writes there.
func TestBatchReplaced(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	b, other := buffer(t, x, []float32{1}), buffer(t, x, []float32{1})
	m := []blas.Matrix[float32]{blas.Rows(b, 1, 1)}
	result := []blas.Matrix[float32]{blas.Rows(buffer(t, x, []float32{1}), 1, 1)}
	p, err := blas.NewBatch(h, m, m, result)
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, blas.GemmBatched(p, s, 1, 0))
	require.NoError(t, b.Close())
	*b = *other
	assert.ErrorIs(t, blas.GemmBatched(p, s, 1, 0), safe.ErrClosed, "its addresses are those of the closed buffer")
	require.NoError(t, s.Synchronize())
}
