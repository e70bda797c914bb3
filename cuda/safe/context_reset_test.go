//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Primary contexts that are reset by raw calls, or opened and closed by many goroutines.
// CUDA reuses handles and addresses, so old objects must not affect new ones. Each test
// runs in its own process. Runs on any driver; resets need CUDA 12.0, which reports them.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reset resets the primary context of the device by a raw call.
func reset(t *testing.T, x *safe.Context) {
	t.Helper()
	require.NoError(t, driver.CuDevicePrimaryCtxReset(x.Device().Raw()))
}

// resetting runs f in its own process, where a reset may leave objects.
func resetting(t *testing.T, f func(t *testing.T, x *safe.Context)) {
	needs(t, "cuCtxGetId")
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x, err := safe.Open(0)
		require.NoError(t, err)
		f(t, x)
		x.Close()
		wentWithContext(t)
	})
}

// wentWithContext checks what calls after a reset did, and forgets the objects that it destroyed.
func wentWithContext(t *testing.T) {
	t.Helper()
	noViolation(t)
	if !onGPU {
		settle(t)
		simulated.Purge()
		simulated.Lost()
	}
}

// TestWholeAfterReset: CUDA crashes if it is asked about a stream that a reset has destroyed.
func TestWholeAfterReset(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		reset(t, x)
		assert.ErrorIs(t, x.WithoutCaptures(func() error { return nil }), safe.ErrReset)
		assert.ErrorIs(t, x.Synchronize(), safe.ErrReset)
		_, err = s.CaptureStatus()
		assert.ErrorIs(t, err, safe.ErrReset)
		assert.NoError(t, s.Close())
	})
}

// TestResetKeepsOthersMemory: closing old buffers after a reset frees no new ones.
func TestResetKeepsOthersMemory(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		const many, size = 64, 1 << 18
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		buffers := func(s *safe.Stream) (all []*safe.Buffer[uint32]) {
			for i := range many {
				b, err := safe.NewBufferAsync[uint32](s, size)
				require.NoError(t, err)
				require.NoError(t, b.FillAsync(s, uint32(i)))
				all = append(all, b)
			}
			require.NoError(t, s.Synchronize())
			return all
		}
		old := buffers(s)
		reset(t, x)
		y, err := safe.Open(0)
		require.NoError(t, err)
		defer y.Close()
		var streams []*safe.Stream
		same := 0
		for range many {
			u, err := safe.NewStreamWith(y, safe.StreamOptions{NonBlocking: true})
			require.NoError(t, err)
			defer u.Close()
			streams = append(streams, u)
			if u.Raw() == s.Raw() {
				same++
			}
		}
		fresh, again := buffers(streams[0]), map[driver.CUdeviceptr]bool{}
		for _, b := range fresh {
			again[b.Raw()] = true
		}
		for _, b := range old {
			if again[b.Raw()] {
				same++
			}
			b.Close()
		}
		s.Close()
		t.Logf("%d handles and addresses were used again", same)
		for i, b := range fresh {
			got := make([]uint32, size)
			require.NoError(t, b.CopyToHost(got), "buffer %d", i)
			require.EqualValues(t, i, got[size-1])
		}
		for i, b := range buffers(streams[0]) {
			assert.False(t, again[b.Raw()], "buffer %d lies where another one is alive", i)
			require.NoError(t, b.Close())
		}
		for _, b := range fresh {
			assert.NoError(t, b.Close())
		}
	})
}

// TestOpenCloseRaces: goroutines open a device, capture, launch a graph, wait and close
// everything, so that the primary context is destroyed again and again beside other
// calls.
func TestOpenCloseRaces(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		var c racers
		c.add(4, opensAndCloses)
		time.Sleep(3 * stormTime(t))
		assert.NoError(t, c.end())
		noViolation(t)
	})
}

func opensAndCloses() error {
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	s, err := safe.NewStream(x)
	if err != nil {
		return err
	}
	b, err := safe.NewBuffer[uint32](x, 64)
	if err != nil {
		return err
	}
	g, err := s.Capture(func() error { return b.FillAsync(s, 5) })
	if err != nil {
		return err
	}
	e, err := g.Instantiate()
	if err != nil {
		return err
	}
	got := make([]uint32, 64)
	if err := errors.Join(e.Launch(s), b.CopyToHost(got)); err != nil {
		return err
	}
	if got[63] != 5 {
		return wrongValue{float32(got[63]), 5}
	}
	return errors.Join(e.Close(), g.Close(), x.Close(), b.Close(), s.Close())
}

// withPeer runs f in its own process, with a context x and one of another device, which f may reset.
func withPeer(t *testing.T, f func(t *testing.T, x, y *safe.Context)) {
	t.Helper()
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		y, err := safe.Open(1)
		require.NoError(t, err)
		f(t, x, y)
		assert.NoError(t, y.Close())
		noViolation(t)
		settle(t)
		simulated.Lost() // what went with the context
	})
}

// background calls f on another goroutine, and returns once it most likely waits.
func background(f func()) (over chan struct{}) {
	over = make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	time.Sleep(20 * time.Millisecond)
	return over
}

// TestCopyAcrossReset: memory from before a reset of the primary context is not copied to or from memory of the new one,
// which has the same handle.
func TestCopyAcrossReset(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		before := func(b *safe.Buffer[uint32], err error) *safe.Buffer[uint32] {
			require.NoError(t, err)
			return b
		}
		old := before(safe.NewBuffer[uint32](x, 4))
		oldRows := before(safe.NewBuffer[uint32](x, 4))
		reset(t, x)
		y, err := safe.Open(0)
		require.NoError(t, err)
		defer y.Close()
		fresh := before(safe.NewBuffer[uint32](y, 4))
		s, err := safe.NewStream(y)
		require.NoError(t, err)
		b, err := safe.NewBatch(y)
		require.NoError(t, err)
		e := safe.Extent{Width: 4}
		from, err := oldRows.Pitched(e, 0)
		require.NoError(t, err)
		to, err := fresh.Pitched(e, 0)
		require.NoError(t, err)
		for name, call := range map[string]func() error{
			"CopyFrom":              func() error { return fresh.CopyFrom(old) },
			"to the old one":        func() error { return old.CopyFrom(fresh) },
			"CopyFromAsync":         func() error { return fresh.CopyFromAsync(s, old) },
			"BatchCopy":             func() error { return errors.Join(safe.BatchCopy(b, fresh, old), b.Submit(s)) },
			"Pitched.CopyFrom":      func() error { return to.CopyFrom(from) },
			"Pitched.CopyFromAsync": func() error { return to.CopyFromAsync(s, from) },
		} {
			assert.ErrorIs(t, call(), safe.ErrReset, name)
		}
		assert.NoError(t, errors.Join(s.Synchronize(), s.Close(), fresh.Close(), old.Close(), oldRows.Close()))
	})
}
