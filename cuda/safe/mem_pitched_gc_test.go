//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests check how long pitched memory, arrays and textures live. They run on the
// simulated driver and on a GPU; TestPitchedPeers needs two devices, TestSimPitchedClose
// the simulated driver.

package safe_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var square = safe.Extent{Width: 4, Height: 4}

// fours are 16 values for a square.
func fours(v float32) []float32 {
	all := make([]float32, 16)
	for i := range all {
		all[i] = v
	}
	return all
}

// TestPitchedOrder: synchronous copies and memsets wait for the work that uses the
// memory, and Close frees it after that work.
func TestPitchedOrder(t *testing.T) {
	x := open(t, 0)
	g := newGate(t, x)
	s, b, c := stream(t, x), pitched[float32](t, x, square), pitched[float32](t, x, square)
	pending, err := safe.NewPitched[float32](x, square)
	require.NoError(t, err)
	require.NoError(t, pending.Fill(3))
	g.shut(t, s)
	require.NoError(t, b.FillAsync(s, 1))
	require.NoError(t, c.CopyFromAsync(s, pending))
	done := make(chan error, 2)
	go func() { done <- pending.Close() }()
	go func() { done <- b.Fill(2) }()
	select {
	case <-done:
		t.Error("before the work that uses the memory")
	case <-time.After(20 * time.Millisecond):
	}
	g.open()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	got := make([]float32, 16)
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, fours(2), got)
	require.NoError(t, c.CopyToHost(got))
	assert.Equal(t, fours(3), got)
	_, err = pending.Sub(safe.Position{}, square)
	assert.ErrorIs(t, err, safe.ErrClosed)
	assert.ErrorIs(t, c.CopyFrom(pending), safe.ErrClosed)
	assert.ErrorIs(t, pending.CopyFromAsync(s, c), safe.ErrClosed)
}

// TestPitchedCapture: a graph retains the memory of captured copies and memsets.
func TestPitchedCapture(t *testing.T) {
	x := open(t, 0)
	s, out := stream(t, x), pitched[float32](t, x, square)
	h := host[float32](t, x, 16)
	a, err := safe.NewArray[float32](x, square, safe.ArrayOptions{})
	require.NoError(t, err)
	b, err := safe.NewPitched[float32](x, square)
	require.NoError(t, err)
	part, err := b.Sub(safe.Position{X: 1, Y: 1}, safe.Extent{Width: 2, Height: 2})
	require.NoError(t, err)
	g, err := s.Capture(func() error {
		require.NoError(t, b.CopyFromHostAsync(s, h))
		require.NoError(t, part.FillAsync(s, 9))
		require.NoError(t, a.Pitched().CopyFromAsync(s, b))
		require.NoError(t, out.CopyFromAsync(s, a.Pitched()))
		assert.ErrorIs(t, b.Fill(0), safe.ErrCapturing)
		assert.ErrorIs(t, b.CopyFrom(out), safe.ErrCapturing)
		return nil
	})
	require.NoError(t, err)
	e := executable(t, g)
	require.NoError(t, b.Close())
	require.NoError(t, a.Close())
	require.NoError(t, g.Close())
	want := fours(2)
	want[5], want[6], want[9], want[10] = 9, 9, 9, 9
	copy(h.Data(), fours(2))
	require.NoError(t, e.Launch(s))
	got := make([]float32, 16)
	require.NoError(t, out.CopyToHost(got), "after the graph")
	assert.Equal(t, want, got)
}

