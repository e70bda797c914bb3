//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Captures, goroutines, many plans and streams, caches.

package fft_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/fft"
	"github.com/cudabind/cudabind/cuda/safe/library"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// odd is a shape that works in memory beside its buffers, with cuFFT and with its double.
var odd = fft.Shape{N: []int{211}, Batch: 2}

func init() {
	if onGPU {
		odd.N[0] = 10007
	}
}

// job is a signal on its way.
type job struct {
	p       *fft.Plan[complex64, complex64]
	signal  []complex64
	in, out *safe.Buffer[complex64]
}

func newJob(t testing.TB, x *safe.Context, p *fft.Plan[complex64, complex64], seed uint64) *job {
	n, _ := p.Lens()
	j := &job{p: p, signal: noise[complex64](rand.New(rand.NewPCG(seed, 7)), n)}
	j.in, j.out = buffer(t, x, j.signal), buffer(t, x, make([]complex64, n))
	return j
}

// round enqueues transforms forth, back and forth again.
func (j *job) round(s *safe.Stream) error {
	return errors.Join(j.p.Forward(s, j.in, j.out), j.p.Inverse(s, j.out, j.in), j.p.Forward(s, j.in, j.out))
}

// check compares the spectra. It begins with a direct transform, which takes a while.
func (j *job) check(t testing.TB) {
	t.Helper()
	_, to := sides(odd, false)
	size := odd.N[0] * 2
	got := download(t, j.out)
	require.Len(t, got, size)
	within(t, 1e-4, transformed(odd, j.signal), to, got) // after some rounds
}

