//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Calls on events and whole contexts race with captures, like the calls of
// TestCaptureRaces. Runs on any driver; green contexts need CUDA 12.4.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A wideCall is a call that concerns more than one stream.
type wideCall struct {
	name    string
	options arenaOptions
	make    func(a *arena) func() error
	allowed []error // besides nil
	ends    []error // of captures, besides nil
}

var wideCalls = []wideCall{
	{"Event.Query", arenaOptions{}, func(a *arena) func() error {
		return func() error { _, err := a.inside.Query(); return err }
	}, inCapture, nil},
	{"Event.Synchronize", arenaOptions{}, func(a *arena) func() error { return a.inside.Synchronize }, inCapture, nil},
	{"Event.Wait that is cancelled", arenaOptions{}, func(a *arena) func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Microsecond)
			defer cancel()
			return except(a.inside.Wait(ctx), context.DeadlineExceeded)
		}
	}, inCapture, nil},
	{"Event.Since", arenaOptions{}, func(a *arena) func() error {
		return func() error { _, err := a.inside.Since(a.recorded); return err }
		// Not ready if another goroutine has just recorded it.
	}, []error{safe.ErrCapturing, driver.CUDA_ERROR_NOT_READY, driver.CUDA_ERROR_INVALID_HANDLE}, nil},
	{"Event.Since, from it", arenaOptions{}, func(a *arena) func() error {
		return func() error { _, err := a.recorded.Since(a.inside); return err }
	}, []error{safe.ErrCapturing, driver.CUDA_ERROR_NOT_READY, driver.CUDA_ERROR_INVALID_HANDLE}, nil},
	{"Record elsewhere", arenaOptions{}, func(a *arena) func() error {
		return func() error { return a.other.Record(a.inside) }
	}, inCapture, nil},
	{"Record elsewhere, and Query", arenaOptions{}, func(a *arena) func() error {
		return func() error {
			err := except(a.other.Record(a.inside), safe.ErrCapturing)
			_, asked := a.inside.Query()
			return errors.Join(err, asked)
		}
	}, inCapture, nil},
	// A stream that waits for the event joins, and its work returns only by another
	// event. After the capture, the event is unusable.
	{"WaitEvent elsewhere", arenaOptions{}, func(a *arena) func() error {
		return func() error { return a.other.WaitEvent(a.inside) }
	}, []error{safe.ErrCapturing, safe.ErrInvalidArgument, driver.CUDA_ERROR_CAPTURED_EVENT}, []error{driver.CUDA_ERROR_STREAM_CAPTURE_UNJOINED}},
	{"Event made, recorded and closed", arenaOptions{}, func(a *arena) func() error {
		return func() error {
			e, err := safe.NewEvent(a.x)
			if err != nil {
				return err
			}
			return errors.Join(except(a.origin.Record(e), safe.ErrCapturing), e.Close())
		}
	}, nil, nil},

	{"Context.Synchronize", arenaOptions{}, func(a *arena) func() error { return a.x.Synchronize }, inCapture, nil},
	{"Context.Synchronize, blocking streams", arenaOptions{blocking: true}, func(a *arena) func() error { return a.x.Synchronize }, inCapture, nil},
	{"Context.WithoutCaptures", arenaOptions{}, func(a *arena) func() error {
		return func() error { return a.x.WithoutCaptures(driver.CuCtxSynchronize) }
	}, inCapture, nil},
	{"Context.MemoryInfo", arenaOptions{}, func(a *arena) func() error {
		return func() error { _, _, err := a.x.MemoryInfo(); return err }
	}, inCapture, nil},
	{"NewBuffer, Zero and Close", arenaOptions{blocking: true}, func(a *arena) func() error {
		return func() error {
			b, err := safe.NewBuffer[uint32](a.x, 64)
			if err != nil {
				return err
			}
			return errors.Join(b.Fill(0), b.CopyToHost(make([]uint32, 64)), b.Close())
		}
	}, nil, nil},
	{"NewPinned and Close", arenaOptions{blocking: true}, func(a *arena) func() error {
		return func() error {
			h, err := safe.NewPinned[uint32](a.x, 64)
			if err != nil {
				return err
			}
			return h.Close()
		}
	}, nil, nil},
	{"NewStream, work and Close", arenaOptions{blocking: true}, func(a *arena) func() error {
		return func() error {
			s, err := safe.NewStream(a.x)
			if err != nil {
				return err
			}
			return errors.Join(a.nothing.Launch(s, one), s.Synchronize(), s.Close())
		}
	}, nil, nil},
	// If modules are loaded lazily, the first launch loads the kernel.
	{"Load and Launch", arenaOptions{blocking: true}, func(a *arena) func() error {
		return func() error {
			m, err := safe.LoadFile(a.x, "testdata/kernels.ptx")
			if err != nil {
				return err
			}
			k, err := m.Kernel("nothing")
			return errors.Join(err, k.Launch(a.other, one), m.Close())
		}
	}, nil, nil},

	{"GreenContext.Record", arenaOptions{green: true}, func(a *arena) func() error {
		e := event(a.t, a.x)
		return func() error { return a.green.Record(e) }
	}, inCapture, nil},
	{"GreenContext.Record of a captured event", arenaOptions{green: true}, func(a *arena) func() error {
		return func() error { return a.green.Record(a.inside) }
	}, inCapture, nil},
	{"GreenContext.WaitEvent", arenaOptions{green: true}, func(a *arena) func() error {
		return func() error { return a.green.WaitEvent(a.recorded) }
	}, inCapture, nil},
	{"GreenContext.WaitEvent of a captured event", arenaOptions{green: true}, func(a *arena) func() error {
		return func() error { return a.green.WaitEvent(a.inside) }
	}, inCapture, nil},
	{"GreenContext.Synchronize", arenaOptions{green: true}, func(a *arena) func() error { return a.green.Synchronize }, inCapture, nil},
	{"GreenContext.SMResource", arenaOptions{green: true}, func(a *arena) func() error {
		return func() error {
			_, err := a.green.SMResource()
			return err
		}
	}, nil, nil},
	{"Stream.GreenContext and SMs", arenaOptions{green: true}, func(a *arena) func() error {
		return func() error {
			_, err := a.side.GreenContext()
			_, sms := a.origin.SMResource()
			return errors.Join(except(err, safe.ErrCapturing), except(sms, safe.ErrCapturing))
		}
	}, nil, nil},
	{"GreenContext.NewStream and Close", arenaOptions{green: true}, func(a *arena) func() error {
		return func() error {
			s, err := a.green.NewStreamWith(safe.StreamOptions{NonBlocking: true})
			if err != nil {
				return err
			}
			_, err = s.Query()
			return errors.Join(err, s.Close())
		}
	}, nil, nil},
}

