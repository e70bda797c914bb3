//go:build cgo && linux && (amd64 || arm64)

package safe_test

import (
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// symbol returns the address of a function of the driver.
func symbol(t testing.TB, name string) uintptr {
	t.Helper()
	address := safe.Symbol(driver.Library, name)()
	require.NotZero(t, address, name)
	return address
}

// sets returns a call that sets the values of b.
func sets(t testing.TB, b *safe.Buffer[uint32], v uint32, s driver.CUstream) safe.RawCall {
	return safe.RawCall{Address: symbol(t, "cuMemsetD32Async"), Args: [8]uint64{uint64(b.Raw()), uint64(v), uint64(b.Len()), uint64(s)}}
}

func numbersOf(t testing.TB, b *safe.Buffer[uint32]) []uint32 {
	t.Helper()
	got := make([]uint32, b.Len())
	require.NoError(t, b.CopyToHost(got))
	return got
}

// TestEnqueueCalls: calls are made in order with the context current, in the order of the stream.
func TestEnqueueCalls(t *testing.T) {
	x := open(t, 0)
	for name, s := range rawStreams(t, x) {
		t.Run(name, func(t *testing.T) {
			watch(t)
			busy, b, c := newGate(t, x), buffer[uint32](t, x, 2), buffer[uint32](t, x, 2)
			require.NoError(t, errors.Join(b.Fill(0), c.Fill(0)))
			busy.shut(t, s)
			made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg(), c.Arg()}}, func(raw driver.CUstream) []safe.RawCall {
				return []safe.RawCall{
					sets(t, b, 1, raw), sets(t, c, 2, raw),
					{Address: symbol(t, "cuMemcpyDtoDAsync_v2"), Args: [8]uint64{uint64(b.Raw()), uint64(c.Raw()), 4, uint64(raw)}},
				}
			})
			require.NoError(t, err)
			assert.True(t, made)
			time.AfterFunc(20*time.Millisecond, busy.open)
			assert.Equal(t, []uint32{2, 1}, numbersOf(t, b), "the copy waits for the work")
			assert.Zero(t, current(t), "the thread is as before")
		})
	}
}

// TestEnqueueCallsPlaces: calls count as much of the queue as they say.
func TestEnqueueCallsPlaces(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, b := stream(t, x), buffer[uint32](t, x, 1)
	stick(t, x, s)
	for places, want := range map[int]int{0: 30, 1: 1, 1000: 240} {
		before := safe.Pending(s)
		made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Places: places, Uses: []safe.Arg{b.Arg()}}, func(raw driver.CUstream) []safe.RawCall {
			return []safe.RawCall{sets(t, b, 1, raw)}
		})
		require.NoError(t, err)
		assert.True(t, made)
		assert.Equal(t, want, safe.Pending(s)-before, "Places is %d", places)
	}
	made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Places: -1}, func(driver.CUstream) []safe.RawCall { return nil })
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.False(t, made)
}

// TestEnqueueCallsContext: a function may leave another context current.
func TestEnqueueCallsContext(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	other, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	closing(t, other)
	for name, before := range map[string]driver.CUcontext{"none": 0, "the stream's": x.Raw()} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			require.NoError(t, driver.CuCtxSetCurrent(before))
			defer func() { assert.NoError(t, driver.CuCtxSetCurrent(0)) }()
			made, err := safe.EnqueueCalls(safe.RawWork{Stream: s}, func(driver.CUstream) []safe.RawCall {
				return []safe.RawCall{{Address: symbol(t, "cuCtxSetCurrent"), Args: [8]uint64{uint64(other.Raw())}}}
			})
			require.NoError(t, err)
			assert.True(t, made)
			assert.Equal(t, before, current(t))
		})
	}
}

// TestEnqueueCallsFails: a call that fails is the last one, but for those that are made always.
func TestEnqueueCallsFails(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[uint32](t, x, 1)
	require.NoError(t, b.Fill(0))
	var calls []safe.RawCall
	made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg()}}, func(raw driver.CUstream) []safe.RawCall {
		bad, last := sets(t, b, 1, raw), sets(t, b, 3, raw)
		bad.Args[2] = math.MaxUint32
		last.Always = true
		calls = []safe.RawCall{sets(t, b, 1, raw), bad, sets(t, b, 2, raw), last}
		return calls
	})
	require.NoError(t, err)
	assert.True(t, made)
	assert.Equal(t, []uint32{3}, numbersOf(t, b))
	for i, want := range []bool{true, true, false, true} {
		assert.Equal(t, want, calls[i].Made, "call %d", i)
		assert.Equal(t, i == 1, calls[i].Result != 0, "call %d", i)
	}
}

