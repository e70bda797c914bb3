//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Resets of a device that has green contexts. Each test runs in its own process. Needs CUDA 12.5,
// which creates streams in green contexts, and runs on any driver.

package safe_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFactResetBesideGreen: CUDA resets no device that has a green context.
func TestFactResetBesideGreen(t *testing.T) {
	needs(t, "cuGreenCtxStreamCreate")
	resetting(t, func(t *testing.T, x *safe.Context) {
		g, s := rawGreen(t, x), driver.CUstream(0)
		require.NoError(t, driver.CuGreenCtxStreamCreate(&s, g, uint32(driver.CU_STREAM_NON_BLOCKING), 0))
		assert.ErrorIs(t, driver.CuDevicePrimaryCtxReset(x.Device().Raw()), driver.CUDA_ERROR_NOT_PERMITTED)
		assert.NoError(t, driver.CuStreamSynchronize(s), "the stream is still there")
		require.NoError(t, errors.Join(driver.CuStreamDestroy(s), driver.CuGreenCtxDestroy(g)))
		reset(t, x)
	})
}

// TestResetBesideGreen: a device with a green context is not reset, and everything still works.
func TestResetBesideGreen(t *testing.T) {
	needs(t, "cuGreenCtxStreamCreate")
	// Each returns what ends the green context.
	for name, begin := range map[string]func(*testing.T, *safe.Context) func() error{
		"open": func(t *testing.T, x *safe.Context) func() error {
			g, err := safe.NewGreenContext(x, splitInto(t, 1)...)
			require.NoError(t, err)
			return g.Close
		},
		"its stream is open": func(t *testing.T, x *safe.Context) func() error {
			g, err := safe.NewGreenContext(x, splitInto(t, 1)...)
			require.NoError(t, err)
			s, err := g.NewStream(safe.StreamOptions{NonBlocking: true})
			require.NoError(t, errors.Join(err, g.Close()))
			return s.Close
		},
		"of other code": func(t *testing.T, x *safe.Context) func() error {
			g := rawGreen(t, x)
			return func() error { return driver.CuGreenCtxDestroy(g) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			resetting(t, func(t *testing.T, x *safe.Context) {
				s, err := safe.NewStream(x, safe.StreamOptions{})
				require.NoError(t, err)
				b, err := safe.NewBuffer[uint32](x, 4)
				require.NoError(t, err)
				g, err := safe.NewGraph(x)
				require.NoError(t, err)
				exec, err := g.Instantiate()
				require.NoError(t, err)
				end := begin(t, x)
				err = x.Device().ResetPrimary()
				assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_PERMITTED)
				var e *safe.Error
				if assert.ErrorAs(t, err, &e) {
					assert.Equal(t, driver.CUDA_ERROR_NOT_PERMITTED, e.Code)
				}
				require.NoError(t, errors.Join(b.FillAsync(s, 7), exec.Launch(s), s.Synchronize()))
				got := make([]uint32, 4)
				require.NoError(t, b.CopyToHost(got))
				assert.Equal(t, []uint32{7, 7, 7, 7}, got)
				require.NoError(t, end())
				resetPrimary(t, x)
				assert.ErrorIs(t, s.Synchronize(), safe.ErrReset)
				assert.NoError(t, errors.Join(exec.Close(), g.Close(), b.Close(), s.Close()))
			})
		})
	}
}

// TestResetAfterGreen: a reset waits for the destruction of a green context that the program has
// closed during a call.
func TestResetAfterGreen(t *testing.T) {
	needs(t, "cuGreenCtxStreamCreate")
	resetting(t, func(t *testing.T, x *safe.Context) {
		for range 20 {
			g, err := safe.NewGreenContext(x, splitInto(t, 1)...)
			require.NoError(t, err)
			asked := make(chan error)
			go func() {
				var err error
				for err == nil {
					_, err = g.ID()
				}
				asked <- err
			}()
			require.NoError(t, g.Close())
			require.ErrorIs(t, <-asked, safe.ErrClosed)
			resetPrimary(t, x)
			again, err := safe.Open(0)
			require.NoError(t, errors.Join(err, x.Close()))
			x = again
		}
		require.NoError(t, x.Close())
	})
}

// TestGreenBesideWaitingReset: a green context that is made and closed while a reset begins is not
// left behind.
func TestGreenBesideWaitingReset(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGreenCtxStreamCreate")
	besideResets(t, func(t *testing.T) {
		x := open(t, 0)
		s := stream(t, x)
		unstick := stickOn(t, host[uint32](t, x, 1), s)
		part := splitInto(t, 1)
		simulated.Delay("cuGreenCtxCreate", hang)
		call := background(func() { assert.NoError(t, except(s.SynchronizeBlocking(), safe.ErrReset, nil)) })
		made := background(func() {
			g, err := safe.NewGreenContext(x, part...)
			assert.NoError(t, errors.Join(err, g.Close()))
		})
		reset := background(func() {
			assert.NoError(t, except(x.Device().ResetPrimary(), driver.CUDA_ERROR_NOT_PERMITTED, nil))
		})
		simulated.Reset() // ends the delay
		unstick()
		<-made
		<-call
		<-reset
		resetPrimary(t, x)
	})
}