// TestCaptureRacesWide races calls on events, contexts and green contexts with captures.
func TestCaptureRacesWide(t *testing.T) {
	for _, row := range wideCalls {
		t.Run(row.name, func(t *testing.T) {
			watch(t)
			a := newArena(t, row.options)
			call := row.make(a)
			a.race(3, false, row.ends, func() error { return except(call(), row.allowed...) })
		})
	}
}

// TestWaitBesideCapturedRecord: starting to wait for a pending event while a capture
// records it does not invalidate the capture.
func TestWaitBesideCapturedRecord(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, busy := stream(t, x), stream(t, x)
	e, err := safe.NewEventWith(x, safe.EventOptions{DisableTiming: true}) // others fill the queue of busy
	require.NoError(t, err)
	closing(t, e)
	unstick := stick(t, x, busy)
	var c racers
	c.add(6, func() error { _, err := s.CaptureInfo(); return err }) // sometimes holds the graph's lock
	c.add(3, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Microsecond)
		defer cancel()
		defer time.Sleep(200 * time.Microsecond)
		return except(e.Wait(ctx), context.DeadlineExceeded, safe.ErrCapturing)
	})
	n := 0
	for end := time.Now().Add(4 * stormTime(t)); time.Now().Before(end); n++ {
		require.NoError(t, except(busy.Record(e), safe.ErrCapturing)) // pending
		g, err := s.Capture(func() error {
			for range 40 {
				switch err := s.Record(e); {
				case err == nil:
					time.Sleep(300 * time.Microsecond)
					return nil
				case !errors.Is(err, safe.ErrCapturing): // returned during a wait
					return err
				}
			}
			return nil
		})
		if !assert.NoError(t, err, "capture %d", n) {
			break
		}
		require.NoError(t, g.Close())
	}
	assert.NoError(t, c.end())
	unstick()
	assert.NoError(t, busy.Synchronize())
	noViolation(t)
}

