//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What a reset does while it waits for calls in flight. Each test runs in its own process. Runs on
// any driver.

package safe_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

// waitingReset begins a reset of x, which returns want. It waits for a call that waits for the work on s.
func waitingReset(t *testing.T, x *safe.Context, s *safe.Stream, want error) (call, reset chan struct{}) {
	call = background(func() { assert.NoError(t, except(s.SynchronizeBlocking(), safe.ErrReset, nil)) })
	reset = background(func() { assert.ErrorIs(t, x.Device().ResetPrimary(), want) })
	return call, reset
}

// TestResetFindsNewStreams: a stream made while the reset waits for another one counts, too.
func TestResetFindsNewStreams(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s := stream(t, x)
		finish := make(chan struct{})
		call := background(func() {
			assert.NoError(t, s.EnqueueRaw(func(driver.CUstream) error { <-finish; return nil }))
		})
		reset := background(func() { assert.ErrorIs(t, x.Device().ResetPrimary(), safe.ErrCapturing) })
		u := stream(t, x)
		c, err := u.BeginCapture()
		require.NoError(t, err)
		close(finish)
		<-call
		<-reset
		g, err := c.End()
		require.NoError(t, err)
		require.NoError(t, g.Close())
		assert.NoError(t, s.Synchronize())
		noViolation(t)
	})
}

// TestBesideWaitingReset: while a reset waits for a call in flight, it holds up nothing that the
// call may wait for in turn.
func TestBesideWaitingReset(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, x, y *safe.Context) (finish func()){
		"wait on another device": func(t *testing.T, _, y *safe.Context) func() {
			s := stream(t, y)
			g := newGate(t, y)
			g.shut(t, s)
			over := background(func() { assert.NoError(t, s.Synchronize()) })
			return func() {
				g.open()
				soon(t, over, "the wait waits for the reset")
			}
		},
		"query of another stream": func(t *testing.T, x, _ *safe.Context) func() {
			s := stream(t, x)
			return func() {
				soon(t, background(func() {
					_, err := s.Query()
					assert.ErrorIs(t, err, safe.ErrReset)
				}), "the query waits for the reset")
			}
		},
		"release on another device": func(t *testing.T, _, y *safe.Context) func() {
			r, gone := resource(t, y)
			return func() {
				require.NoError(t, r.Close())
				soon(t, gone, "the release waits for the reset")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			besideResets(t, func(t *testing.T) {
				y := second(t)
				x := open(t, 0)
				s := stream(t, x)
				h := host[uint32](t, x, 1)
				finish := begin(t, x, y)
				unstick := stickOn(t, h, s)
				call, reset := waitingReset(t, x, s, nil)
				finish()
				unstick()
				<-call
				<-reset
			})
		})
	}
}

// TestStreamsBesideWaitingReset: while a reset waits for a call that has a stream locked, calls on other
// streams go on, as the call may wait for them.
func TestStreamsBesideWaitingReset(t *testing.T) {
	besideResets(t, func(t *testing.T) {
		x := open(t, 0)
		other, s := stream(t, x), stream(t, x)
		finish := make(chan struct{})
		call := background(func() {
			assert.NoError(t, s.EnqueueRaw(func(driver.CUstream) error { <-finish; return nil }))
		})
		reset := background(func() { assert.NoError(t, x.Device().ResetPrimary()) })
		soon(t, background(func() { assert.NoError(t, other.Synchronize()) }), "it waits for the call")
		close(finish)
		<-call
		<-reset
	})
}

