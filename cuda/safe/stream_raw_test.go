//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Raw calls and other libraries on streams of this package. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clearRaw clears a buffer as a library would.
func clearRaw[T any](b *safe.Buffer[T], raw driver.CUstream) error {
	return driver.CuMemsetD8Async(b.Raw(), 0, b.Size(), raw)
}

// clearByCalls enqueues clearRaw, in a single call of C where that is possible.
func clearByCalls[T any](b *safe.Buffer[T], s *safe.Stream) error {
	address := uint64(b.Raw())
	var calls [1]safe.RawCall
	made, err := safe.EnqueueCalls(safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg()}}, func(raw driver.CUstream) []safe.RawCall {
		calls[0] = safe.RawCall{Address: clearing(), Args: [8]uint64{address, 0, b.Size(), uint64(raw)}}
		return calls[:]
	})
	if made && calls[0].Result != 0 {
		return &safe.Error{Op: "EnqueueCalls", Err: driver.CUresult(calls[0].Result)}
	}
	if made || err != nil {
		return err
	}
	return s.EnqueueRaw(func(raw driver.CUstream) error { return clearRaw(b, raw) }, b.Arg())
}

// clearing is the address of cuMemsetD8Async, or 0.
var clearing = safe.Symbol(driver.Library, "cuMemsetD8Async")

// fillRaw launches the kernel fill as a library would.
func fillRaw(k *safe.Kernel, b *safe.Buffer[float32], v float32, raw driver.CUstream) error {
	n, address := uint32(b.Len()), b.Raw()
	params := []unsafe.Pointer{unsafe.Pointer(&n), unsafe.Pointer(&v), unsafe.Pointer(&address)}
	return driver.CuLaunchKernel(k.Raw(), 1, 1, 1, 128, 1, 1, 0, raw, &params[0], nil)
}

// library enqueues a memset, a kernel and a copy: out becomes v.
func library(k *safe.Kernel, in, out *safe.Buffer[float32], v float32) func(driver.CUstream) error {
	return func(raw driver.CUstream) error {
		return errors.Join(clearRaw(in, raw), fillRaw(k, in, v, raw), driver.CuMemcpyDtoDAsync(out.Raw(), in.Raw(), in.Size(), raw))
	}
}

// rawStreams are streams of every kind.
func rawStreams(t *testing.T, x *safe.Context) map[string]*safe.Stream {
	own := stream(t, x)
	blocking, err := safe.NewStream(x)
	require.NoError(t, err)
	closing(t, blocking)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	borrowed, err := safe.BorrowStream(blocking.Raw(), x, blocking)
	require.NoError(t, err)
	closing(t, borrowed)
	return map[string]*safe.Stream{"own": own, "blocking": blocking, "legacy": legacy, "borrowed": borrowed}
}

// TestEnqueueRaw: raw work runs in the stream's order, and a synchronous copy waits for
// it though a kernel keeps the stream busy.
func TestEnqueueRaw(t *testing.T) {
	x := open(t, 0)
	k := kernel(t, x, "fill")
	for name, s := range rawStreams(t, x) {
		t.Run(name, func(t *testing.T) {
			watch(t)
			busy, in, out := newGate(t, x), buffer[float32](t, x, 50), buffer[float32](t, x, 50)
			busy.shut(t, s)
			require.NoError(t, out.FillAsync(s, 1))
			require.NoError(t, s.EnqueueRaw(func(raw driver.CUstream) error {
				assert.Equal(t, x.Raw(), current(t))
				return library(k, in, out, 7)(raw)
			}, in.Arg(), out.Arg()))
			time.AfterFunc(20*time.Millisecond, busy.open)
			got := make([]float32, 50)
			require.NoError(t, out.CopyToHost(got))
			assert.Equal(t, float32(7), got[49])
			assert.Zero(t, current(t), "the thread is as before")
		})
	}
}

