//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Functions of the program that are nil, panic or end their goroutine. Runs on any driver.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReleaseGoexit(t *testing.T) {
	x := open(t, 0)
	r, err := safe.NewResource(x, runtime.Goexit)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	time.Sleep(20 * time.Millisecond)
	r, gone := resource(t, x)
	require.NoError(t, r.Close())
	soon(t, gone, "nothing is released any more")
}

func TestOnReleaseGoexit(t *testing.T) {
	x := open(t, 0)
	g := newGraph(t, x)
	gone := make(chan struct{})
	require.NoError(t, g.OnRelease(runtime.Goexit))
	require.NoError(t, g.OnRelease(func() { close(gone) }))
	require.NoError(t, g.Close())
	soon(t, gone, "the second function does not run")
}

func TestOnErrorGoexit(t *testing.T) {
	x := open(t, 0)
	told := make(chan error, 10)
	settle(t) // other errors are told before
	safe.OnError(func(err error) { told <- err; runtime.Goexit() })
	defer safe.OnError(nil)
	r, err := safe.NewResource(x, func() { panic("no") })
	require.NoError(t, err)
	require.NoError(t, r.Close())
	var p *safe.PanicError
	require.ErrorAs(t, next(t, told), &p)
	assert.Equal(t, "no", p.Value)
	r, gone := resource(t, x)
	require.NoError(t, r.Close())
	soon(t, gone, "nothing is released any more")
}

// later has what runs a function on another goroutine or on a thread of CUDA's. Each entry returns
// once f is enqueued.
func later(x *safe.Context, s *safe.Stream) map[string]func(f func()) error {
	return map[string]func(f func()) error{
		"Stream.LaunchHostFunc": func(f func()) error { _, err := s.LaunchHostFunc(f); return err },
		"Stream.AddCallback":    func(f func()) error { return s.AddCallback(func(error) { f() }) },
		"Batch.LaunchHostFunc": func(f func()) error {
			b, err := safe.NewBatch(x)
			if err != nil {
				return err
			}
			return errors.Join(b.LaunchHostFunc(f), b.Submit(s))
		},
		"HostFuncNode": func(f func()) error {
			return launchedOnce(x, s, func(g *safe.Graph) error {
				_, err := g.Add(safe.HostFuncNode(f))
				return err
			})
		},
		"Graph.OnRelease": func(f func()) error {
			return launchedOnce(x, s, func(g *safe.Graph) error { return g.OnRelease(f) })
		},
		"NewResource": func(f func()) error {
			r, err := safe.NewResource(x, f)
			if err != nil {
				return err
			}
			return r.Close()
		},
	}
}

// launchedOnce launches a graph that change has changed, and closes it.
func launchedOnce(x *safe.Context, s *safe.Stream, change func(*safe.Graph) error) error {
	g, err := safe.NewGraph(x)
	if err != nil {
		return err
	}
	if err := change(g); err != nil {
		return errors.Join(err, g.Close())
	}
	e, err := g.Instantiate()
	if err != nil {
		return errors.Join(err, g.Close())
	}
	return errors.Join(e.Launch(s), s.Synchronize(), e.Close(), g.Close())
}

// TestPanicsReported: a panic that no caller can get goes to OnError, with its stack.
func TestPanicsReported(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	for op, run := range later(x, s) {
		t.Run(op, func(t *testing.T) {
			watch(t)
			h := newHook(t)
			require.NoError(t, run(func() { panic(op) }))
			p := reported[*safe.PanicError](t, h)
			assert.Equal(t, op, p.Value)
			assert.Contains(t, string(p.Stack), "functions_test.go")
			usable(t, x, s)
		})
	}
}

// TestOnErrorPanics: the function of OnError receives its own panic, once.
func TestOnErrorPanics(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	values := make(chan any, 10)
	safe.OnError(func(err error) {
		var p *safe.PanicError
		if errors.As(err, &p) { // and not that f was slow
			values <- p.Value
			panic("in OnError")
		}
	})
	t.Cleanup(func() { safe.OnError(nil) })
	for range 2 {
		f, err := s.LaunchHostFunc(func() { panic("in f") })
		require.NoError(t, err)
		_, err = f.Wait(context.Background())
		require.Error(t, err)
		assert.Equal(t, "in f", <-values)
		assert.Equal(t, "in OnError", <-values)
	}
	usable(t, x, s)
	assert.Empty(t, values)
}

