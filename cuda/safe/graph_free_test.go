//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// The release of memory that graphs allocate. The tests run on the simulated driver and on
// a GPU.

package safe_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAllocLeft: memory that the last launch has left allocated is freed once the graph and
// its executables are closed, after the work that uses it.
func TestAllocLeft(t *testing.T) {
	watch(t)
	x := open(t, 0)
	n, times, allFreed := 100, 1, unused(t, x)
	if onGPU { // which counts freed memory as used: a large leak shows in the memory left
		n, times, allFreed = 16<<20, 4, func() {}
		before, _, err := x.MemoryInfo()
		require.NoError(t, err)
		defer func() {
			left, _, err := x.MemoryInfo()
			require.NoError(t, err)
			assert.Less(t, before-min(before, left), uint64(4*4*n), "bytes, of 8 times as many")
		}()
	}
	gate, s, side := newGate(t, x), stream(t, x), stream(t, x)
	for i := range 2 * times {
		early := i%2 == 1
		g, err := safe.NewGraph(x)
		require.NoError(t, err)
		b, _, err := safe.AddAlloc[uint32](g, n)
		require.NoError(t, err)
		e, err := g.Instantiate()
		require.NoError(t, err)
		launch(t, e, s)
		gate.flag.Data()[0] = 0
		gate.shut(t, side)
		require.NoError(t, b.FillAsync(side, 7))
		if early {
			require.NoError(t, b.Close())
		}
		require.NoError(t, g.Close())
		require.NoError(t, e.Close())
		time.Sleep(20 * time.Millisecond)
		gate.open()
		require.NoError(t, side.Synchronize())
		allFreed()
	}
	noViolation(t)
}

// TestAllocLeftBesidePool: the release of such memory, in which the driver waits, is not beside the
// destruction of a pool.
func TestAllocLeftBesidePool(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	g, b := allocating[uint32](t, s, 100)
	e, err := g.Instantiate()
	require.NoError(t, err)
	require.NoError(t, errors.Join(e.Launch(s), s.Synchronize()))
	before := simulated.Calls("cuMemFree_v2")
	closed := make(chan error, 1)
	safe.WithoutWaits(func() {
		go func() { closed <- errors.Join(b.Close(), e.Close(), g.Close()) }()
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, before, simulated.Calls("cuMemFree_v2"))
	})
	require.NoError(t, <-closed)
	assert.Eventually(t, func() bool { return simulated.Calls("cuMemFree_v2") == before+1 }, atOnce, time.Millisecond)
}

// TestAllocFreedAside: FreeAsync on another stream is ordered after the launch that allocates
// the memory, also if no node uses it.
func TestAllocFreedAside(t *testing.T) {
	watch(t)
	x := open(t, 0)
	allFreed := unused(t, x)
	gate, s, side := newGate(t, x), stream(t, x), stream(t, x)
	g := newGraph(t, x)
	b, _, err := safe.AddAlloc[uint32](g, 100)
	require.NoError(t, err)
	e := executable(t, g)
	gate.shut(t, s)
	require.NoError(t, e.Launch(s))
	require.NoError(t, b.FreeAsync(side))
	time.Sleep(20 * time.Millisecond)
	done, err := side.Query()
	require.NoError(t, err)
	assert.False(t, done, "it frees memory that is not allocated yet")
	gate.open()
	require.NoError(t, side.Synchronize())
	require.NoError(t, s.Synchronize())
	allFreed()
	noViolation(t)
}

// TestFreeNodeNeverLaunched: a node that frees memory counts when it is launched, and
// another one may once its graph is closed.
func TestFreeNodeNeverLaunched(t *testing.T) {
	watch(t)
	x := open(t, 0)
	allFreed := unused(t, x)
	s := stream(t, x)
	g, b := allocating[uint32](t, s, 100)
	e, err := g.Instantiate()
	require.NoError(t, err)
	freeing := func() *safe.Graph {
		g, err := safe.NewGraph(x)
		require.NoError(t, err)
		addNode(t, g, safe.FreeNode(b))
		return g
	}
	launch(t, e, s)
	require.NoError(t, freeing().Close())

	frees, err := s.Capture(func() error { return b.FreeAsync(s) })
	require.NoError(t, err, "the other graph is closed")
	f, err := frees.Instantiate()
	require.NoError(t, err)
	require.NoError(t, b.Fill(1), "nothing has freed it")
	launch(t, f, s)
	assert.ErrorIs(t, b.Fill(1), safe.ErrNotAllocated)
	allFreed()
	require.NoError(t, f.Close())
	require.NoError(t, frees.Close())

	launch(t, e, s)
	require.NoError(t, b.Fill(1))
	unlaunched := freeing()
	require.NoError(t, g.Close())
	require.NoError(t, e.Close())
	require.NoError(t, unlaunched.Close())
	allFreed()
	noViolation(t)
}