// TestEnqueueCallsFloats: floating-point arguments have places of their own.
func TestEnqueueCallsFloats(t *testing.T) {
	double, single := rt.Symbol("libm.so.6", "ilogb"), rt.Symbol("libm.so.6", "ilogbf")
	if double == 0 || single == 0 {
		t.Skip("the mathematical library is not loaded")
	}
	calls := []safe.RawCall{
		{Address: double, Floats: [2]uint64{math.Float64bits(1 << 10)}},
		{Address: single, Floats: [2]uint64{uint64(math.Float32bits(1 << 5))}, Always: true},
	}
	made, err := safe.EnqueueCalls(safe.RawWork{Stream: stream(t, open(t, 0))}, func(driver.CUstream) []safe.RawCall { return calls })
	require.NoError(t, err)
	assert.True(t, made)
	assert.Equal(t, int32(10), calls[0].Result)
	assert.Equal(t, int32(5), calls[1].Result)
}

// TestEnqueueCallsKeepsMemory: memory that is closed after the call is freed after the work.
func TestEnqueueCallsKeepsMemory(t *testing.T) {
	watch(t)
	x := open(t, 0)
	busy, s := newGate(t, x), stream(t, x)
	b, err := safe.NewBuffer[uint32](x, 50)
	require.NoError(t, err)
	busy.shut(t, s)
	made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg()}}, func(raw driver.CUstream) []safe.RawCall {
		return []safe.RawCall{sets(t, b, 3, raw)}
	})
	require.NoError(t, err)
	require.True(t, made)
	closed := make(chan error)
	go func() { closed <- b.Close() }()
	time.Sleep(20 * time.Millisecond)
	other := buffer[uint32](t, x, 50) // which would get the same address
	require.NoError(t, other.Fill(0))
	busy.open()
	require.NoError(t, errors.Join(<-closed, s.Synchronize()))
	assert.Equal(t, make([]uint32, 50), numbersOf(t, other), "the work wrote to memory that was freed")
}

// TestEnqueueCallsNotMade: where EnqueueRaw has to enqueue the work, nothing was called; also in a capture that other code
// has begun.
func TestEnqueueCallsNotMade(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[uint32](t, x, 1)
	require.NoError(t, b.Fill(7))
	calls := func(raw driver.CUstream) []safe.RawCall { return []safe.RawCall{sets(t, b, 1, raw)} }
	gone, err := safe.NewBuffer[uint32](x, 1)
	require.NoError(t, err)
	use := gone.Arg()
	require.NoError(t, gone.Close())
	for name, c := range map[string]struct {
		uses    []safe.Arg
		prepare func(driver.CUstream) []safe.RawCall
	}{
		"no calls":     {nil, func(driver.CUstream) []safe.RawCall { return nil }},
		"no address":   {nil, func(raw driver.CUstream) []safe.RawCall { return append(calls(raw), safe.RawCall{}) }},
		"closed":       {[]safe.Arg{use}, calls},
		"never opened": {[]safe.Arg{new(safe.Buffer[uint32]).Arg()}, calls},
		"a value":      {[]safe.Arg{safe.Val(1)}, calls},
	} {
		t.Run(name, func(t *testing.T) {
			before := safe.Pending(s)
			made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Uses: c.uses}, c.prepare)
			require.NoError(t, err)
			assert.False(t, made)
			assert.Equal(t, before, safe.Pending(s))
		})
	}
	notMade := func() {
		made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg()}}, calls)
		assert.NoError(t, err)
		assert.False(t, made)
	}
	g, err := s.Capture(func() error { notMade(); return nil })
	require.NoError(t, err)
	nodes, err := g.Nodes()
	require.NoError(t, errors.Join(err, g.Close()))
	assert.Empty(t, nodes)
	require.NoError(t, x.WithCurrent(func() error {
		return driver.CuStreamBeginCapture(s.Raw(), driver.CU_STREAM_CAPTURE_MODE_RELAXED)
	}))
	notMade()
	var raw driver.CUgraph
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamEndCapture(s.Raw(), &raw) }))
	require.NoError(t, driver.CuGraphDestroy(raw))
	assert.Equal(t, []uint32{7}, numbersOf(t, b))
}

// TestEnqueueCallsRefused: errors by which nothing was called.
func TestEnqueueCallsRefused(t *testing.T) {
	x := open(t, 0)
	s, other, b := stream(t, x), stream(t, x), buffer[uint32](t, x, 1)
	calls := func(raw driver.CUstream) []safe.RawCall { return []safe.RawCall{sets(t, b, 1, raw)} }
	_, err := safe.EnqueueCalls(safe.RawWork{Stream: s}, nil)
	require.ErrorIs(t, err, safe.ErrInvalidArgument)
	closed, err := safe.NewStream(x)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for name, s := range map[string]*safe.Stream{"closed": closed, "nil": nil, "zero": {}} {
		_, err := safe.EnqueueCalls(safe.RawWork{Stream: s}, calls)
		assert.ErrorIs(t, err, safe.ErrClosed, name)
	}
	inCallback := func() {
		for _, s := range []*safe.Stream{s, other} {
			made, err := safe.EnqueueCalls(safe.RawWork{Stream: s}, func(driver.CUstream) []safe.RawCall {
				t.Error("prepare may wait for locks") // that goroutines hold which wait for this one
				return nil
			})
			assert.ErrorIs(t, err, safe.ErrInCallback)
			assert.False(t, made)
		}
	}
	_, err = s.LaunchHostFunc(inCallback)
	require.NoError(t, errors.Join(err, s.Synchronize()))
	require.NoError(t, s.EnqueueRaw(func(driver.CUstream) error { inCallback(); return nil }))
}

