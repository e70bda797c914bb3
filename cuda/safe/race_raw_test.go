//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures begun by raw calls. Other goroutines use the stream through this package
// before and after these calls, but not during them: calls that would invalidate the
// capture return an error, all others are captured. Runs on any driver.

package safe_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rawCapture captures on a stream by raw calls while f runs.
func rawCapture(t *testing.T, x *safe.Context, s *safe.Stream, mode driver.CUstreamCaptureMode, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamBeginCapture(s.Raw(), mode) }))
	f()
	var g driver.CUgraph
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamEndCapture(s.Raw(), &g) }))
	require.NotZero(t, g)
	require.NoError(t, driver.CuGraphDestroy(g))
}

// TestRawCaptures: several goroutines make every call of TestCaptureRaces on a stream
// that captures by raw calls, and on the legacy stream.
func TestRawCaptures(t *testing.T) {
	for _, row := range streamCalls() {
		if strings.HasSuffix(row.name, ": Close") || strings.HasSuffix(row.name, ": dropped") {
			continue // the memory is freed later, perhaps while the program begins a capture
		}
		t.Run(row.name, func(t *testing.T) {
			for _, where := range raceTargets {
				if where.name == "joined" {
					continue // below
				}
				t.Run(where.name, func(t *testing.T) {
					watch(t)
					a := newArena(t, where.options)
					s := where.streams(a)[0]
					call := row.make(a, s)
					if call == nil {
						t.Skip("not a call for this stream")
					}
					for _, m := range factModes {
						rawCapture(t, a.x, a.origin, m.mode, func() {
							var c racers
							c.add(4, func() error { return except(call(), row.allowed...) })
							time.Sleep(stormTime(t) / 10)
							assert.NoError(t, c.end(), m.name)
						})
					}
					assert.NoError(t, s.Synchronize())
					noViolation(t)
				})
			}
		})
	}
}

// TestRawCaptureIsJoined: a stream joins a raw capture by an event that this package
// records, and then rejects calls that would invalidate that capture.
func TestRawCaptureIsJoined(t *testing.T) {
	for _, m := range factModes {
		t.Run(m.name, func(t *testing.T) {
			watch(t)
			a := newArena(t, arenaOptions{})
			rawCapture(t, a.x, a.origin, m.mode, func() {
				require.NoError(t, a.origin.Record(a.fork))
				require.NoError(t, a.side.WaitEvent(a.fork))
				require.NoError(t, a.z.FillAsync(a.side, 1))
				for _, row := range askingCalls {
					var c racers
					call := row.make(a, a.side)
					c.add(3, func() error { return except(call(), row.allowed...) })
					time.Sleep(time.Millisecond)
					assert.NoError(t, c.end(), row.name)
				}
				_, err := a.fork.Query()
				assert.ErrorIs(t, err, safe.ErrCapturing)
				assert.ErrorIs(t, a.fork.Synchronize(), safe.ErrCapturing)
				assert.ErrorIs(t, a.x.Synchronize(), safe.ErrCapturing)
				_, err = a.origin.Capture(func() error { return nil })
				assert.ErrorIs(t, err, safe.ErrCapturing)
				require.NoError(t, errors.Join(a.side.Record(a.join), a.origin.WaitEvent(a.join)))
			})
			for _, s := range []*safe.Stream{a.origin, a.side} {
				assert.NoError(t, s.Synchronize())
			}
			noViolation(t)
		})
	}
}

// TestRawCaptureMeetsEndedOne: a wait for an event of a capture that has ended does not invalidate
// a capture of other code.
func TestRawCaptureMeetsEndedOne(t *testing.T) {
	x := open(t, 0)
	s, e := stream(t, x), event(t, x)
	g, err := s.Capture(func() error { return s.Record(e) })
	require.NoError(t, errors.Join(err, g.Close()))
	rawCapture(t, x, s, driver.CU_STREAM_CAPTURE_MODE_RELAXED, func() {
		assert.ErrorIs(t, s.WaitEvent(e), safe.ErrInvalidArgument)
	})
	noViolation(t)
}