// TestPitchedLegacy: the legacy stream refuses work while a blocking stream captures.
func TestPitchedLegacy(t *testing.T) {
	x := open(t, 0)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	blocking, err := safe.NewStream(x)
	require.NoError(t, err)
	closing(t, blocking)
	b, c := pitched[float32](t, x, square), pitched[float32](t, x, square)
	g, err := blocking.Capture(func() error {
		assert.ErrorIs(t, b.FillAsync(legacy, 0), safe.ErrCapturing)
		assert.ErrorIs(t, b.CopyFromAsync(legacy, c), safe.ErrCapturing)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, b.FillAsync(legacy, 1))
	require.NoError(t, c.CopyFromAsync(legacy, b))
	got := make([]float32, 16)
	require.NoError(t, c.CopyToHost(got))
	assert.Equal(t, fours(1), got)
}

// TestPitchedPeers copies pitched memory between devices.
func TestPitchedPeers(t *testing.T) {
	x := open(t, 0)
	y := second(t)
	s, other := stream(t, x), stream(t, y)
	all := safe.Extent{Width: 6, Height: 5, Depth: 4}
	for _, src := range sides(t, x, all)[:5] {
		for _, dst := range sides(t, y, all)[:5] {
			t.Run("from "+src.name+" to "+dst.name, func(t *testing.T) {
				at, e := safe.Position{X: 1, Y: 2, Z: 1}, safe.Extent{Width: 4, Height: 3, Depth: 2}
				source, want := newVolume(all, 1000), newVolume(all, 0)
				want.copy(at, source, at, e)
				a, err := src.view.Sub(at, e)
				require.NoError(t, err)
				b, err := dst.view.Sub(at, e)
				require.NoError(t, err)
				for name, call := range map[string]func() error{
					"now":                       func() error { return b.CopyFrom(a) },
					"on a stream of the source": func() error { return b.CopyFromAsync(s, a) },
					"on one of the destination": func() error { return b.CopyFromAsync(other, a) },
				} {
					src.load(t, source.values)
					dst.load(t, newVolume(all, 0).values)
					require.NoError(t, call(), name)
					assert.Equal(t, want.values, dst.fetch(t), name)
				}
			})
		}
	}
	a, b := pitched[float32](t, x, square), pitched[float32](t, y, square)
	g, err := s.Capture(func() error {
		assert.ErrorIs(t, b.CopyFromAsync(s, a), safe.ErrCapturing)
		return nil
	})
	require.NoError(t, err, "the capture goes on")
	require.NoError(t, g.Close())
	assert.ErrorIs(t, a.FillAsync(other, 0), safe.ErrContextMismatch)
	assert.ErrorIs(t, a.CopyFromHostAsync(other, host[float32](t, y, 16)), safe.ErrContextMismatch)
	c := pitched[float32](t, x, square)
	assert.ErrorIs(t, a.CopyFromAsync(other, c), safe.ErrContextMismatch)
}

// TestPitchedLife: pitched memory, arrays and textures outlive their context, and are
// released when dropped.
func TestPitchedLife(t *testing.T) {
	startClean(t) // memory of earlier tests would come back meanwhile
	x, err := safe.Open(0)
	require.NoError(t, err)
	b, err := safe.NewPitched[float32](x, square)
	require.NoError(t, err)
	require.NoError(t, x.Close())
	_, err = safe.NewPitched[float32](x, square)
	require.ErrorIs(t, err, safe.ErrClosed)
	require.NoError(t, b.Fill(1))
	for range 2 {
		require.NoError(t, b.Close())
	}

	x = open(t, 0)
	const size = 256 << 20
	free := func() uint64 {
		n, _, err := x.MemoryInfo()
		require.NoError(t, err)
		return n
	}
	for name, make := range map[string]func() (any, error){
		"pitched": func() (any, error) {
			b, err := safe.NewPitched[byte](x, safe.Extent{Width: 1 << 14, Height: size >> 14})
			if err != nil {
				return nil, err
			}
			return b.Sub(safe.Position{}, safe.Extent{Width: 1})
		},
		"texture": func() (any, error) {
			a, err := safe.NewArray[float32](x, safe.Extent{Width: 1 << 13, Height: size >> 15}, safe.ArrayOptions{})
			if err != nil {
				return nil, err
			}
			return safe.NewTexture(a, safe.TextureOptions{})
		},
	} {
		before := free()
		func() {
			kept, err := make() // the last object retains the context
			require.NoError(t, err, name)
			drop()
			assert.Less(t, free(), before-size/2, name)
			runtime.KeepAlive(kept)
		}()
		assert.Eventually(t, func() bool {
			drop()
			return free() > before-size/2
		}, atOnce, 10*time.Millisecond, name)
	}
}

// TestPitchedClosed: calls on closed objects return ErrClosed.
func TestPitchedClosed(t *testing.T) {
	x := open(t, 0)
	s, b, h, rows := stream(t, x), buffer[int32](t, x, 4), host[int32](t, x, 4), pitched[int32](t, x, safe.Extent{Width: 4})
	a := array[int32](t, x, square, safe.ArrayOptions{Surface: true})
	u, err := safe.NewSurface(a)
	require.NoError(t, err)
	view := a.Pitched()
	for range 2 {
		for _, c := range []closer{x, a, u, rows, h, b, s} { // parents before their children
			require.NoError(t, c.Close())
		}
	}
	refusedAll(t, pitchedUses(x, s, b, h, rows, a))
	assert.ErrorIs(t, view.Fill(0), safe.ErrClosed)
	assert.ErrorIs(t, view.CopyFrom(view), safe.ErrClosed)
}

// TestSimPitchedClose: an object counts as gone even if CUDA fails to destroy it. Close
// returns the error, and the parents are released.
func TestSimPitchedClose(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	for _, function := range []string{"cuTexObjectDestroy", "cuSurfObjectDestroy", "cuArrayDestroy"} {
		a, err := safe.NewArray[float32](x, square, safe.ArrayOptions{Surface: true})
		require.NoError(t, err)
		u, err := safe.NewTexture(a, safe.TextureOptions{})
		require.NoError(t, err)
		v, err := safe.NewSurface(a)
		require.NoError(t, err)
		array, texture, surface := a.Raw(), u.Raw(), v.Raw()
		simulated.Fail(function, 1, uint32(driver.CUDA_ERROR_UNKNOWN))
		require.NoError(t, a.Close(), "it waits for the others")
		err = errors.Join(u.Close(), v.Close())
		assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN, function)
		assert.NoError(t, errors.Join(u.Close(), v.Close()))
		for kind, destroy := range map[string]string{"texture": "cuTexObjectDestroy", "surface": "cuSurfObjectDestroy", "array": "cuArrayDestroy"} {
			left := 0
			if destroy == function {
				left = 1
			}
			assert.Equal(t, left, simulated.Live(kind), "%s: %s", function, kind)
		}
		require.NoError(t, x.WithCurrent(func() error { // objects that CUDA failed to destroy
			switch function {
			case "cuTexObjectDestroy":
				return driver.CuTexObjectDestroy(texture)
			case "cuSurfObjectDestroy":
				return driver.CuSurfObjectDestroy(surface)
			}
			return driver.CuArrayDestroy(array)
		}))
	}
	assert.Empty(t, simulated.Violation())
}
