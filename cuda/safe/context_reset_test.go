//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Primary contexts that are reset by raw calls, or opened and closed by many goroutines.
// CUDA reuses handles and addresses, so old objects must not affect new ones. Each test
// runs in its own process. Runs on any driver; resets need CUDA 12.0, which reports them.

package safe_test

import (
	"context"
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

// resetPrimary resets the primary context beside calls in flight, which no raw call may.
func resetPrimary(t *testing.T, x *safe.Context) {
	t.Helper()
	require.NoError(t, x.Device().ResetPrimary())
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

// besideResets runs f in its own process, with wentWithContext after all is closed.
func besideResets(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		t.Cleanup(func() { wentWithContext(t) })
		f(t)
	})
}

// wentWithContext checks what calls beside a reset did, and forgets the objects that it destroyed.
func wentWithContext(t *testing.T) {
	t.Helper()
	noViolation(t)
	if !onGPU {
		settle(t)
		simulated.Purge()
		simulated.Lost()
	}
}

// spinning returns a kernel of a module that the reset unloads.
func spinning(t *testing.T, x *safe.Context) (*safe.Kernel, *safe.Module) {
	t.Helper()
	m, err := safe.LoadFile(x, "testdata/kernels.ptx", safe.LoadOptions{})
	require.NoError(t, err)
	k, err := m.Kernel("spin")
	require.NoError(t, err)
	return k, m
}

// TestWholeAfterReset: CUDA crashes if it is asked about a stream that a reset has destroyed.
func TestWholeAfterReset(t *testing.T) {
	for name, reset := range map[string]func(*testing.T, *safe.Context){"by other code": reset, "by ResetPrimary": resetPrimary} {
		t.Run(name, func(t *testing.T) {
			resetting(t, func(t *testing.T, x *safe.Context) {
				s, err := safe.NewStream(x, safe.StreamOptions{})
				require.NoError(t, err)
				reset(t, x)
				assert.ErrorIs(t, x.WithoutCaptures(func() error { return nil }), safe.ErrReset)
				assert.ErrorIs(t, x.Synchronize(), safe.ErrReset)
				_, err = s.CaptureStatus()
				assert.ErrorIs(t, err, safe.ErrReset)
				assert.NoError(t, s.Close())
			})
		})
	}
}

// TestEmptyAfterReset: buffers of no values cannot be made after a reset either.
func TestEmptyAfterReset(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		s, err := safe.NewStream(x, safe.StreamOptions{})
		require.NoError(t, err)
		resetPrimary(t, x)
		_, err = safe.NewBuffer[byte](x, 0)
		assert.ErrorIs(t, err, safe.ErrReset)
		_, err = safe.NewBufferAsync[byte](s, 0)
		assert.ErrorIs(t, err, safe.ErrReset)
		assert.NoError(t, s.Close())
	})
}

// TestDataAfterReset: the host gets no slice of memory that a reset has freed. It does as long as the
// reset waits, for functions in work of the context.
func TestDataAfterReset(t *testing.T) {
	besideResets(t, func(t *testing.T) {
		x := open(t, 0)
		s, m, h := stream(t, x), managed[uint32](t, x, 4), host[uint32](t, x, 4)
		part, err := h.Slice(1, 2)
		require.NoError(t, err)
		words := make([]uint32, 4)
		registered, err := safe.RegisterPinned(x, words, safe.PinnedOptions{})
		require.NoError(t, err)
		closing(t, registered)
		unstick := stickOn(t, host[uint32](t, x, 1), s)
		call, reset := waitingReset(t, x, s, nil)
		for _, data := range [][]uint32{m.Data(), h.Data(), part.Data(), registered.Data()} {
			assert.NotEmpty(t, data, "while the reset waits")
		}
		unstick()
		<-call
		<-reset
		for _, data := range [][]uint32{m.Data(), h.Data(), part.Data()} {
			assert.Nil(t, data)
		}
		assert.Equal(t, words, registered.Data(), "memory of Go")
	})
}