// TestEventOfTwoCaptures: two captures record one event at once.
func TestEventOfTwoCaptures(t *testing.T) {
	watch(t)
	x := open(t, 0)
	e := event(t, x)
	captures := func() func() error {
		s, b := stream(t, x), buffer[uint32](t, x, 16)
		return func() error {
			g, err := s.Capture(func() error {
				return errors.Join(b.FillAsync(s, 0), except(s.Record(e), safe.ErrCapturing), b.FillAsync(s, 0))
			})
			if err != nil {
				return err
			}
			return g.Close()
		}
	}
	var c racers
	for range 3 {
		c.add(1, captures())
	}
	c.add(1, func() error { _, err := e.Query(); return except(err, safe.ErrCapturing) })
	time.Sleep(2 * stormTime(t))
	assert.NoError(t, c.end())
	noViolation(t)
}

// TestEventMeetsCaptures: two captures that meet through an event stay separate and
// valid.
func TestEventMeetsCaptures(t *testing.T) {
	watch(t)
	x := open(t, 0)
	a, b, e := stream(t, x), stream(t, x), event(t, x)
	first, err := a.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	require.NoError(t, err)
	require.NoError(t, a.Record(e))
	second, err := b.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
	require.NoError(t, err)
	assert.ErrorIs(t, b.WaitEvent(e), safe.ErrCapturing)
	for _, c := range []*safe.Capture{first, second} {
		g, err := c.End()
		if assert.NoError(t, err) {
			require.NoError(t, g.Close())
		}
	}
	noViolation(t)
}

// TestEventClosedInCapture: an event recorded in an open capture is closed. A stream that
// waited for it still joins, and the graph has its work.
func TestEventClosedInCapture(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, side, b := stream(t, x), stream(t, x), buffer[uint32](t, x, 16)
	for end := time.Now().Add(stormTime(t)); time.Now().Before(end); {
		fork, err := safe.NewEvent(x)
		require.NoError(t, err)
		join, err := safe.NewEvent(x)
		require.NoError(t, err)
		closed := make(chan error, 2)
		g, err := s.Capture(func() error {
			if err := errors.Join(s.Record(fork), side.WaitEvent(fork)); err != nil {
				return err
			}
			go func() { closed <- fork.Close() }()
			err := errors.Join(b.FillAsync(side, 7), side.Record(join), s.WaitEvent(join))
			go func() { closed <- join.Close() }()
			return errors.Join(err, b.FillAsync(s, 8))
		})
		require.NoError(t, errors.Join(<-closed, <-closed))
		require.NoError(t, err)
		nodes, err := g.Nodes()
		require.NoError(t, err)
		require.Len(t, nodes, 2)
		require.NoError(t, g.Close())
	}
	noViolation(t)
}

// TestRecordBesideBegin: an event recorded while a capture begins is either in the
// capture or not, and so are the streams that wait for it: their captured work is
// retained.
func TestRecordBesideBegin(t *testing.T) {
	drivertest.InChild(t, recordsBesideBegin) // a failure makes CUDA unusable
}

func recordsBesideBegin(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, side, e, join := stream(t, x), stream(t, x), event(t, x), event(t, x)
	n, joined := 0, 0
	for end := time.Now().Add(2 * stormTime(t)); time.Now().Before(end); n++ {
		b, err := safe.NewBuffer[uint32](x, 64)
		require.NoError(t, err)
		recorded := make(chan error, 1)
		go func() {
			var err error
			for range 10 {
				err = errors.Join(err, s.Record(e))
			}
			recorded <- err
		}()
		g, err := s.Capture(func() error {
			if err := <-recorded; err != nil {
				return err
			}
			if err := side.WaitEvent(e); err != nil {
				return fmt.Errorf("waiting: %w", err)
			}
			if status, _ := side.CaptureStatus(); status == 0 {
				return nil
			}
			joined++
			return errors.Join(b.FillAsync(side, 0), side.Record(join), s.WaitEvent(join))
		})
		require.NoError(t, err, "capture %d", n)
		ex, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, b.Close())
		require.NoError(t, ex.Launch(s))
		require.NoError(t, s.Synchronize(), "the graph of capture %d, of which %d were joined", n, joined)
		require.NoError(t, errors.Join(ex.Close(), g.Close()))
	}
	t.Logf("%d captures, %d joined", n, joined)
	noViolation(t)
}

