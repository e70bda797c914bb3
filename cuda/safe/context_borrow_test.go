//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Objects borrowed from a context that is closed or reset.

package safe_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rawStream creates a non-blocking stream through package driver.
func rawStream(t *testing.T, x *safe.Context) (s driver.CUstream) {
	t.Helper()
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING) }))
	return s
}

// TestOpenClosedBeforeBorrowed: a primary context is released after the last of its Contexts, also one
// that was borrowed and still asks for the end of its work when it is closed.
func TestOpenClosedBeforeBorrowed(t *testing.T) {
	needsSimulated(t)
	body := func(t *testing.T) {
		watch(t)
		x, err := safe.Open(0)
		require.NoError(t, err)
		h, err := safe.NewPinned[uint32](x, 1)
		require.NoError(t, err)
		raw := rawStream(t, x)
		var memory driver.CUdeviceptr
		require.NoError(t, x.WithCurrent(func() error { return driver.CuMemAlloc(&memory, 16) }))
		y, err := safe.Open(1)
		require.NoError(t, err)
		r, busy, goOn := holding(t, y)

		b, err := safe.BorrowContext(x.Raw(), nil)
		require.NoError(t, err)
		s, err := safe.BorrowStream(raw, b, nil)
		require.NoError(t, err)
		m, err := safe.BorrowBuffer[uint32](b, memory, 4, nil)
		require.NoError(t, err)
		unstick := stickOn(t, h, s)
		require.NoError(t, m.FillAsync(s, 0))
		require.NoError(t, r.Close())
		<-busy // the reaper
		require.NoError(t, errors.Join(m.Close(), s.Close(), b.Close()))
		unstick()
		require.NoError(t, x.WithCurrent(func() error {
			return errors.Join(driver.CuStreamSynchronize(raw), driver.CuStreamDestroy(raw), driver.CuMemFree(memory))
		}))
		require.NoError(t, errors.Join(h.Close(), x.Close(), y.Close()))
		close(goOn)
		settle(t)
		noViolation(t)

		x = open(t, 0) // a new context, perhaps with the handle of the old one
		require.NoError(t, errors.Join(stream(t, x).Synchronize(), buffer[uint32](t, x, 4).CopyToHost(make([]uint32, 4))))
		noViolation(t)
	}
	t.Run("newest", func(t *testing.T) { drivertest.InChild(t, body) })
	t.Run("11.8", func(t *testing.T) { withDriver(t, "11.8", body) })
}

// TestCloseContextBesideWork: a context that is closed while a stream that it does not own has work, and is
// closed, too, holds up no launch on another device.
func TestCloseContextBesideWork(t *testing.T) {
	needsSimulated(t)
	hostFunc := func(s, _ *safe.Stream, goOn chan struct{}) error {
		_, err := s.LaunchHostFunc(func() { <-goOn })
		return err
	}
	borrowed := func(x *safe.Context, raw driver.CUstream) (*safe.Stream, error) {
		return safe.BorrowStream(raw, x, nil)
	}
	legacy := func(x *safe.Context, _ driver.CUstream) (*safe.Stream, error) { return safe.LegacyStream(x) }
	callback := func(s, _ *safe.Stream, goOn chan struct{}) error { return s.AddCallback(func(error) { <-goOn }) }
	waiting := func(s, far *safe.Stream, goOn chan struct{}) error {
		return errors.Join(hostFunc(far, nil, goOn), s.WaitStream(far))
	}
	recording := func(s, _ *safe.Stream, goOn chan struct{}) error { // after work that only the driver knows of
		x, h := s.Context(), drivertest.NewHandle(func() { <-goOn })
		e, err := safe.NewEventWith(x, safe.EventOptions{DisableTiming: true})
		call := func() error {
			return driver.CuLaunchHostFunc(s.Raw(), driver.CUhostFn(drivertest.HostFunc()), uintptr(h))
		}
		return errors.Join(err, x.WithCurrent(call), s.Record(e), e.Close())
	}
	for name, row := range map[string]struct {
		stream func(x *safe.Context, raw driver.CUstream) (*safe.Stream, error)
		use    func(s, far *safe.Stream, goOn chan struct{}) error
	}{
		"host function":           {legacy, hostFunc},
		"callback":                {legacy, callback},
		"wait":                    {legacy, waiting},
		"host function, borrowed": {borrowed, hostFunc},
		"callback, borrowed":      {borrowed, callback},
		"wait, borrowed":          {borrowed, waiting},
		"record, borrowed":        {borrowed, recording},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x, err := safe.Open(1)
				require.NoError(t, err)
				y := open(t, 0)
				g := newGraph(t, y)
				addNode(t, g, safe.EmptyNode())
				e, s := executable(t, g), stream(t, y)
				far, err := safe.NewStreamWith(y, safe.StreamOptions{NonBlocking: true})
				require.NoError(t, err)
				raw := rawStream(t, x)
				u, err := row.stream(x, raw)
				require.NoError(t, err)
				goOn := make(chan struct{})
				require.NoError(t, errors.Join(row.use(u, far, goOn), u.Close()))
				require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
				closed := background(func() { assert.NoError(t, x.Close()) })
				soon(t, background(func() { launch(t, e, s) }), "a launch on another device waits")
				close(goOn)
				<-closed
				require.NoError(t, far.Close())
			})
		})
	}
}