// TestEnqueueRawKeepsMemory: memory that is closed after the call is freed after the work.
func TestEnqueueRawKeepsMemory(t *testing.T) {
	watch(t)
	x := open(t, 0)
	k, busy := kernel(t, x, "fill"), newGate(t, x)
	s, out := stream(t, x), buffer[float32](t, x, 50)
	in, err := safe.NewBuffer[float32](x, 50)
	require.NoError(t, err)
	busy.shut(t, s)
	require.NoError(t, s.EnqueueRaw(library(k, in, out, 3), in.Arg(), out.Arg()))
	closed := make(chan error)
	go func() { closed <- in.Close() }()
	time.Sleep(20 * time.Millisecond)
	other := buffer[float32](t, x, 50) // which would get the same address
	require.NoError(t, other.Fill(0))
	busy.open()
	require.NoError(t, errors.Join(<-closed, s.Synchronize()))
	got := make([]float32, 50)
	require.NoError(t, out.CopyToHost(got))
	assert.Equal(t, float32(3), got[0])
	require.NoError(t, other.CopyToHost(got))
	assert.Equal(t, float32(0), got[0], "the work wrote to memory that was freed")
}

// TestEnqueueRawCaptured: raw work becomes part of the graph, which retains its memory.
func TestEnqueueRawCaptured(t *testing.T) {
	x := open(t, 0)
	k, s, out := kernel(t, x, "fill"), stream(t, x), buffer[float32](t, x, 50)
	for _, mode := range []safe.CaptureMode{safe.CaptureThreadLocal, safe.CaptureGlobal, safe.CaptureRelaxed} {
		t.Run(fmt.Sprint("mode ", mode), func(t *testing.T) {
			watch(t)
			in, err := safe.NewBuffer[float32](x, 50)
			require.NoError(t, err)
			g, err := s.CaptureWith(t.Context(), safe.CaptureOptions{Mode: mode}, func() error {
				return s.EnqueueRaw(func(raw driver.CUstream) error {
					var address driver.CUdeviceptr // as libraries do at their first call
					err := driver.CuMemAlloc(&address, 100)
					return errors.Join(err, driver.CuMemFree(address), library(k, in, out, 5)(raw))
				}, in.Arg(), out.Arg())
			})
			require.NoError(t, err)
			nodes, err := g.Nodes()
			require.NoError(t, err)
			assert.Len(t, nodes, 3)
			require.NoError(t, in.Close())
			e := executable(t, g)
			require.NoError(t, g.Close())
			for range 3 {
				other := buffer[float32](t, x, 50)
				require.NoError(t, errors.Join(other.Fill(0), out.Fill(0), e.Launch(s)))
				got := make([]float32, 50)
				require.NoError(t, out.CopyToHost(got))
				assert.Equal(t, float32(5), got[49])
				require.NoError(t, other.CopyToHost(got))
				assert.Equal(t, float32(0), got[0], "the graph wrote to memory that was freed")
			}
		})
	}
}

// TestEnqueueRawStatus: the function knows whether its work is captured, also in a capture that other code has begun.
func TestEnqueueRawStatus(t *testing.T) {
	x := open(t, 0)
	none, active := driver.CU_STREAM_CAPTURE_STATUS_NONE, driver.CU_STREAM_CAPTURE_STATUS_ACTIVE
	for name, s := range rawStreams(t, x) {
		t.Run(name, func(t *testing.T) {
			watch(t)
			is := func(want driver.CUstreamCaptureStatus) {
				t.Helper()
				asked := false
				require.NoError(t, s.EnqueueRaw(func(driver.CUstream) error {
					status, err := s.CaptureStatus()
					assert.NoError(t, err)
					assert.Equal(t, want, status)
					asked = true
					return nil
				}))
				assert.True(t, asked)
				status, err := s.CaptureStatus()
				require.NoError(t, err)
				assert.Equal(t, want, status, "after the function")
			}
			is(none)
			if name == "legacy" {
				return // cannot be captured
			}
			c, err := s.BeginCapture()
			require.NoError(t, err)
			is(active)
			g, err := c.End()
			require.NoError(t, err)
			require.NoError(t, g.Close())
			is(none)
			require.NoError(t, x.WithCurrent(func() error {
				return driver.CuStreamBeginCapture(s.Raw(), driver.CU_STREAM_CAPTURE_MODE_RELAXED)
			}))
			is(active)
			var raw driver.CUgraph
			require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamEndCapture(s.Raw(), &raw) }))
			require.NoError(t, driver.CuGraphDestroy(raw))
			is(none)
		})
	}
}