// byCaller has the functions that the caller's goroutine calls, and waits for.
func byCaller(t *testing.T, x *safe.Context, s *safe.Stream) map[string]func(f func() error) error {
	k := kernel(t, x, "nothing")
	plain := func(_ any, err error) error { return err }
	return map[string]func(f func() error) error{
		"Context.WithCurrent":     x.WithCurrent,
		"Context.WithoutCaptures": func(f func() error) error { return x.WithoutCaptures(f) },
		"WithCaptureMode":         func(f func() error) error { return safe.WithCaptureMode(safe.CaptureRelaxed, f) },
		"Stream.Capture":          func(f func() error) error { return plain(s.Capture(f)) },
		"Stream.CaptureWith": func(f func() error) error {
			return plain(s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureGlobal}, f))
		},
		"Stream.CaptureExecutable": func(f func() error) error { return plain(s.CaptureExecutable(f)) },
		"Stream.CaptureTo":         func(f func() error) error { return s.CaptureTo(newGraph(t, x), safe.CaptureToOptions{}, f) },
		"Stream.Recapture":         func(f func() error) error { return s.Recapture(newGraph(t, x), safe.CaptureOptions{}, f) },
		"Stream.Scope": func(f func() error) error {
			if f == nil {
				return s.Scope(nil)
			}
			return s.Scope(func(*safe.Scope) error { return f() })
		},
		"Stream.Fork": func(f func() error) error {
			if f == nil {
				return s.Fork(1, nil)
			}
			return s.Fork(1, func([]*safe.Stream) error { return f() })
		},
		"Stream.EnqueueRaw": func(f func() error) error {
			if f == nil {
				return s.EnqueueRaw(nil)
			}
			return s.EnqueueRaw(func(driver.CUstream) error { return f() })
		},
		"EnqueueCalls": func(f func() error) error {
			if f == nil {
				return plain(safe.EnqueueCalls(safe.RawWork{Stream: s}, nil))
			}
			if !rt.CallsFunctions {
				return f()
			}
			var err error
			_, failed := safe.EnqueueCalls(safe.RawWork{Stream: s}, func(driver.CUstream) []safe.RawCall { err = f(); return nil })
			return errors.Join(err, failed)
		},
		"EnqueueRaw":  func(f func() error) error { return safe.EnqueueRaw(f, safe.RawWork{Stream: s}) },
		"Stream.Time": func(f func() error) error { return plain(s.Time(context.Background(), f)) },
		"Enqueue": func(f func() error) error {
			if f == nil {
				return plain(safe.Enqueue[int](s, nil).Wait(context.Background()))
			}
			return plain(safe.Enqueue(s, func(*safe.Stream) (int, error) { return 0, f() }).Wait(context.Background()))
		},
		"Kernel.MaxPotentialBlockSize": func(f func() error) error {
			_, _, err := k.MaxPotentialBlockSize(safe.BlockSizeOptions{SharedFor: func(int) uint64 { _ = f(); return 0 }})
			return err
		},
	}
}

// TestPanicsGoToTheCaller: a panic or runtime.Goexit leaves nothing locked and no capture open.
func TestPanicsGoToTheCaller(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	for op, call := range byCaller(t, x, s) {
		for name, end := range map[string]func() error{
			"panic":  func() error { panic("in f") },
			"Goexit": func() error { runtime.Goexit(); return nil },
		} {
			t.Run(op+" "+name, func(t *testing.T) {
				watch(t)
				var panicked any
				returned := false
				var err error
				var all sync.WaitGroup
				all.Go(func() {
					defer func() { panicked = recover() }()
					err = call(end)
					returned = true
				})
				all.Wait()
				if errors.Is(err, safe.ErrNotSupported) { // captures into graphs, with older drivers
					t.Skip(err)
				}
				assert.False(t, returned, err)
				if name == "panic" {
					assert.Equal(t, "in f", panicked)
				}
				usable(t, x, s)
			})
		}
	}
}

// usable checks that nothing is locked or capturing.
func usable(t *testing.T, x *safe.Context, s *safe.Stream) {
	t.Helper()
	g, err := s.Capture(func() error { return nothingRaw(s) })
	require.NoError(t, err)
	require.NoError(t, errors.Join(g.Close(), s.Synchronize(), x.Synchronize()))
	require.NoError(t, x.WithoutCaptures(func() error { return nil }))
}

// TestNilFunctions: each is refused before anything begins.
func TestNilFunctions(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	refused := func(op string, err error) {
		t.Run(op, func(t *testing.T) {
			require.ErrorIs(t, err, safe.ErrInvalidArgument)
			var e *safe.Error
			require.ErrorAs(t, err, &e)
			assert.Contains(t, e.Detail, "nil")
			usable(t, x, s)
		})
	}
	for op, call := range byCaller(t, x, s) {
		if op != "Kernel.MaxPotentialBlockSize" { // which has another way without a function
			refused(op, call(nil))
		}
	}
	for op, call := range later(x, s) {
		if op != "Stream.AddCallback" {
			refused(op, call(nil))
		}
	}
	refused("Stream.AddCallback", s.AddCallback(nil))
}

func TestNilContexts(t *testing.T) {
	x := open(t, 0)
	s, e := stream(t, x), event(t, x)
	var none context.Context
	f := s.Completion()
	for op, call := range map[string]func() error{
		"Stream.Wait":  func() error { return s.Wait(none) },
		"Event.Wait":   func() error { return e.Wait(none) },
		"Context.Wait": func() error { return x.Wait(none) },
		"Future.Wait":  func() error { _, err := f.Wait(none); return err },
		"Stream.Time":  func() error { _, err := s.Time(none, func() error { return nil }); return err },
		"Stream.CaptureWith": func() error {
			_, err := s.CaptureWith(none, safe.CaptureOptions{}, func() error { return nil })
			return err
		},
		"Stream.BeginCaptureWith": func() error { _, err := s.BeginCaptureWith(none, safe.CaptureOptions{}); return err },
		"Stream.Shutdown":         func() error { return s.Shutdown(none) },
	} {
		if op == "Stream.Shutdown" {
			defer func() { assert.ErrorIs(t, call(), safe.ErrInvalidArgument, op) }() // closes the stream
			continue
		}
		err := call()
		assert.ErrorIs(t, err, safe.ErrInvalidArgument, op)
		assert.ErrorContains(t, err, "the context.Context is nil", op)
	}
	usable(t, x, s)
}