func newOdd(t testing.TB, x *safe.Context) *fft.Plan[complex64, complex64] {
	t.Helper()
	p, err := fft.New[complex64, complex64](x, odd, fft.Options{Scale: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	require.Positive(t, p.WorkBytes())
	return p
}

// TestManyAtOnce: one plan serves goroutines on streams of their own, in captures too, whose
// graphs run side by side.
func TestManyAtOnce(t *testing.T) {
	x := open(t)
	p := newOdd(t, x)
	const workers, rounds = 8, 5
	jobs, streams := make([]*job, workers), make([]*safe.Stream, workers)
	for i := range jobs {
		jobs[i], streams[i] = newJob(t, x, p, uint64(i)), stream(t, x)
	}
	var all sync.WaitGroup
	failures := make(chan error, workers)
	for i, j := range jobs {
		all.Go(func() {
			s := streams[i]
			if i%2 == 0 {
				failures <- j.replay(s, rounds)
				return
			}
			for range rounds {
				if err := j.round(s); err != nil {
					failures <- err
					return
				}
			}
			failures <- s.Synchronize()
		})
	}
	all.Wait()
	for range jobs {
		require.NoError(t, <-failures)
	}
	for _, j := range jobs {
		j.check(t)
	}
}

// replay captures a round and launches it some times.
func (j *job) replay(s *safe.Stream, rounds int) error {
	e, err := s.CaptureExecutable(func() error { return j.round(s) })
	if err != nil {
		return err
	}
	for range rounds {
		if err := e.Launch(s); err != nil {
			return err
		}
	}
	return errors.Join(s.Synchronize(), e.Close())
}

// TestGraphKeepsPlan: a graph runs after its plan was closed, and its memory is its own.
func TestGraphKeepsPlan(t *testing.T) {
	x := open(t)
	s, p := stream(t, x), newOdd(t, x)
	one, two := newJob(t, x, p, 1), newJob(t, x, p, 2)
	a, err := s.CaptureExecutable(func() error {
		_, err := fft.New[complex64, complex64](x, odd, fft.Options{})
		assert.ErrorIs(t, err, safe.ErrCapturing)
		return one.round(s)
	})
	require.NoError(t, err)
	b, err := s.CaptureExecutable(func() error { return two.round(s) })
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.ErrorIs(t, one.round(s), safe.ErrClosed)
	other := stream(t, x)
	for range 3 {
		require.NoError(t, errors.Join(a.Launch(s), b.Launch(other)))
	}
	require.NoError(t, errors.Join(s.Synchronize(), other.Synchronize()))
	one.check(t)
	two.check(t)
	require.NoError(t, errors.Join(a.Close(), b.Close()))
}

// TestGraphMemory: each graph has memory of its own, one piece for each stream.
func TestGraphMemory(t *testing.T) {
	needsDouble(t)
	require.NoError(t, drivertest.LeftOver(simulated), "of other tests")
	x := open(t)
	s, p := stream(t, x), newOdd(t, x)
	j := newJob(t, x, p, 8)
	require.NoError(t, j.round(s))
	require.NoError(t, s.Synchronize())
	for range 3 {
		before := simulated.Live("async")
		g, err := s.Capture(func() error { return j.round(s) })
		require.NoError(t, err)
		defer g.Close()
		assert.Equal(t, before+1, simulated.Live("async"))
	}
}

// TestClosedAtOnce: work completes after Close of the plan.
func TestClosedAtOnce(t *testing.T) {
	x := open(t)
	s, p := stream(t, x), newOdd(t, x)
	j := newJob(t, x, p, 3)
	require.NoError(t, errors.Join(j.round(s), p.Close(), p.Close()))
	j.check(t)
}

// TestClosedInCall: no plan is destroyed while a call of it notes what it has set. With -race.
func TestClosedInCall(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	in, out := buffer(t, x, make([]complex64, 24)), buffer(t, x, make([]complex64, 24))
	for range 50 {
		p, err := fft.New[complex64, complex64](x, fft.Shape{N: []int{24}}, fft.Options{})
		require.NoError(t, err)
		began, ended := make(chan bool), make(chan error)
		go func() {
			err := p.Forward(s, in, out)
			for close(began); err == nil; {
				err = p.Forward(s, in, out)
			}
			ended <- err
		}()
		<-began
		require.NoError(t, p.Close())
		require.ErrorIs(t, <-ended, safe.ErrClosed)
	}
}

// TestWorkMemory: plans and streams share a few pieces of memory to work in.
func TestWorkMemory(t *testing.T) {
	needsDouble(t)
	require.NoError(t, drivertest.LeftOver(simulated), "of other tests")
	x := open(t)
	first := newOdd(t, x)
	j := newJob(t, x, first, 4)
	require.NoError(t, j.round(stream(t, x)))
	before := simulated.Live("async")
	for range 100 {
		p, s := newOdd(t, x), stream(t, x)
		require.NoError(t, (&job{p, j.signal, j.in, j.out}).round(s))
		require.NoError(t, s.Synchronize())
	}
	assert.LessOrEqual(t, simulated.Live("async")-before, 16)
}

// TestOtherContext: streams of another device are refused.
func TestOtherContext(t *testing.T) {
	needsDouble(t)
	x := open(t)
	p := newOdd(t, x)
	j := newJob(t, x, p, 5)
	y, err := safe.Open(1)
	require.NoError(t, err)
	defer y.Close()
	s := stream(t, y)
	err = p.Forward(s, j.in, j.out)
	require.ErrorIs(t, err, safe.ErrContextMismatch)
	require.ErrorContains(t, err, "fft.Plan.Forward")
}

// TestNoAllocations: calls allocate nothing in Go, with a plan or with a cache.
func TestNoAllocations(t *testing.T) {
	x := open(t)
	s, p := stream(t, x), newOdd(t, x)
	j := newJob(t, x, p, 6)
	c := cache(t, x, fft.CacheOptions{Options: fft.Options{Scale: true}})
	calls := map[string]func() error{
		"Plan.Forward": func() error { return p.Forward(s, j.in, j.out) },
		"Plan.Inverse": func() error { return p.Inverse(s, j.out, j.in) },
		"Forward":      func() error { return fft.Forward(c, s, odd, j.in, j.out) },
		"Inverse":      func() error { return fft.Inverse(c, s, odd, j.out, j.in) },
	}
	for name, f := range calls {
		require.NoError(t, f(), name) // makes a plan, perhaps, for which no stream may be held back
	}
	idle := s.Synchronize
	if !onGPU {
		idle = heldBack(t, x, s)
	}
	for name, f := range calls {
		drivertest.NoAllocations(t, name, f, idle)
	}
}

// TestManyPending: a stream takes 100 transforms whose kernels are few before a call waits.
func TestManyPending(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for _, n := range []int{8, 210} {
		p, err := fft.New[complex64, complex64](x, fft.Shape{N: []int{n}}, fft.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		b := buffer(t, x, make([]complex64, n))
		drivertest.AllPending(t, s.LaunchHostFunc, func() error { return p.Forward(s, b, b) })
	}
}

// heldBack returns a function that waits for the context's work, and then holds back what comes next on the stream late, until
// it is called again: the double of the kernel that scales is of Go, and would count if it ran meanwhile.
func heldBack(t *testing.T, x *safe.Context, late *safe.Stream) (idle func() error) {
	free := stream(t, x)
	reached, err := safe.NewPinned[uint32](x, 1)
	require.NoError(t, err)
	round := uint32(0)
	release := func() error { return errors.Join(safe.WriteValue(free, reached.At(0), round), x.Synchronize()) }
	t.Cleanup(func() { require.NoError(t, errors.Join(release(), reached.Close())) })
	return func() error {
		err := release()
		round++
		return errors.Join(err, safe.WaitValue(late, reached.At(0), round, driver.CU_STREAM_WAIT_VALUE_GEQ))
	}
}

func cache(t testing.TB, x *safe.Context, o fft.CacheOptions) *fft.Cache {
	t.Helper()
	c, err := fft.NewCache(x, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// TestCache: a cache keeps the plans that were used last, one for each shape and types.
func TestCache(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	c := cache(t, x, fft.CacheOptions{Plans: 2})
	in, out := buffer(t, x, make([]complex64, 64)), buffer(t, x, make([]complex64, 64))
	double, closed := buffer(t, x, make([]complex128, 64)), buffer(t, x, make([]complex64, 64))
	require.NoError(t, closed.Close())
	transform := func(n int) error { return fft.Forward(c, s, fft.Shape{N: []int{n}}, in, out) }
	require.NoError(t, transform(16))
	require.NoError(t, s.Synchronize())
	require.NoError(t, transform(16))
	require.NoError(t, fft.Inverse(c, s, fft.Shape{N: []int{16}, Batch: 1}, out, in), "the same shape")
	require.Equal(t, 1, c.Plans())
	require.NoError(t, fft.Forward(c, s, fft.Shape{N: []int{16}}, double, double))
	require.Equal(t, 2, c.Plans())
	require.NoError(t, transform(16))
	require.NoError(t, transform(32), "in the place of complex128")
	require.Equal(t, 2, c.Plans())
	g, err := s.Capture(func() error {
		assert.NoError(t, transform(16), "it is there")
		assert.ErrorIs(t, fft.Forward(c, s, fft.Shape{N: []int{16}}, in, closed), safe.ErrClosed, "the plan is open")
		assert.ErrorIs(t, fft.Forward(c, s, fft.Shape{N: []int{16}}, double, double), safe.ErrCapturing, "it was evicted")
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	err = transform(0)
	require.ErrorIs(t, err, safe.ErrRange)
	require.ErrorContains(t, err, "fft.Forward")
	require.NoError(t, c.Close())
	require.ErrorIs(t, transform(16), safe.ErrClosed)
	_, err = fft.NewCache(x, fft.CacheOptions{Plans: -1})
	require.ErrorIs(t, err, safe.ErrRange)
	_, err = fft.NewCache(nil, fft.CacheOptions{})
	require.ErrorIs(t, err, safe.ErrClosed)
}

// TestCacheMeanwhile: a cache that is closed, or has got the same plan, while a call makes one.
func TestCacheMeanwhile(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s, b := stream(t, x), buffer(t, x, make([]complex64, 16))
	shape := fft.Shape{N: []int{16}}
	for name, row := range map[string]struct {
		meanwhile func(c *fft.Cache) error
		want      error
		plans     int
	}{
		"closed":   {(*fft.Cache).Close, safe.ErrClosed, 0},
		"the same": {func(c *fft.Cache) error { return fft.Forward(c, s, shape, b, b) }, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			memory, modules := simulated.Live("memory"), simulated.Live("module")
			c := cache(t, x, fft.CacheOptions{Options: fft.Options{Scale: true}})
			called := false
			stop := lifetime.OnMakeRoom(func() {
				if !called {
					called = true
					assert.NoError(t, row.meanwhile(c))
				}
			})
			defer stop()
			simulated.Fail("cuModuleLoadData", 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY)) // of the kernel that scales
			defer simulated.Reset()
			assert.ErrorIs(t, fft.Forward(c, s, shape, b, b), row.want)
			assert.True(t, called)
			assert.Equal(t, row.plans, c.Plans())
			require.NoError(t, errors.Join(s.Synchronize(), c.Close()))
			assert.Eventually(t, func() bool {
				return simulated.Live("memory") <= memory && simulated.Live("module") <= modules
			}, 10*time.Second, time.Millisecond, "the plans are closed")
		})
	}
}

// TestNothingLeft: plans that are closed, that a cache has no room for, or that New could not make leave nothing. That does
// not take the garbage collector.
func TestNothingLeft(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s, b := stream(t, x), buffer(t, x, make([]complex64, 64))
	plan := func(n int) error {
		p, err := fft.New[float32, complex64](x, fft.Shape{N: []int{n}}, fft.Options{Scale: true})
		return errors.Join(err, p.Close())
	}
	for name, f := range map[string]func(t *testing.T){
		"closed":      func(t *testing.T) { require.NoError(t, plan(16)) },
		"not planned": func(t *testing.T) { require.ErrorIs(t, plan(4001), cufft.CUFFT_INTERNAL_ERROR) },
		"without scale": func(t *testing.T) {
			simulated.Fail("cuModuleGetFunction", 1, uint32(driver.CUDA_ERROR_NOT_FOUND))
			defer simulated.Reset()
			require.ErrorIs(t, plan(16), driver.CUDA_ERROR_NOT_FOUND)
		},
		"failing twice": func(t *testing.T) {
			stop := lifetime.OnMakeRoom(func() { simulated.Fail("cuMemAlloc_v2", 1, uint32(driver.CUDA_ERROR_UNKNOWN)) }) // of the next try
			defer stop()
			simulated.Fail("cuModuleGetFunction", 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
			defer simulated.Reset()
			before := simulated.Calls("cuModuleUnload")
			require.ErrorIs(t, plan(16), cufft.CUFFT_INTERNAL_ERROR)
			assert.Equal(t, before+1, simulated.Calls("cuModuleUnload"))
		},
		"of a cache": func(t *testing.T) {
			c := cache(t, x, fft.CacheOptions{Plans: 1})
			for n := range 8 {
				require.NoError(t, fft.Forward(c, s, fft.Shape{N: []int{n + 2}}, b, b))
			}
			require.NoError(t, errors.Join(s.Synchronize(), c.Close()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			memory, modules := simulated.Live("memory"), simulated.Live("module")
			f(t)
			assert.Eventually(t, func() bool {
				return simulated.Live("memory") <= memory && simulated.Live("module") <= modules
			}, 10*time.Second, time.Millisecond)
		})
	}
}

// TestMemoryOfCall: a call works in the memory that its stream has now, and in a capture in that of the graph.
func TestMemoryOfCall(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s, p := stream(t, x), newOdd(t, x)
	j := newJob(t, x, p, 9)
	o, err := library.New(x, library.Options{Create: func() error { return nil }, Destroy: func() error { return nil }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	// clear fills the stream's memory, of size bytes or more, with zeros. It tells where that is.
	clear := func(size int) (at driver.CUdeviceptr) {
		require.NoError(t, o.Enqueue(s, size, func(place library.Place) error {
			at = place.Memory
			return driver.CuMemsetD8Async(at, 0, place.Size, s.Raw())
		}))
		return at
	}
	worked := func(at driver.CUdeviceptr) bool {
		var first [1]byte
		require.NoError(t, s.Synchronize())
		require.NoError(t, x.WithCurrent(func() error { return driver.CuMemcpyDtoH(unsafe.Pointer(&first[0]), at, 1) }))
		return first[0] != 0
	}
	require.NoError(t, errors.Join(j.p.Forward(s, j.in, j.out), j.p.Forward(s, j.in, j.out)))
	for round := range 3 {
		at := clear(p.WorkBytes() << round)
		require.NoError(t, j.p.Forward(s, j.in, j.out))
		assert.True(t, worked(at), "round %d", round)
	}
	at := clear(1)
	e, err := s.CaptureExecutable(func() error { return j.p.Forward(s, j.in, j.out) })
	require.NoError(t, err)
	require.NoError(t, e.Launch(s))
	assert.False(t, worked(at), "the memory is of calls outside of captures")
	require.NoError(t, e.Close())
}

// TestCacheAtOnce: goroutines share a cache that is too small for them.
func TestCacheAtOnce(t *testing.T) {
	x := open(t)
	c := cache(t, x, fft.CacheOptions{Plans: 2})
	var all sync.WaitGroup
	failures := make(chan error, 6)
	for i := range 6 {
		s, b := stream(t, x), buffer(t, x, make([]complex64, 64))
		all.Go(func() {
			for k := range 6 {
				if err := fft.Forward(c, s, fft.Shape{N: []int{9 + (i+k)%4}}, b, b); err != nil {
					failures <- fmt.Errorf("goroutine %d: %w", i, err)
					return
				}
			}
			failures <- nil
		})
	}
	all.Wait()
	for range 6 {
		require.NoError(t, <-failures)
	}
	assert.Equal(t, 2, c.Plans())
}

// TestCacheKeepsUsed: a plan that gives way to others stays open for a call that waits for its stream.
func TestCacheKeepsUsed(t *testing.T) {
	x := open(t)
	c := cache(t, x, fft.CacheOptions{Plans: 1})
	s, b := stream(t, x), buffer(t, x, make([]complex64, 64))
	var others sync.WaitGroup
	var over atomic.Bool
	others.Go(func() { // keeps the stream
		for !over.Load() {
			assert.NoError(t, s.EnqueueRaw(func(driver.CUstream) error { time.Sleep(time.Millisecond); return nil }))
		}
	})
	other, of := stream(t, x), buffer(t, x, make([]complex64, 64))
	others.Go(func() { // takes the place of the plan
		for k := 0; !over.Load(); k++ {
			assert.NoError(t, fft.Forward(c, other, fft.Shape{N: []int{16 + k%2}}, of, of))
		}
	})
	for range 10 {
		assert.NoError(t, fft.Forward(c, s, fft.Shape{N: []int{9}}, b, b))
	}
	over.Store(true)
	others.Wait()
}

// TestCacheAfterCloseAll: a cache makes new plans for those that Context.CloseAll has closed.
func TestCacheAfterCloseAll(t *testing.T) {
	x, err := safe.NewContext(open(t).Device())
	require.NoError(t, err)
	defer x.Close()
	c := cache(t, x, fft.CacheOptions{})
	for name, transform := range map[string]func(s *safe.Stream, b *safe.Buffer[complex64]) error{
		"Forward": func(s *safe.Stream, b *safe.Buffer[complex64]) error { return fft.Forward(c, s, odd, b, b) },
		"Inverse": func(s *safe.Stream, b *safe.Buffer[complex64]) error { return fft.Inverse(c, s, odd, b, b) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				s, b := stream(t, x), buffer(t, x, make([]complex64, odd.N[0]*odd.Batch))
				require.NoError(t, errors.Join(transform(s, b), transform(s, b), s.Synchronize()))
				assert.Equal(t, 1, c.Plans())
				require.NoError(t, x.CloseAll())
				assert.ErrorIs(t, transform(s, b), safe.ErrClosed)
			}
		})
	}
}

// TestManyPlans: when the double has no more handles, it says so as cuFFT does, and those of plans that are gone come back.
func TestManyPlans(t *testing.T) {
	needsDouble(t)
	x := open(t)
	require.NoError(t, library.Load(cufft.Open, cufft.Library))
	require.NoError(t, x.WithCurrent(func() error {
		var all []cufft.CufftHandle
		for range 2 {
			var h cufft.CufftHandle
			var err error
			for err = cufft.CufftCreate(&h); err == nil; err = cufft.CufftCreate(&h) {
				all = append(all, h)
			}
			assert.ErrorIs(t, err, cufft.CUFFT_ALLOC_FAILED)
			assert.NotEmpty(t, all)
			for _, h := range all {
				assert.NoError(t, cufft.CufftDestroy(h))
			}
			all = nil
		}
		return nil
	}))
}