// TestEnqueueRawStatusClosed: a stream that is closed tells no status, although its function still runs.
func TestEnqueueRawStatusClosed(t *testing.T) {
	s, err := safe.NewStream(open(t, 0))
	require.NoError(t, err)
	closed := make(chan error)
	require.NoError(t, s.EnqueueRaw(func(driver.CUstream) error {
		go func() { closed <- s.Close() }()
		assert.Eventually(t, func() bool {
			_, err := s.CaptureStatus()
			return errors.Is(err, safe.ErrClosed)
		}, atOnce, time.Millisecond)
		return nil
	}))
	require.NoError(t, <-closed)
}

// TestEnqueueRawRefused: f is not called, and the stream remains usable.
func TestEnqueueRawRefused(t *testing.T) {
	x, y := open(t, 0), second(t)
	s, far, b := stream(t, x), buffer[float32](t, y, 10), buffer[float32](t, x, 10)
	closed, err := safe.NewBuffer[float32](x, 10)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	gone, err := safe.NewStream(x)
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	for _, test := range []struct {
		name string
		on   []safe.RawWork
		is   error
		says string
	}{
		{"no stream", nil, safe.ErrInvalidArgument, "no stream"},
		{"nil stream", []safe.RawWork{{}}, safe.ErrClosed, ""},
		{"closed stream", []safe.RawWork{{Stream: s}, {Stream: gone}}, safe.ErrClosed, ""},
		{"closed buffer", []safe.RawWork{{Stream: s, Uses: []safe.Arg{b.Arg(), closed.Arg()}}}, safe.ErrClosed, "use 1: its memory"},
		{"nil buffer", []safe.RawWork{{Stream: s, Uses: []safe.Arg{(*safe.Buffer[int])(nil).Arg()}}}, safe.ErrClosed, "use 0: its memory"},
		{"value", []safe.RawWork{{Stream: s, Uses: []safe.Arg{safe.Val(1)}}}, safe.ErrInvalidArgument, "use 0 is a value"},
		{"memory of another device", []safe.RawWork{{Stream: s}, {Stream: s, Uses: []safe.Arg{far.Arg()}}}, safe.ErrContextMismatch, "use 0 of stream 1 is memory of"},
	} {
		t.Run(test.name, func(t *testing.T) {
			watch(t)
			f := func() error { t.Error("f is called"); return nil }
			err := safe.EnqueueRaw(f, test.on...)
			assert.ErrorIs(t, err, test.is)
			assert.ErrorContains(t, err, "cuda: EnqueueRaw: ")
			assert.ErrorContains(t, err, test.says)
			if len(test.on) == 1 {
				err := test.on[0].Stream.EnqueueRaw(func(driver.CUstream) error { return f() }, test.on[0].Uses...)
				assert.ErrorIs(t, err, test.is)
				assert.ErrorContains(t, err, "cuda: Stream.EnqueueRaw: ")
			}
			require.NoError(t, s.Synchronize())
		})
	}
}

// rawCalls are the ways to call a function for raw calls.
func rawCalls(x *safe.Context, s, other *safe.Stream) map[string]func(f func() error) error {
	return map[string]func(f func() error) error{
		"Stream.EnqueueRaw": func(f func() error) error { return s.EnqueueRaw(func(driver.CUstream) error { return f() }) },
		"EnqueueRaw": func(f func() error) error {
			return safe.EnqueueRaw(f, safe.RawWork{Stream: other}, safe.RawWork{Stream: s})
		},
		"Context.WithoutCaptures": func(f func() error) error { return x.WithoutCaptures(f) },
	}
}

