//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests check releases while a stream is stuck. All but
// TestOnReleaseMayBlock need the simulated driver, which counts live objects.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReleaseBesideStuck: memory that a stuck stream uses is freed when the stream
// continues, all other memory at once.
func TestReleaseBesideStuck(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g := newGate(t, x)
	s := [4]*safe.Stream{stream(t, x), stream(t, x), stream(t, x), stream(t, x)}
	e := event(t, x)
	used := func(on, by *safe.Stream) *safe.Buffer[byte] {
		b, err := safe.NewBufferAsync[byte](on, 1<<20)
		require.NoError(t, err)
		require.NoError(t, on.Record(e))
		require.NoError(t, by.WaitEvent(e))
		require.NoError(t, b.FillAsync(by, 0))
		return b
	}
	g.shut(t, s[0])
	require.NoError(t, used(s[0], s[1]).Close(), "it does not wait")
	for range 3 {
		b := used(s[2], s[3])
		require.NoError(t, s[3].Synchronize())
		require.NoError(t, b.Close())
		assert.Eventually(t, func() bool { return simulated.Live("async") == 1 }, atOnce, time.Millisecond, "the stuck one is alive, and no other")
	}
	assert.Equal(t, 1, simulated.Live("async"))
	g.open()
	assert.Eventually(t, func() bool { return simulated.Live("async") == 0 }, atOnce, time.Millisecond)
}

// TestAllocationOnStuck: memory is not freed before the stream has got to its allocation, also where a Stream is closed
// that has allocated it and done nothing else.
func TestAllocationOnStuck(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, raw := loose(t, x)
	other, err := safe.BorrowStream(raw, x, nil)
	require.NoError(t, err)
	g := newGate(t, x)
	g.shut(t, other)
	b, err := safe.NewBufferAsync[byte](s, 1<<20)
	require.NoError(t, err)
	before := simulated.Calls("cuMemFreeAsync")
	require.NoError(t, errors.Join(s.Close(), b.Close()))
	time.Sleep(20 * time.Millisecond)
	assert.Equal(t, before, simulated.Calls("cuMemFreeAsync"))
	g.open()
	assert.Eventually(t, func() bool { return simulated.Live("async") == 0 }, atOnce, time.Millisecond)
	require.NoError(t, errors.Join(other.Synchronize(), other.Close()))
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
}