// TestReleaseBesideWaitingReset: while a reset waits, the context's work runs on, and nothing is
// released that it uses.
func TestReleaseBesideWaitingReset(t *testing.T) {
	needsSecond(t)
	type used func(t *testing.T, s *safe.Stream, x *safe.Context) (release func(), gone <-chan struct{})
	registered := func(t *testing.T, s *safe.Stream, x *safe.Context) (func(), <-chan struct{}) {
		v, gone := new([1 << 16]uint32), make(chan struct{})
		runtime.AddCleanup(v, func(gone chan struct{}) { close(gone) }, gone)
		h, err := safe.RegisterPinned(x, v[:], safe.PinnedOptions{})
		require.NoError(t, err)
		require.NoError(t, h.FillAsync(s, 7))
		return func() { background(func() { assert.NoError(t, h.Close()) }) }, gone
	}
	for name, c := range map[string]struct {
		use       used
		elsewhere bool // it is of another device
		closed    bool // the stream is, too
	}{
		"resource": {use: func(t *testing.T, s *safe.Stream, x *safe.Context) (func(), <-chan struct{}) {
			r, gone := resource(t, x)
			require.NoError(t, s.EnqueueRaw(func(driver.CUstream) error { return nil }, r.Arg()))
			return func() { assert.NoError(t, r.Close()) }, gone
		}},
		"memory":                    {use: registered},
		"memory elsewhere":          {use: registered, elsewhere: true},
		"memory of a closed stream": {use: registered, elsewhere: true, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			besideResets(t, func(t *testing.T) {
				y, x := open(t, 1), open(t, 0)
				s := stream(t, x)
				unstick := stickOn(t, host[uint32](t, x, 1), s)
				of := x
				if c.elsewhere {
					of = y
				}
				release, gone := c.use(t, s, of)
				call, reset := waitingReset(t, x, s, nil)
				if c.closed {
					assert.NoError(t, s.Close())
				}
				release()
				release = nil
				released := func() bool {
					drop()
					select {
					case <-gone:
						return true
					default:
						return false
					}
				}
				if assert.False(t, released(), "it is released") {
					defer func() { assert.Eventually(t, released, atOnce, time.Millisecond, "it is not released") }()
				}
				unstick()
				<-call
				<-reset
			})
		})
	}
}

// TestScopeBesideWaitingReset: while a reset waits, the context's work runs on, and a scope waits for
// it, even if another wait wakes the poller.
func TestScopeBesideWaitingReset(t *testing.T) {
	needsSecond(t)
	besideResets(t, func(t *testing.T) {
		y, x := open(t, 1), open(t, 0)
		other, s := stream(t, y), stream(t, x)
		unstickOther := stickOn(t, host[uint32](t, y, 1), other)
		unstick := stickOn(t, host[uint32](t, x, 1), s)
		scope := background(func() {
			assert.NoError(t, except(s.Scope(func(*safe.Scope) error { return nil }), safe.ErrReset, nil))
		})
		call, reset := waitingReset(t, x, s, nil)
		wait := background(func() { assert.NoError(t, other.Synchronize()) })
		assert.False(t, closed(scope), "Go memory is no longer pinned")
		unstick()
		unstickOther()
		for _, over := range []chan struct{}{call, reset, wait, scope} {
			soon(t, over, "a call does not end")
		}
	})
}

// TestSetAccessBesideWaitingReset: while a reset of another device waits, work of that device that uses
// an address range can be waited for.
func TestSetAccessBesideWaitingReset(t *testing.T) {
	besideResets(t, func(t *testing.T) {
		y := second(t)
		x := open(t, 0)
		granule := virtual(t, y)
		r := reserve(t, y, granule)
		require.NoError(t, x.EnablePeerAccess(y))
		mapped(t, y, r, 0, granule)
		require.NoError(t, r.SetAccess(0, granule, readWrite, x.Device()))
		s, fill, b := stream(t, x), kernel(t, x, "fill"), mappedBuffer[float32](t, r, 0, 1)
		unstick := stickOn(t, host[uint32](t, x, 1), s)
		require.NoError(t, fill.Launch(s, one, safe.Val(uint32(1)), safe.Val(float32(3)), b.Arg()))
		require.NoError(t, b.Close())
		call, reset := waitingReset(t, x, s, nil)
		set := background(func() {
			assert.NoError(t, r.SetAccess(0, granule, driver.CU_MEM_ACCESS_FLAGS_PROT_READ, x.Device()))
		})
		assert.False(t, closed(set), "it does not wait for the work")
		unstick()
		for _, over := range []chan struct{}{call, reset, set} {
			soon(t, over, "a call does not end")
		}
	})
}