// TestWaitBesideRefusedReset: waits in flight go on while a reset waits, and after CUDA has refused it.
func TestWaitBesideRefusedReset(t *testing.T) {
	needs(t, "cuGreenCtxStreamCreate")
	for name, begin := range map[string]func(*safe.Stream, *safe.Event) func() error{
		"Stream.Synchronize": func(s *safe.Stream, _ *safe.Event) func() error { return s.Synchronize },
		"Event.Synchronize":  func(_ *safe.Stream, e *safe.Event) func() error { return e.Synchronize },
		"Completion": func(s *safe.Stream, _ *safe.Event) func() error {
			f := s.Completion()
			return func() error { _, err := f.Wait(t.Context()); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				g := rawGreen(t, x) // now, as cuGreenCtxCreate waits for the work of its device
				s, first, last := stream(t, x), stream(t, x), stream(t, x)
				var over, unstick []func()
				for _, of := range []*safe.Stream{first, last, s} {
					e := event(t, x)
					unstick = append(unstick, stickOn(t, host[uint32](t, x, 1), of))
					require.NoError(t, of.Record(e))
					wait := begin(of, e)
					ended := background(func() { assert.NoError(t, wait()) })
					over = append(over, func() { soon(t, ended, "the wait does not end") })
				}
				call, reset := waitingReset(t, x, s, driver.CUDA_ERROR_NOT_PERMITTED)
				unstick[0]()
				over[0]() // the work runs on
				unstick[2]()
				<-call
				assert.False(t, closed(reset), "it does not wait for the other work")
				unstick[1]()
				<-reset
				over[1]()
				over[2]()
				require.NoError(t, driver.CuGreenCtxDestroy(g))
				noViolation(t)
			})
		})
	}
}

// TestCloseBesideRefusedReset: an object closed while a reset waits is destroyed if CUDA then refuses the
// reset.
func TestCloseBesideRefusedReset(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuGreenCtxStreamCreate")
	for kind, make := range map[string]func(*testing.T, *safe.Context) io.Closer{
		"graph": func(t *testing.T, x *safe.Context) io.Closer {
			g, err := safe.NewGraph(x)
			require.NoError(t, err)
			return g
		},
		"exec": func(t *testing.T, x *safe.Context) io.Closer {
			g, err := safe.NewGraph(x)
			require.NoError(t, err)
			e, err := g.Instantiate()
			require.NoError(t, errors.Join(err, g.Close()))
			return e
		},
		"async": func(t *testing.T, x *safe.Context) io.Closer {
			b, err := safe.NewBufferAsync[uint32](stream(t, x), 4)
			require.NoError(t, err)
			return b
		},
		"module": func(t *testing.T, x *safe.Context) io.Closer {
			_, m := spinning(t, x)
			return m
		},
	} {
		t.Run(kind, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				s := stream(t, x)
				g := rawGreen(t, x)
				closes := make(t, x)
				before := simulated.Live(kind)
				unstick := stickOn(t, host[uint32](t, x, 1), s)
				call, reset := waitingReset(t, x, s, driver.CUDA_ERROR_NOT_PERMITTED)
				assert.NoError(t, closes.Close())
				unstick()
				<-call
				<-reset
				assert.Eventually(t, func() bool { return simulated.Live(kind) == before-1 }, atOnce, time.Millisecond)
				require.NoError(t, driver.CuGreenCtxDestroy(g))
				noViolation(t)
			})
		})
	}
}

// TestBorrowedBesideRefusedReset: a borrowed stream that is closed while a reset waits, which CUDA then
// refuses, may be destroyed when both calls have returned.
func TestBorrowedBesideRefusedReset(t *testing.T) {
	needsSimulated(t)
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		b := buffer[uint32](t, x, 4)
		raw := rawStream(t, x)
		s, err := safe.BorrowStream(raw, x, nil)
		require.NoError(t, err)
		u := stream(t, x)
		unstick, unstickOther := stickOn(t, host[uint32](t, x, 1), s), stickOn(t, host[uint32](t, x, 1), u)
		require.NoError(t, b.ZeroAsync(s))
		r, busy, goOn := holding(t, x)
		simulated.Fail("cuDevicePrimaryCtxReset_v2", 1, uint32(driver.CUDA_ERROR_NOT_PERMITTED))
		call, reset := waitingReset(t, x, u, driver.CUDA_ERROR_NOT_PERMITTED)
		require.NoError(t, errors.Join(r.Close(), s.Close()))
		unstickOther()
		<-call
		unstick()
		<-reset
		<-busy // the reaper, before it gets to the stream
		require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
		close(goOn)
		assert.NoError(t, b.CopyToHost(make([]uint32, 4)))
		settle(t)
		noViolation(t)
	})
}

// TestRefusedResetAfterReset: objects that a reset has destroyed are not used if CUDA refuses the next
// one.
func TestRefusedResetAfterReset(t *testing.T) {
	needs(t, "cuGreenCtxStreamCreate")
	resetting(t, func(t *testing.T, x *safe.Context) {
		s, err := safe.NewStream(x, safe.StreamOptions{})
		require.NoError(t, err)
		resetPrimary(t, x)
		var again driver.CUcontext
		require.NoError(t, driver.CuDevicePrimaryCtxRetain(&again, x.Device().Raw()))
		g := rawGreen(t, x)
		require.ErrorIs(t, x.Device().ResetPrimary(), driver.CUDA_ERROR_NOT_PERMITTED)
		assert.ErrorIs(t, s.Synchronize(), safe.ErrReset)
		assert.NoError(t, s.Close())
		require.NoError(t, errors.Join(driver.CuGreenCtxDestroy(g), driver.CuDevicePrimaryCtxRelease(x.Device().Raw())))
	})
}