// TestResetKeepsOthersMemory: closing old buffers after a reset frees no new ones.
func TestResetKeepsOthersMemory(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		const many, size = 64, 1 << 18
		s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
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
			u, err := safe.NewStream(y, safe.StreamOptions{NonBlocking: true})
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

// TestResetTellsWaiters: a wait during a reset returns an error, and no query of its event
// meets the reset.
func TestResetTellsWaiters(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		if !onGPU {
			simulated.Widen(50 * time.Microsecond)
		}
		spin, m := spinning(t, x)
		defer m.Close()
		s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		e, err := safe.NewEvent(x, safe.EventOptions{DisableTiming: true})
		require.NoError(t, err)
		require.NoError(t, spin.Launch(s, one, safe.Val(uint64(300_000_000))))
		require.NoError(t, s.Record(e))
		told := make(chan error, 200)
		for i := range cap(told) {
			go func() {
				if i%2 == 0 {
					told <- s.Wait(context.Background())
				} else {
					told <- e.Wait(context.Background())
				}
			}()
		}
		time.Sleep(50 * time.Millisecond)
		resetPrimary(t, x)
		late := time.After(atOnce)
		for i := range cap(told) {
			select {
			case <-told:
			case <-late:
				require.Fail(t, "a wait hangs", "%d are told", i)
			}
		}
		s.Close()
		e.Close()
	})
}

// TestResetTellsFutures: so do futures and callbacks.
func TestResetTellsFutures(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		spin, m := spinning(t, x)
		defer m.Close()
		s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		require.NoError(t, spin.Launch(s, one, safe.Val(uint64(300_000_000))))
		f, err := s.LaunchHostFunc(func() {}, safe.HostFuncOptions{})
		require.NoError(t, err)
		called := make(chan struct{})
		require.NoError(t, s.AddCallback(func(error) { close(called) }))
		all := s.Completion()
		resetPrimary(t, x)
		soon(t, all.Done(), "the completion never comes")
		soon(t, f.Done(), "the future of the host function never completes")
		soon(t, called, "the function of AddCallback is never called")
		s.Close()
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
	s, err := safe.NewStream(x, safe.StreamOptions{})
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

// TestResetDuringSynchronizeBlocking tests that a reset waits for a wait in the driver.
func TestResetDuringSynchronizeBlocking(t *testing.T) {
	resetting(t, func(t *testing.T, x *safe.Context) {
		spin, m := spinning(t, x)
		defer m.Close()
		s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		require.NoError(t, spin.Launch(s, one, safe.Val(uint64(300_000_000))))
		told, reset := make(chan error, 1), make(chan error, 1)
		safe.WithoutWaits(func() { // keeps the call from its wait in the driver
			go func() { told <- s.SynchronizeBlocking() }()
			time.Sleep(50 * time.Millisecond)
			go func() { reset <- x.Device().ResetPrimary() }()
			for end := time.Now().Add(time.Second); len(reset) == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		})
		assert.NoError(t, except(<-told, safe.ErrReset, nil))
		assert.NoError(t, <-reset)
		noViolation(t)
		s.Close()
	})
}

// TestResetDuringWaits tests that waits end, with ErrReset if they do not find that the work has completed
// before the reset, and that no event is queried after a reset has destroyed it: CUDA uses the handles
// again.
func TestResetDuringWaits(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x, err := safe.Open(0)
		require.NoError(t, err)
		spin, _ := spinning(t, x)
		s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		e, err := safe.NewEvent(x, safe.EventOptions{})
		require.NoError(t, err)
		require.NoError(t, errors.Join(spin.Launch(s, one, safe.Val(uint64(300_000_000))), s.Record(e)))
		const many = 5
		told := make(chan error, 2*many)
		for range many {
			go func() { told <- s.Synchronize() }()
			go func() { told <- e.Synchronize() }()
		}
		f := s.Completion()
		time.Sleep(50 * time.Millisecond)
		resetPrimary(t, x)
		for range 2 * many {
			assert.NoError(t, except(<-told, safe.ErrReset))
		}
		<-f.Done()
		assert.NoError(t, except(f.Err(), safe.ErrReset))
		require.NoError(t, errors.Join(e.Close(), s.Close(), x.Close()))
		wentWithContext(t)
	})
}