// TestCaptureFrees: a capture frees memory that other streams have used before, and memory whose buffer and graph are
// closed afterwards.
func TestCaptureFrees(t *testing.T) {
	x := open(t, 0)
	allFreed := unused(t, x)
	s, other := stream(t, x), stream(t, x)
	g, b := allocating[uint32](t, s, 100)
	e, err := g.Instantiate()
	require.NoError(t, err)
	launch(t, e, s)
	require.NoError(t, errors.Join(b.FillAsync(other, 1), other.Synchronize()))
	free, err := s.Capture(func() error { return b.FreeAsync(s) })
	require.NoError(t, err)
	closing(t, free)
	f := executable(t, free)
	require.NoError(t, errors.Join(b.Close(), e.Close(), g.Close()))
	settle(t)
	launch(t, f, s)
	allFreed()
	noViolation(t)
}

// TestCaptureAllocClosedEarly: memory whose buffer is closed before the launch that allocates it is freed with the graph.
func TestCaptureAllocClosedEarly(t *testing.T) {
	x := open(t, 0)
	allFreed := unused(t, x)
	s := stream(t, x)
	g, b := allocating[uint32](t, s, 100)
	e, err := g.Instantiate()
	require.NoError(t, err)
	require.NoError(t, b.Close())
	settle(t)
	launch(t, e, s)
	require.NoError(t, errors.Join(e.Close(), g.Close()))
	allFreed()
}

// TestFreeNodeTwice: a second node of a graph that frees the memory is refused, and the first one counts.
func TestFreeNodeTwice(t *testing.T) {
	x := open(t, 0)
	s, frees := stream(t, x), newGraph(t, x)
	g, b := allocating[uint32](t, s, 100)
	closing(t, g)
	addNode(t, frees, safe.FreeNode(b))
	_, err := frees.Add(safe.FreeNode(b))
	require.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
	_, err = s.Capture(func() error { return b.FreeAsync(s) })
	assert.ErrorIs(t, err, safe.ErrClosed)
	assert.ErrorContains(t, err, "a node of a graph frees the memory already")
}

// TestFreeAsyncInRawCapture: FreeAsync leaves a capture of other code alone.
func TestFreeAsyncInRawCapture(t *testing.T) {
	x := open(t, 0)
	gate, s, side, y := newGate(t, x), stream(t, x), stream(t, x), buffer[uint32](t, x, 4)
	g, b := allocating[uint32](t, s, 100)
	closing(t, g)
	launch(t, executable(t, g), s)
	gate.shut(t, s)
	require.NoError(t, b.FillAsync(s, 1)) // for which the release waits
	rawCapture(t, x, side, driver.CU_STREAM_CAPTURE_MODE_RELAXED, func() {
		require.NoError(t, y.FillAsync(side, 1))
		assert.ErrorIs(t, b.FreeAsync(side), safe.ErrCapturing)
	})
	gate.open()
	require.NoError(t, errors.Join(b.FillAsync(s, 2), b.FreeAsync(side), side.Synchronize()), "it is still allocated")
}