// TestRawFunctionEnds: everything is unlocked however f ends, and its error is returned.
func TestRawFunctionEnds(t *testing.T) {
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	library := errors.New("a status of a library")
	for op, call := range rawCalls(x, s, other) {
		for name, end := range map[string]func() error{
			"error":  func() error { return library },
			"code":   func() error { return driver.CUDA_ERROR_NOT_FOUND },
			"panic":  func() error { panic("in f") },
			"Goexit": func() error { runtime.Goexit(); return nil },
		} {
			t.Run(op+" "+name, func(t *testing.T) {
				watch(t)
				var err error
				var panicked any
				var all sync.WaitGroup
				all.Go(func() {
					defer func() { panicked = recover() }()
					err = call(end)
				})
				all.Wait()
				var e *safe.Error
				switch name {
				case "error":
					assert.ErrorIs(t, err, library)
					assert.EqualError(t, err, "cuda: "+op+": a status of a library")
				case "code":
					require.ErrorAs(t, err, &e)
					assert.Equal(t, driver.CUDA_ERROR_NOT_FOUND, e.Code)
					assert.Equal(t, op, e.Op)
				case "panic":
					assert.Equal(t, "in f", panicked)
				}
				g, err := s.Capture(func() error { return nothingRaw(s) })
				require.NoError(t, err)
				closing(t, g)
				require.NoError(t, errors.Join(s.Synchronize(), other.Synchronize(), x.Synchronize()))
			})
		}
	}
}

func nothingRaw(s *safe.Stream) error {
	return s.EnqueueRaw(func(driver.CUstream) error { return nil })
}

// TestRawFunctionCallsBack: f cannot use this package for calls that need CUDA, which
// could deadlock.
func TestRawFunctionCallsBack(t *testing.T) {
	x := open(t, 0)
	s, other, b, e := stream(t, x), stream(t, x), buffer[float32](t, x, 10), event(t, x)
	require.NoError(t, errors.Join(b.FillAsync(s, 0), b.FillAsync(other, 0)))
	for op, call := range rawCalls(x, s, other) {
		t.Run(op, func(t *testing.T) {
			watch(t)
			calls := map[string]func() error{
				"Query":         func() error { _, err := s.Query(); return err },
				"Query, other":  func() error { _, err := other.Query(); return err },
				"Wait":          func() error { return s.Wait(context.Background()) },
				"Blocking":      s.SynchronizeBlocking,
				"Record":        func() error { return s.Record(e) },
				"Launch":        func() error { return b.FillAsync(s, 0) },
				"Launch, other": func() error { return b.FillAsync(other, 0) },
				"Copy":          func() error { return b.CopyToHost(make([]float32, 10)) },
				"BeginCapture":  func() error { _, err := s.BeginCapture(); return err },
				"Synchronize":   x.Synchronize,
				"NewBuffer":     func() error { _, err := safe.NewBuffer[byte](x, 1); return err },
				"HostFunc":      func() error { _, err := s.LaunchHostFunc(func() {}); return err },
			}
			for name, nested := range rawCalls(x, s, other) {
				calls[name] = func() error { return nested(func() error { t.Error(name, " calls f"); return nil }) }
			}
			closed, err := safe.NewBuffer[float32](x, 10)
			require.NoError(t, err)
			require.NoError(t, closed.FillAsync(s, 0))
			require.NoError(t, call(func() error {
				for name, f := range calls {
					assert.ErrorIs(t, f(), safe.ErrInCallback, name)
				}
				assert.NoError(t, closed.Close(), "it is freed later")
				assert.Zero(t, s.Release())
				return nil
			}))
			require.NoError(t, errors.Join(b.FillAsync(s, 0), s.Synchronize(), other.Synchronize()))
		})
	}
}

// TestEnqueueRawInHostFunc: the driver's thread must not wait, nor make raw calls.
func TestEnqueueRawInHostFunc(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, other := stream(t, x), stream(t, x)
	for op, call := range rawCalls(x, s, other) {
		var err error
		f, launched := s.LaunchHostFunc(func() { err = call(func() error { return nil }) })
		require.NoError(t, launched)
		_, waited := f.Wait(t.Context())
		require.NoError(t, waited)
		assert.ErrorIs(t, err, safe.ErrInCallback, op)
	}
}