// TestLaunchBesideWaitingReset: a launch that allocates memory anew waits until that is released, also on
// a stream whose reset waits.
func TestLaunchBesideWaitingReset(t *testing.T) {
	needsSecond(t)
	besideResets(t, func(t *testing.T) {
		x, y := open(t, 0), open(t, 1)
		s, other := stream(t, x), stream(t, y)
		g := newGraph(t, x)
		b, _, err := safe.AddAlloc[uint32](g, 4)
		require.NoError(t, err)
		e := executable(t, g)
		require.NoError(t, errors.Join(e.Launch(s), s.Synchronize()))
		unstick := stickOn(t, host[uint32](t, y, 1), other)
		require.NoError(t, b.FreeAsync(other))
		call, reset := waitingReset(t, y, other, nil)
		launch := background(func() { assert.NoError(t, errors.Join(e.Launch(s), s.Synchronize())) })
		assert.False(t, closed(launch), "it does not wait")
		unstick()
		<-call
		<-reset
		<-launch
	})
}

// TestOpenDuringReset: a context that is opened while a reset waits is one of after the reset.
func TestOpenDuringReset(t *testing.T) {
	needs(t, "cuCtxGetId")
	besideResets(t, func(t *testing.T) {
		x := open(t, 0)
		s := stream(t, x)
		h := host[uint32](t, x, 1)
		unstick := stickOn(t, h, s)
		call, reset := waitingReset(t, x, s, nil)
		opened := background(func() {
			y, err := safe.Open(0)
			if assert.NoError(t, err) {
				u, err := safe.NewStream(y, safe.StreamOptions{})
				assert.NoError(t, err)
				<-reset
				assert.NoError(t, u.Synchronize())
				assert.NoError(t, u.Close())
				assert.NoError(t, y.Close())
			}
		})
		unstick()
		<-call
		<-reset
		<-opened
	})
}

// TestBorrowDuringReset: the reset does not miss a context that is borrowed while it waits.
func TestBorrowDuringReset(t *testing.T) {
	needs(t, "cuCtxGetId")
	besideResets(t, func(t *testing.T) {
		x := open(t, 0)
		s := stream(t, x)
		h := host[uint32](t, x, 1)
		unstick := stickOn(t, h, s)
		call, reset := waitingReset(t, x, s, nil)
		borrowed := background(func() {
			y, err := safe.BorrowContext(x.Raw(), nil)
			if err != nil {
				return // the reset has destroyed it
			}
			u, err := safe.NewStream(y, safe.StreamOptions{})
			for err == nil {
				err = u.Synchronize()
			}
			assert.ErrorIs(t, err, safe.ErrReset)
			assert.NoError(t, errors.Join(u.Close(), y.Close()))
		})
		unstick()
		<-call
		<-reset
		<-borrowed
	})
}

// TestResetBesideCloseOfContext: a reset waits while Close destroys what the context has kept.
func TestResetBesideCloseOfContext(t *testing.T) {
	needsSimulated(t)
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x, err := safe.Open(0)
		require.NoError(t, err)
		s := stream(t, x)
		unstick := stickOn(t, host[uint32](t, x, 1), s)
		wait := background(func() { assert.NoError(t, s.Synchronize()) }) // which creates events
		unstick()
		<-wait
		require.NoError(t, x.CloseAll())
		settle(t)
		simulated.Delay("cuEventDestroy_v2", hang)
		closes := background(func() { assert.NoError(t, x.Close()) })
		reset := background(func() { assert.NoError(t, x.Device().ResetPrimary()) })
		simulated.Reset() // ends the delay
		<-closes
		<-reset
		settle(t)
		noViolation(t)
	})
}

// TestResetInOnError: the function of OnError may reset a device, though the reaper waits for it.
func TestResetInOnError(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		told := make(chan struct{})
		safe.OnError(func(error) {
			assert.NoError(t, x.Device().ResetPrimary())
			close(told)
		})
		defer safe.OnError(nil)
		r, err := safe.NewResource(x, func() { panic("no") })
		require.NoError(t, err)
		require.NoError(t, r.Close())
		soon(t, told, "the reset waits for the reaper")
	})
}