// TestSimFreeAsyncFails: memory that CUDA does not free can be used, and freed later.
func TestSimFreeAsyncFails(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	g, b := allocating[uint32](t, s, 100)
	e, err := g.Instantiate()
	require.NoError(t, err)
	launch(t, e, s)
	simulated.Fail("cuMemFreeAsync", 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
	assert.ErrorIs(t, b.FreeAsync(s), driver.CUDA_ERROR_OUT_OF_MEMORY)
	simulated.Reset()
	require.NoError(t, errors.Join(b.FillAsync(s, 1), b.FreeAsync(s), s.Synchronize()))
	assert.ErrorIs(t, b.FillAsync(s, 1), safe.ErrNotAllocated)
	require.NoError(t, errors.Join(e.Close(), g.Close(), b.Close(), s.Close(), x.Close()))
	nothingAlive(t, "the context, as nothing uses it")
}

// TestRecaptureFrees: a recapture frees the memory of another graph again.
func TestRecaptureFrees(t *testing.T) {
	needs(t, "cuStreamBeginRecaptureToGraph")
	x := open(t, 0)
	s := stream(t, x)
	g, b := allocating[uint32](t, s, 100)
	closing(t, g)
	free := func() error { return b.FreeAsync(s) }
	frees, err := s.Capture(free)
	require.NoError(t, err)
	closing(t, frees)
	require.NoError(t, s.Recapture(frees, safe.CaptureOptions{}, free))
	launch(t, executable(t, g), s)
	launch(t, executable(t, frees), s)
	assert.ErrorIs(t, b.Fill(1), safe.ErrNotAllocated)
}

// TestRecaptureFreesOfNode: a recapture frees the memory that a node added by hand frees, or one
// of an earlier capture into the graph.
func TestRecaptureFreesOfNode(t *testing.T) {
	needs(t, "cuStreamBeginRecaptureToGraph")
	for name, add := range map[string]func(s *safe.Stream, g *safe.Graph, b *safe.Buffer[uint32]) error{
		"FreeNode": func(_ *safe.Stream, g *safe.Graph, b *safe.Buffer[uint32]) error {
			_, err := g.Add(safe.FreeNode(b))
			return err
		},
		"earlier capture": func(s *safe.Stream, g *safe.Graph, b *safe.Buffer[uint32]) error {
			err := s.CaptureTo(g, safe.CaptureToOptions{}, func() error { return b.FreeAsync(s) })
			e, failed := g.Instantiate() // shares what was captured so far
			nothing := s.CaptureTo(g, safe.CaptureToOptions{}, func() error { return nil })
			return errors.Join(err, failed, nothing, e.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := open(t, 0)
			s, frees := stream(t, x), newGraph(t, x)
			g, b := allocating[uint32](t, s, 100)
			closing(t, g)
			require.NoError(t, add(s, frees, b))
			require.NoError(t, s.Recapture(frees, safe.CaptureOptions{}, func() error { return b.FreeAsync(s) }))
			launch(t, executable(t, g), s)
			launch(t, executable(t, frees), s)
			assert.ErrorIs(t, b.Fill(1), safe.ErrNotAllocated)
		})
	}
}

// TestRecaptureAllocs: the buffer of a recapture has the memory of the one before, which is not
// freed with that.
func TestRecaptureAllocs(t *testing.T) {
	needs(t, "cuStreamBeginRecaptureToGraph")
	watch(t)
	x := open(t, 0)
	allFreed := unused(t, x)
	s := stream(t, x)
	g, _ := allocating[uint32](t, s, 100)
	e, err := g.Instantiate()
	require.NoError(t, err)
	launch(t, e, s)
	var b *safe.Buffer[uint32]
	require.NoError(t, s.Recapture(g, safe.CaptureOptions{}, func() (err error) {
		b, err = safe.NewBufferAsync[uint32](s, 100)
		return err
	}))
	require.NoError(t, e.Update(g))
	launch(t, e, s)
	settle(t)
	require.NoError(t, b.Fill(1))
	require.NoError(t, errors.Join(e.Close(), g.Close()))
	allFreed()
	noViolation(t)
}

// TestLaunchAfterFree: a launch allocates memory again once FreeAsync on another stream has freed
// what the one before allocated.
func TestLaunchAfterFree(t *testing.T) {
	watch(t)
	x := open(t, 0)
	gate, s, side := newGate(t, x), stream(t, x), stream(t, x)
	g, b := allocating[uint32](t, s, 100)
	closing(t, g)
	e := executable(t, g)
	launch(t, e, s)
	gate.shut(t, side)
	require.NoError(t, b.FreeAsync(side))
	require.NoError(t, e.Launch(s))
	time.Sleep(20 * time.Millisecond)
	gate.open()
	require.NoError(t, errors.Join(side.Synchronize(), s.Synchronize()))
	assert.NoError(t, b.Fill(1), "the launch has allocated it")
	noViolation(t)
}

// TestUseAfterFree: a stream that has used memory of a graph before is refused it once it is freed.
func TestUseAfterFree(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	g, b := allocating[uint32](t, s, 100)
	closing(t, g)
	launch(t, executable(t, g), s)
	use := func() error { return kernel(t, x, "nothing").Launch(s, using(b.Arg())) }
	require.NoError(t, errors.Join(b.FillAsync(s, 1), use(), b.FreeAsync(s)))
	assert.ErrorIs(t, b.FillAsync(s, 1), safe.ErrNotAllocated)
	assert.ErrorIs(t, use(), safe.ErrNotAllocated)
	require.NoError(t, s.Synchronize())
}

// TestFreeAsyncBesideLaunch: memory that a launch has allocated while FreeAsync orders the release
// is not freed before the end of that launch.
func TestFreeAsyncBesideLaunch(t *testing.T) {
	needsSimulated(t)
	watch(t)
	x := open(t, 0)
	gate, s, other, frees := newGate(t, x), stream(t, x), stream(t, x), stream(t, x)
	var waits atomic.Bool
	began, goOn := make(chan struct{}), make(chan struct{})
	var b *safe.Buffer[uint32]
	g, err := s.Capture(func() (err error) {
		if b, err = safe.NewBufferAsync[uint32](s, 100); err != nil {
			return err
		}
		_, err = s.LaunchHostFunc(func() {
			if waits.Load() {
				close(began)
				<-goOn
			}
		})
		return errors.Join(err, b.FillAsync(s, 1))
	})
	require.NoError(t, err)
	closing(t, g)
	e := executable(t, g)
	launch(t, e, s)
	waits.Store(true)
	gate.shut(t, s)
	require.NoError(t, b.FillAsync(s, 0))
	unlock := safe.LockStream(s) // FreeAsync wants to mark its work
	freed := make(chan error, 1)
	go func() { freed <- b.FreeAsync(frees) }()
	inside(t, "tryFreeAfterUses")
	require.NoError(t, e.Launch(other))
	<-began
	unlock()
	require.NoError(t, <-freed)
	gate.open()
	require.NoError(t, s.Synchronize())
	time.Sleep(20 * time.Millisecond)
	close(goOn)
	require.NoError(t, errors.Join(other.Synchronize(), frees.Synchronize()))
	assert.ErrorIs(t, b.Fill(2), safe.ErrNotAllocated)
	noViolation(t)
}

// TestFreeAsyncTwiceBesideLaunch: of two releases, between whose beginnings a launch allocates the
// memory anew, one frees it.
func TestFreeAsyncTwiceBesideLaunch(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, user := stream(t, x), stream(t, x)
	g := newGraph(t, x)
	b, _, err := safe.AddAlloc[uint32](g, 100)
	require.NoError(t, err)
	e, err := g.InstantiateWith(safe.InstantiateOptions{AutoFreeOnLaunch: true})
	require.NoError(t, err)
	closing(t, e)
	launch(t, e, s)
	require.NoError(t, b.FillAsync(user, 7))
	unlock := safe.LockStream(user)
	free := func() { assert.NoError(t, b.FreeAsync(s)) }
	begins := func(n int) {
		require.Eventually(t, func() bool { return onStacks("tryFreeAfterUses") == n }, hang, time.Millisecond)
	}
	first := background(free)
	begins(1)
	require.NoError(t, e.Launch(s))
	second := background(free)
	begins(2)
	unlock()
	<-first
	<-second
	require.NoError(t, s.Synchronize())
	assert.ErrorIs(t, b.FillAsync(user, 7), safe.ErrNotAllocated)
	noViolation(t)
}

// TestFreeNodeInBatch: a launch that follows a free node of a submission still in progress allocates the
// memory anew.
func TestFreeNodeInBatch(t *testing.T) {
	needsSimulated(t)
	watch(t)
	x := open(t, 0)
	allFreed := unused(t, x)
	s, side := stream(t, x), stream(t, x)
	g, frees := newGraph(t, x), newGraph(t, x)
	b, _, err := safe.AddAlloc[uint32](g, 100)
	require.NoError(t, err)
	_, err = frees.Add(safe.FreeNode(b))
	require.NoError(t, err)
	e, f := executable(t, g), executable(t, frees)
	require.NoError(t, errors.Join(e.Launch(s), s.Synchronize()))
	batch, freed := newBatch(t, x), make(chan struct{})
	require.NoError(t, errors.Join(
		batch.LaunchGraph(f),
		batch.LaunchHostFunc(func() { close(freed) }),
		safe.BatchFill[uint32](batch, buffer[uint32](t, x, 1), 1),
	))
	simulated.Delay("cuMemsetD32Async", 100*time.Millisecond)
	submitted := background(func() { assert.NoError(t, batch.Submit(side)) })
	<-freed
	require.NoError(t, e.Launch(s))
	<-submitted
	simulated.Delay("cuMemsetD32Async", 0)
	assert.NoError(t, errors.Join(b.FillAsync(s, 1), b.FreeAsync(s), s.Synchronize(), side.Synchronize()))
	allFreed()
	noViolation(t)
}