// TestEnqueueRawExcludes: while f runs, its streams are not used and not captured.
func TestEnqueueRawExcludes(t *testing.T) {
	x := open(t, 0)
	s, other, b := stream(t, x), stream(t, x), buffer[float32](t, x, 10)
	for _, op := range []string{"Stream.EnqueueRaw", "EnqueueRaw"} {
		t.Run(op, func(t *testing.T) {
			watch(t)
			inside, leave, over := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				over <- rawCalls(x, s, other)[op](func() error {
					close(inside)
					<-leave
					return nil
				})
			}()
			<-inside
			done, err := s.Query()
			require.NoError(t, err)
			assert.False(t, done)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err = s.BeginCaptureWith(ctx, safe.CaptureOptions{})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			enqueued := make(chan error, 1)
			go func() { enqueued <- b.FillAsync(s, 0) }()
			select {
			case <-enqueued:
				t.Error("work is enqueued while f runs")
			case <-time.After(20 * time.Millisecond):
			}
			close(leave)
			require.NoError(t, errors.Join(<-over, <-enqueued))
		})
	}
}

// TestEnqueueRawOnDevices: one function enqueues on streams of two devices.
func TestEnqueueRawOnDevices(t *testing.T) {
	watch(t)
	x, y := open(t, 0), second(t)
	a, b := buffer[float32](t, x, 10), buffer[float32](t, y, 10)
	s, r := stream(t, x), stream(t, y)
	both := []safe.RawWork{{Stream: r, Uses: []safe.Arg{b.Arg()}}, {Stream: s, Uses: []safe.Arg{a.Arg()}}}
	clear := func() error {
		assert.Equal(t, y.Raw(), current(t), "that of the first")
		err := clearRaw(b, r.Raw())
		return errors.Join(err, driver.CuCtxSetCurrent(x.Raw()), clearRaw(a, s.Raw()))
	}
	require.NoError(t, errors.Join(a.Fill(1), b.Fill(1), safe.EnqueueRaw(clear, both...)))
	assert.Zero(t, current(t))
	got := make([]float32, 10)
	for _, m := range []*safe.Buffer[float32]{a, b} {
		require.NoError(t, m.CopyToHost(got))
		assert.Equal(t, float32(0), got[9])
	}
	g, err := s.Capture(func() error {
		_, err := r.Capture(func() error {
			assert.ErrorIs(t, safe.EnqueueRaw(clear, both...), safe.ErrCapturing)
			return errors.New("enough")
		})
		assert.ErrorContains(t, err, "enough")
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
}

// TestEnqueueRawJoined: a function that enqueues on two streams of one capture.
func TestEnqueueRawJoined(t *testing.T) {
	watch(t)
	x := open(t, 0)
	s, r, fork, join, b := stream(t, x), stream(t, x), event(t, x), event(t, x), buffer[float32](t, x, 10)
	g, err := s.Capture(func() error {
		require.NoError(t, errors.Join(s.Record(fork), r.WaitEvent(fork)))
		require.NoError(t, safe.EnqueueRaw(func() error { return clearRaw(b, r.Raw()) }, safe.RawWork{Stream: s}, safe.RawWork{Stream: r, Uses: []safe.Arg{b.Arg()}}))
		return errors.Join(r.Record(join), s.WaitEvent(join))
	})
	require.NoError(t, err)
	closing(t, g)
	require.NoError(t, errors.Join(b.Fill(1), executable(t, g).Launch(s)))
	got := make([]float32, 10)
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, float32(0), got[0])
}

// TestEnqueueRawInAnyOrder: calls that name the same streams in different orders do not
// deadlock, also while one stream is full.
func TestEnqueueRawInAnyOrder(t *testing.T) {
	watch(t)
	x := open(t, 0)
	streams := []safe.RawWork{{Stream: stream(t, x)}, {Stream: stream(t, x)}, {Stream: stream(t, x)}}
	var c racers
	for i := range streams {
		c.add(2, func() error {
			order := []safe.RawWork{streams[i], streams[(i+1)%3], streams[(i+2)%3], streams[i]}
			return safe.EnqueueRaw(func() error { return nil }, order[:3+i%2]...)
		})
		c.add(1, func() error { return streams[i].Stream.CopyAttributes(streams[(i+1)%3].Stream) })
		c.add(1, func() error {
			g, err := streams[i].Stream.Capture(func() error { return nil })
			return errors.Join(err, g.Close())
		})
	}
	time.Sleep(stormTime(t) / 4)
	err := c.end()
	assert.NoError(t, except(err, safe.ErrCapturing))
	noViolation(t)
}

// TestWithoutCaptures: captures of the contexts wait for f, and f is refused during one.
func TestWithoutCaptures(t *testing.T) {
	watch(t)
	x, y := open(t, 0), second(t)
	s, r := stream(t, x), stream(t, y)
	inside, leave, over := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		over <- x.WithoutCaptures(func() error {
			close(inside)
			<-leave
			return driver.CuCtxSynchronize()
		}, y)
	}()
	<-inside
	for _, c := range []*safe.Stream{s, r} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := c.CaptureWith(ctx, safe.CaptureOptions{}, func() error { return nil })
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	}
	close(leave)
	require.NoError(t, <-over)
	g, err := r.Capture(func() error {
		f := func() error { t.Error("f is called"); return nil }
		assert.ErrorIs(t, x.WithoutCaptures(f, y), safe.ErrCapturing)
		assert.ErrorIs(t, y.WithoutCaptures(f), safe.ErrCapturing)
		return x.WithoutCaptures(driver.CuCtxSynchronize)
	})
	require.NoError(t, err)
	closing(t, g)
}