// TestWaitBesideFirstRecord: a wait for an event in a capture does not invalidate it beside the
// first record of the event, which blocks in the driver here.
func TestWaitBesideFirstRecord(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		s, other, e, m := stream(t, x), stream(t, x), event(t, x), plainBuffer[uint32](t, x, 1)
		require.NoError(t, errors.Join(m.FillAsync(s, 0), s.Synchronize()))
		unstick := stick(t, x, s)
		uncounted(t, s, m, 1019)
		recorded := make(chan error, 1)
		g, err := other.Capture(func() error {
			go func() { recorded <- s.Record(e) }()
			time.Sleep(50 * time.Millisecond)
			time.AfterFunc(100*time.Millisecond, unstick)
			return errors.Join(except(other.WaitEvent(e), safe.ErrCapturing), m.FillAsync(other, 0))
		})
		require.NoError(t, errors.Join(err, <-recorded, g.Close()))
		noViolation(t)
	})
}

// TestRecordAfterCanceledWait: an event can be recorded in a capture once a wait for it has been
// given up.
func TestRecordAfterCanceledWait(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, other, e := stream(t, x), stream(t, x), event(t, x)
	unstick := stick(t, x, s)
	for range 100 {
		require.NoError(t, s.Record(e))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		require.ErrorIs(t, e.Wait(ctx), context.DeadlineExceeded)
		cancel()
		g, err := other.Capture(func() error { return other.Record(e) })
		require.NoError(t, err)
		require.NoError(t, g.Close())
	}
	unstick()
	noViolation(t)
}

// TestWaitBesideBlockedFirstRecord: a call with an event does not wait for the event's first record
// for long, which blocks in the driver. Neither do queries of the event afterwards.
func TestWaitBesideBlockedFirstRecord(t *testing.T) {
	for _, c := range []struct {
		name    string
		capture bool
		call    func(s *safe.Stream, e *safe.Event) error
		err     error
	}{
		{"wait", false, (*safe.Stream).WaitEvent, nil},
		{"wait in a capture", true, (*safe.Stream).WaitEvent, safe.ErrCapturing},
		{"record in a capture", true, (*safe.Stream).Record, safe.ErrCapturing},
	} {
		t.Run(c.name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				x := open(t, 0)
				s, other, e, m := stream(t, x), stream(t, x), event(t, x), plainBuffer[uint32](t, x, 1)
				require.NoError(t, errors.Join(m.FillAsync(s, 0), s.Synchronize()))
				unstick := stick(t, x, s)
				uncounted(t, s, m, 1019)
				var capture *safe.Capture
				if c.capture {
					var err error
					capture, err = other.BeginCaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureRelaxed})
					require.NoError(t, err)
				}
				recorded, done := make(chan error, 1), make(chan struct{})
				go func() { recorded <- s.Record(e) }()
				require.Eventually(t, func() bool { return onStacks("rt.Record") > 0 || len(recorded) > 0 }, hang, time.Millisecond)
				time.Sleep(50 * time.Millisecond)
				if len(recorded) > 0 {
					t.Skip("this driver's queue has room for the record")
				}
				go func() {
					defer close(done)
					assert.ErrorIs(t, c.call(other, e), c.err)
					_, err := e.Query()
					assert.NoError(t, err)
				}()
				soon(t, done, "the call waits for the record")
				unstick()
				<-done
				require.NoError(t, <-recorded)
				if c.capture {
					require.NoError(t, end(capture))
				}
				noViolation(t)
			})
		})
	}
}