// TestMarkersEnd: the events that mark the end of the work that uses memory are given back, also if they are of no use.
func TestMarkersEnd(t *testing.T) {
	needsSimulated(t)
	for name, use := range map[string]func(t *testing.T, s, other *safe.Stream, b *safe.Buffer[byte]){
		"freed in the order of the stream": func(t *testing.T, s, _ *safe.Stream, b *safe.Buffer[byte]) {
			unlock := safe.LockStream(s)
			closed := background(func() { assert.NoError(t, b.Close()) })
			inside(t, "safe.(*streamCore).mark", "sync.(*Mutex).Lock")
			unlock()
			<-closed
		},
		"a copy that is refused": func(t *testing.T, s, other *safe.Stream, b *safe.Buffer[byte]) {
			require.NoError(t, b.FillAsync(other, 0))
			g, err := other.Capture(func() error {
				assert.ErrorIs(t, b.CopyToHost(make([]byte, 4)), safe.ErrCapturing)
				return nil
			})
			require.NoError(t, errors.Join(err, g.Close(), b.Close()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			startClean(t)
			x, err := safe.NewContext(open(t, 0).Device())
			require.NoError(t, err)
			s, err := safe.NewStream(x)
			require.NoError(t, err)
			other, err := safe.NewStream(x)
			require.NoError(t, err)
			b, err := safe.NewBufferAsync[byte](s, 4)
			require.NoError(t, errors.Join(err, s.Synchronize()))
			goOn := make(chan struct{})
			_, err = s.LaunchHostFunc(func() { <-goOn })
			require.NoError(t, err)
			use(t, s, other, b)
			close(goOn)
			require.NoError(t, errors.Join(s.Synchronize(), s.Close(), other.Close(), x.Close()))
			fewAlive(t, 1, "the context is kept")
		})
	}
}

// TestFreeOnLegacyBesideCapture: memory of the legacy stream is freed after a capture that begins on a blocking one.
func TestFreeOnLegacyBesideCapture(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	for name, allocate := range map[string]func() (*safe.Buffer[byte], error){
		"allocated there": func() (*safe.Buffer[byte], error) { return safe.NewBufferAsync[byte](legacy, 4) },
		"used there":      func() (*safe.Buffer[byte], error) { return safe.NewBuffer[byte](x, 4) },
	} {
		t.Run(name, func(t *testing.T) {
			b, err := allocate()
			require.NoError(t, errors.Join(err, b.FillAsync(legacy, 0)))
			s, err := safe.NewStream(x)
			require.NoError(t, err)
			closing(t, s)
			simulated.Delay("cuStreamBeginCapture_v2", 20*time.Millisecond)
			defer simulated.Reset()
			captured := inDriver(t, func() error {
				g, err := s.Capture(func() error { return nil })
				return errors.Join(err, g.Close())
			})
			require.NoError(t, b.Close())
			require.NoError(t, <-captured)
			assert.Eventually(t, func() bool { return simulated.Live("async") == 0 }, atOnce, time.Millisecond)
			noViolation(t)
		})
	}
}

// TestManyStreamsBesideStuck: memory can be allocated, copied and released beside a stuck stream also in a
// context with so many streams that the driver would wait before it creates another.
func TestManyStreamsBesideStuck(t *testing.T) {
	needsSimulated(t)
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		var s []*safe.Stream
		for range 34 {
			s = append(s, stream(t, x))
		}
		h, e := host[uint32](t, x, 1), event(t, x)
		unstick := stickOn(t, h, s[0])
		defer unstick()
		soon(t, background(func() {
			for range 3 {
				b, err := safe.NewBufferAsync[uint32](s[1], 4)
				assert.NoError(t, errors.Join(err, s[1].Record(e), s[2].WaitEvent(e), b.FillAsync(s[2], 0), s[2].Synchronize(), b.Close()))
			}
			assert.Eventually(t, func() bool { return simulated.Live("async") == 0 }, atOnce, time.Millisecond)
		}), "a release waits")
		soon(t, background(func() {
			b, err := safe.NewBuffer[uint32](x, 4)
			assert.NoError(t, errors.Join(err, b.CopyFromHost([]uint32{1, 2, 3, 4}), b.Close()))
		}), "an allocation or a copy waits")
		unstick()
		require.NoError(t, s[0].Synchronize())
	})
}

// TestClosedWhileStuck: a stream closed while it is stuck does not hold up the release of
// objects that are closed later.
func TestClosedWhileStuck(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g, b := newGate(t, x), buffer[int32](t, x, 4)
	stuck, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	g.shut(t, stuck)
	require.NoError(t, b.FillAsync(stuck, 0))
	require.NoError(t, stuck.Close())
	k := kernel(t, x, "spin")
	for range 300 {
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		require.NoError(t, k.Launch(s, one, safe.Val(uint64(10_000))))
		c, err := safe.NewBufferAsync[int32](s, 4)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
		// CUDA waits for all work before it creates one stream more.
		require.Eventually(t, func() bool { return simulated.Live("stream") < 30 }, hang, 100*time.Microsecond)
	}
	assert.Eventually(t, func() bool { return simulated.Live("event") < 150 }, atOnce, time.Millisecond)
	g.open()
}