// TestWithoutCapturesTogether: functions that wait for each other, as the ranks of a
// communicator do, come together though captures that begin at different times wait for the first of them.
func TestWithoutCapturesTogether(t *testing.T) {
	for name, captures := range map[string]int{"a capture": 1, "two captures": 2, "four captures": 4} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			x, y := open(t, 0), second(t)
			first, other, over, begun := make(chan struct{}), make(chan struct{}), make(chan error, 2), make(chan error, captures)
			go func() {
				over <- x.WithoutCaptures(func() error { close(first); <-other; return nil })
			}()
			<-first
			for range captures {
				s := stream(t, x)
				go func() {
					g, err := s.CaptureWith(t.Context(), safe.CaptureOptions{Mode: safe.CaptureGlobal}, func() error { return nil })
					begun <- errors.Join(err, g.Close())
				}()
				time.Sleep(5 * time.Millisecond) // it waits
			}
			go func() { over <- y.WithoutCaptures(func() error { close(other); return nil }) }()
			require.NoError(t, errors.Join(<-over, <-over))
			for range captures {
				require.NoError(t, <-begun)
			}
		})
	}
}

// TestRawWaits: a function that waits for something else, and says so, holds up no release of an executable.
func TestRawWaits(t *testing.T) {
	for name, waits := range map[string]bool{"it says so": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			x := open(t, 0)
			s, other := stream(t, x), stream(t, x)
			released := make(chan struct{})
			r, err := safe.NewResource(x, func() { close(released) })
			require.NoError(t, err)
			b := buffer[float32](t, x, 4)
			g, err := other.Capture(func() error {
				return other.EnqueueRaw(func(raw driver.CUstream) error { return clearRaw(b, raw) }, b.Arg(), r.Arg())
			})
			require.NoError(t, err)
			e, err := g.Instantiate()
			require.NoError(t, err)
			require.NoError(t, errors.Join(g.Close(), r.Close()))
			begun, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				done <- safe.EnqueueRaw(func() error { close(begun); <-end; return nil }, safe.RawWork{Stream: s, Waits: waits})
			}()
			<-begun
			require.NoError(t, e.Close())
			limit := 50 * time.Millisecond
			if waits {
				limit = atOnce
			}
			select {
			case <-released:
				assert.True(t, waits)
			case <-time.After(limit):
				assert.False(t, waits)
			}
			close(end)
			require.NoError(t, <-done)
			<-released
		})
	}
}