// TestEnqueueCallsUnasked: where nobody knows whether the stream is capturing, EnqueueRaw has to enqueue the work, or to fail.
func TestEnqueueCallsUnasked(t *testing.T) {
	needsSimulated(t)
	startClean(t) // the destruction of what tests before have closed makes such calls, too
	s := stream(t, open(t, 0))
	defer simulated.Reset()
	simulated.Fail("cuStreamIsCapturing", 1, uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
	made, err := safe.EnqueueCalls(safe.RawWork{Stream: s}, func(raw driver.CUstream) []safe.RawCall {
		return []safe.RawCall{{Address: symbol(t, "cuStreamQuery"), Args: [8]uint64{uint64(raw)}}}
	})
	require.NoError(t, err)
	assert.False(t, made)
}

// TestEnqueueCallsReveals: a stream whose handle the program has got is destroyed, and not used again.
func TestEnqueueCallsReveals(t *testing.T) {
	needsSimulated(t)
	startClean(t) // the destruction of what tests before have closed makes such calls, too
	x := open(t, 0)
	for name, prepare := range map[string]func(driver.CUstream) []safe.RawCall{
		"no calls": func(driver.CUstream) []safe.RawCall { return nil },
		"a panic":  func(driver.CUstream) []safe.RawCall { panic("on purpose") },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := safe.NewStream(x)
			require.NoError(t, err)
			func() {
				defer func() { _ = recover() }()
				_, _ = safe.EnqueueCalls(safe.RawWork{Stream: s}, prepare)
			}()
			before := simulated.Calls("cuStreamDestroy_v2")
			require.NoError(t, s.Close())
			assert.Eventually(t, func() bool { return simulated.Calls("cuStreamDestroy_v2") > before }, atOnce, time.Millisecond)
		})
	}
}

// TestEnqueueCallsEnds: a function that ends its goroutine or panics leaves nothing locked, and takes no room.
func TestEnqueueCallsEnds(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, b := stream(t, x), buffer[uint32](t, x, 1)
	for name, end := range map[string]func(){"a panic": func() { panic("on purpose") }, "Goexit": runtime.Goexit} {
		before, over := safe.Pending(s), make(chan struct{})
		go func() {
			defer close(over)
			defer func() { _ = recover() }()
			_, _ = safe.EnqueueCalls(safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg()}}, func(driver.CUstream) []safe.RawCall { end(); return nil })
		}()
		<-over
		assert.Equal(t, before, safe.Pending(s), name)
		require.NoError(t, b.FillAsync(s, 1), name)
	}
	require.NoError(t, s.Synchronize())
}

// TestEnqueueCallsExcludes: while calls are made, no capture of the stream begins, and no other work is enqueued.
func TestEnqueueCallsExcludes(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[uint32](t, x, 1)
	began, enqueued := make(chan error), make(chan error)
	made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg()}}, func(raw driver.CUstream) []safe.RawCall {
		go func() {
			g, err := s.Capture(func() error { return nil })
			began <- errors.Join(err, g.Close())
		}()
		go func() { enqueued <- b.FillAsync(s, 2) }()
		time.Sleep(10 * time.Millisecond)
		select {
		case <-began:
			t.Error("a capture began")
		case <-enqueued:
			t.Error("work was enqueued")
		default:
		}
		return []safe.RawCall{sets(t, b, 1, raw)}
	})
	require.NoError(t, err)
	assert.True(t, made)
	require.NoError(t, <-began)
	<-enqueued // which the capture may have refused
}

// TestEnqueueCallsAgain: calls that are used again tell what the last call has made.
func TestEnqueueCallsAgain(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[uint32](t, x, 1)
	var calls [2]safe.RawCall
	enqueue := func() {
		made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg()}}, func(driver.CUstream) []safe.RawCall { return calls[:] })
		require.NoError(t, err)
		require.True(t, made)
	}
	calls = [...]safe.RawCall{sets(t, b, 1, s.Raw()), sets(t, b, 2, s.Raw())}
	enqueue()
	require.True(t, calls[1].Made)
	calls[0].Args[2] = math.MaxUint32
	enqueue()
	assert.NotZero(t, calls[0].Result)
	assert.False(t, calls[1].Made)
}