// TestReapingBesideFullQueue: memory dropped while a launch waits for room on its stream
// is freed later, everything else at once.
func TestReapingBesideFullQueue(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	k, g, s := kernel(t, x, "nothing"), newGate(t, x), stream(t, x)
	capture := func() *safe.GraphExec {
		graph, err := s.Capture(func() error { return k.Launch(s, one) })
		require.NoError(t, err)
		closing(t, graph)
		e, err := graph.Instantiate()
		require.NoError(t, err)
		return e
	}
	e := capture()
	func() {
		for _, n := range []func() (*safe.Buffer[int32], error){
			func() (*safe.Buffer[int32], error) { return safe.NewBuffer[int32](x, 4) },
			func() (*safe.Buffer[int32], error) { return safe.NewBufferAsync[int32](s, 4) },
		} {
			b, err := n()
			require.NoError(t, err)
			require.NoError(t, b.FillAsync(s, 0))
		}
		require.NoError(t, e.Launch(s))
	}()
	g.shut(t, s)
	over := fillQueue(t, s, k, 1500)
	e = nil
	drop()
	began := time.Now()
	var kept []*safe.Event // until they are counted
	for range 3 {
		released := make(chan struct{})
		graph, err := safe.NewGraph(x)
		require.NoError(t, err)
		require.NoError(t, graph.OnRelease(func() { close(released) }))
		require.NoError(t, graph.Close())
		select {
		case <-released:
		case <-time.After(atOnce):
			t.Error("the graph is closed, and its function was not called")
		}
		e, err := safe.NewEvent(x)
		require.NoError(t, err)
		kept = append(kept, e)
	}
	events := simulated.Live("event")
	runtime.KeepAlive(kept)
	drop()
	assert.Eventually(t, func() bool { return simulated.Live("event") < events }, atOnce, time.Millisecond, "dropped events are destroyed")
	assert.False(t, isDone(over), "after %v", time.Since(began))
	g.open()
	<-over
}

// TestReapingBesideInstantiate: an instantiation that waits in the driver, for instance for
// running kernels while it loads others, holds up what needs its turn alone.
func TestReapingBesideInstantiate(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGraphInstantiateWithParams")
	startClean(t)
	x := open(t, 0)
	g, other := newGraph(t, x), newGraph(t, x)
	for name, c := range map[string]struct {
		kind  string
		drops func() error
	}{
		"graph": {"graph", func() error { _, err := safe.NewGraph(x); return err }},
		"exec":  {"exec", func() error { _, err := other.Instantiate(); return err }},
		"stream": {"stream", func() error {
			s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
			s.Raw() // it is not kept for later
			return err
		}},
		"capture": {"graph", func() error {
			s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
			require.NoError(t, err)
			s.Raw() // it is not kept for later
			_, err = s.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			alive := simulated.Live(c.kind)
			require.NoError(t, c.drops())
			instantiated := instantiating(t, g)
			drop()
			r, released := resource(t, x)
			require.NoError(t, r.Close())
			select {
			case <-released:
			case <-time.After(atOnce):
				t.Error("it waits, too")
			}
			simulated.Reset()
			require.NoError(t, <-instantiated)
			assert.Eventually(t, func() bool { return simulated.Live(c.kind) == alive }, atOnce, time.Millisecond, "it is destroyed later")
		})
	}
}

// instantiating begins an instantiation of g that stays in the driver until simulated.Reset.
func instantiating(t *testing.T, g *safe.Graph) (over <-chan error) {
	t.Helper()
	simulated.Delay("cuGraphInstantiateWithParams", hang)
	t.Cleanup(simulated.Reset)
	return inDriver(t, func() error {
		e, err := g.Instantiate()
		return errors.Join(err, e.Close())
	})
}

// TestClosedGraphBesideInstantiation: calls on a graph that is closed, but cannot be destroyed before
// another graph is instantiated, return at once.
func TestClosedGraphBesideInstantiation(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGraphInstantiateWithParams")
	startClean(t)
	x := open(t, 0)
	b := buffer[uint32](t, x, 4)
	g, other := newGraph(t, x), newGraph(t, x)
	n := addNode(t, g, safe.FillNode(b, 0))
	e := executable(t, g)
	instantiated := instantiating(t, other)
	closed := background(func() { assert.NoError(t, g.Close()) })
	require.Eventually(t, func() bool { return strings.Contains(g.String(), "closed") }, hang, time.Millisecond)
	for name, call := range map[string]func() error{
		"Graph.Add":     func() error { _, err := g.Add(safe.FillNode(b, 0)); return err },
		"Node.Set":      func() error { return n.Set(safe.FillNode(b, 0)) },
		"GraphExec.Set": func() error { return e.Set(n, safe.FillNode(b, 0)) },
	} {
		var err error
		select {
		case <-background(func() { err = call() }):
			assert.ErrorIs(t, err, safe.ErrClosed, name)
		case <-time.After(atOnce):
			t.Error(name, "waits")
		}
	}
	simulated.Reset()
	require.NoError(t, <-instantiated)
	<-closed
}

// TestCloseExecBesideGraph: Close of an executable waits only a moment for a call on its graph.
func TestCloseExecBesideGraph(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g := newGraph(t, x)
	addNode(t, g, safe.EmptyNode())
	e, err := g.Instantiate()
	require.NoError(t, err)
	defer simulated.Reset()
	simulated.Delay("cuGraphGetNodes", hang)
	listed := inDriver(t, func() error { _, err := g.Nodes(); return err })
	require.NoError(t, e.Close())
	assert.Empty(t, listed, "it has not waited")
	simulated.Reset() // ends the delay
	require.NoError(t, <-listed)
	settle(t)
	assert.Zero(t, simulated.Live("exec"))
}

// TestBesideDestruction: an object whose destruction waits for an instantiation makes nothing else
// wait.
func TestBesideDestruction(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGraphInstantiateWithParams")
	for _, c := range []struct {
		name string
		make func(t *testing.T, x *safe.Context) (close, beside func() error)
	}{
		{"a copy from memory that a closed stream has used", func(t *testing.T, x *safe.Context) (close, beside func() error) {
			s, b := stream(t, x), buffer[uint32](t, x, 4)
			require.NotZero(t, s.Raw()) // it is not kept for later
			require.NoError(t, errors.Join(b.FillAsync(s, 0), s.Synchronize()))
			return s.Close, func() error { return b.CopyToHost(make([]uint32, 4)) }
		}},
		{"a change of a graph with a closed executable", func(t *testing.T, x *safe.Context) (close, beside func() error) {
			g := newGraph(t, x)
			return executable(t, g).Close, func() error { _, err := g.Add(safe.EmptyNode()); return err }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			startClean(t)
			x := open(t, 0)
			g := newGraph(t, x)
			close, beside := c.make(t, x)
			instantiated, closed, over := instantiating(t, g), make(chan error, 1), make(chan error, 1)
			go func() { closed <- close() }()
			time.Sleep(20 * time.Millisecond)
			go func() { over <- beside() }()
			select {
			case err := <-over:
				over <- err
			case <-time.After(atOnce):
				t.Error("it waits, too")
			}
			simulated.Reset()
			require.NoError(t, errors.Join(<-instantiated, <-closed, <-over))
		})
	}
}

// TestManyCopiesBesideInstantiate: of many copies at once, more than the context keeps streams for,
// none waits for an instantiation, which may in turn wait for what the program does after a copy.
func TestManyCopiesBesideInstantiate(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGraphInstantiateWithParams")
	startClean(t)
	x := open(t, 0)
	g, b := newGraph(t, x), buffer[uint32](t, x, 4)
	instantiated := instantiating(t, g)
	simulated.Hold(true)
	var all sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		all.Go(func() { assert.NoError(t, b.CopyToHost(make([]uint32, 4))) })
	}
	time.Sleep(500 * time.Millisecond) // until all are in the driver
	simulated.Hold(false)
	copied := make(chan struct{})
	go func() { defer close(copied); all.Wait() }()
	soon(t, copied, "some wait")
	assert.Empty(t, instantiated)
	simulated.Reset()
	<-copied
	require.NoError(t, <-instantiated)
}

// TestFreeBesideStuck: the driver waits for all work of the context when it frees memory.
// That must not hold up anything else.
func TestFreeBesideStuck(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	g.shut(t, s)
	var kept []*safe.Event // until they are counted
	for range 3 {
		_, err := safe.NewBuffer[int32](x, 4)
		require.NoError(t, err)
		e, err := safe.NewEvent(x)
		require.NoError(t, err)
		kept = append(kept, e)
	}
	events := simulated.Live("event")
	runtime.KeepAlive(kept)
	for end := time.Now().Add(atOnce); simulated.Live("event") > events-3 && time.Now().Before(end); {
		drop()
	}
	assert.LessOrEqual(t, simulated.Live("event"), events-3)
	g.open()
}

// TestOnReleaseMayBlock: a release function of a graph may wait for another release.
func TestOnReleaseMayBlock(t *testing.T) {
	startClean(t) // the destruction of what tests before have closed may wait for events, too
	x := open(t, 0)
	g := newGate(t, x)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	g.shut(t, s)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() { assert.NoError(t, s.SynchronizeBlocking()) }) // retains s
	inside(t, "driver.CuEventSynchronize")
	blocked, raw := make(chan struct{}), make(chan driver.CUstream, 1)
	releasing(t, x, func() {
		raw <- s.Release()
		<-blocked
	})
	other := make(chan struct{})
	releasing(t, x, func() { close(other) })
	select {
	case <-other:
	case <-time.After(atOnce):
		t.Error("one function holds up those of other graphs")
	}
	g.open()
	select {
	case raw := <-raw:
		require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
	case <-time.After(atOnce):
		t.Error("Release waits for the goroutine that it is on")
	}
	close(blocked)
}

// releasing calls f as the release function of a graph.
func releasing(t *testing.T, x *safe.Context, f func()) {
	t.Helper()
	g, err := safe.NewGraph(x)
	require.NoError(t, err)
	require.NoError(t, g.OnRelease(f))
	require.NoError(t, g.Close())
}

// TestPeersAreForgotten: contexts that come and go leave nothing in the context that has
// access to their memory.
func TestPeersAreForgotten(t *testing.T) {
	needsSimulated(t)
	startClean(t) // what tests before have left keeps contexts in use
	x := open(t, 0)
	for range 5 {
		y, err := safe.Open(1)
		require.NoError(t, err)
		require.NoError(t, x.EnablePeerAccess(y))
		assert.Equal(t, 1, safe.KnownPeers(x))
		require.NoError(t, y.Close())
		assert.Zero(t, safe.KnownPeers(x))
	}
}

// TestUnregisterFails: Go memory stays pinned if the driver fails to unregister it.
func TestUnregisterFails(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	for name, code := range map[string]driver.CUresult{"unregistered": 0, "kept": driver.CUDA_ERROR_UNKNOWN} {
		t.Run(name, func(t *testing.T) {
			memory, h := func() (weak.Pointer[[4096]byte], *safe.Pinned[byte]) {
				m := new([4096]byte)
				h, err := safe.RegisterPinned(x, m[:])
				require.NoError(t, err)
				return weak.Make(m), h
			}()
			if code != 0 {
				simulated.Fail("cuMemHostUnregister", 1, uint32(code))
			}
			err := h.Close()
			if code == 0 {
				assert.NoError(t, err)
				assert.Eventually(t, func() bool { drop(); return memory.Value() == nil }, atOnce, time.Millisecond)
				return
			}
			drop()
			assert.ErrorIs(t, err, code)
			m := memory.Value()
			require.NotNil(t, m, "the driver has it registered")
			require.NoError(t, x.WithCurrent(func() error { return driver.CuMemHostUnregister(unsafe.Pointer(m)) }))
			runtime.KeepAlive(m)
		})
	}
}
