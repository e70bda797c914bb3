//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Memory that other libraries know: Retain. Tests that look at live objects need the
// simulated driver; the others run on any.

package safe_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRetain: retained memory is freed after release, whatever happens to it before.
func TestRetain(t *testing.T) {
	for name, test := range map[string]struct {
		kind string // for the simulated driver
		make func(t *testing.T, x *safe.Context, s *safe.Stream) (closer, safe.Arg)
	}{
		"plain": {"memory", func(t *testing.T, x *safe.Context, _ *safe.Stream) (closer, safe.Arg) {
			b, err := safe.NewBufferWith[byte](x, 100, safe.BufferOptions{Plain: true})
			require.NoError(t, err)
			return b, b.Arg()
		}},
		"a slice": {"memory", func(t *testing.T, x *safe.Context, _ *safe.Stream) (closer, safe.Arg) {
			b, err := safe.NewBufferWith[byte](x, 100, safe.BufferOptions{Plain: true})
			require.NoError(t, err)
			part, err := b.Slice(10, 20)
			require.NoError(t, err)
			return b, part.Arg()
		}},
		"of a stream": {"async", func(t *testing.T, _ *safe.Context, s *safe.Stream) (closer, safe.Arg) {
			b, err := safe.NewBufferAsync[byte](s, 100)
			require.NoError(t, err)
			require.NoError(t, s.Synchronize())
			return b, b.Arg()
		}},
		"of an arena": {"async", func(t *testing.T, _ *safe.Context, s *safe.Stream) (closer, safe.Arg) {
			a, err := safe.NewArena(s, 1000)
			require.NoError(t, err)
			b, err := safe.NewBufferIn[byte](a, 100)
			require.NoError(t, err)
			return a, b.Arg()
		}},
		"pinned": {"host", func(t *testing.T, x *safe.Context, _ *safe.Stream) (closer, safe.Arg) {
			h, err := safe.NewPinned[byte](x, 100)
			require.NoError(t, err)
			return h, h.Arg()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			needsSimulated(t)
			startClean(t)
			x := open(t, 0)
			s := stream(t, x)
			memory, arg := test.make(t, x, s)
			require.Equal(t, 1, simulated.Live(test.kind))
			release, err := safe.Retain(arg, arg)
			require.NoError(t, err)
			more, err := safe.Retain(arg)
			require.NoError(t, err)
			require.NoError(t, memory.Close())
			require.NoError(t, x.CloseAll())
			_, err = safe.Retain(arg)
			assert.ErrorIs(t, err, safe.ErrClosed)
			release()
			release()
			drop()
			assert.Equal(t, 1, simulated.Live(test.kind), "the second retains it")
			more()
			assert.Eventually(t, func() bool { return simulated.Live(test.kind) == 0 }, atOnce, time.Millisecond)
		})
	}
}

func TestRetainRefused(t *testing.T) {
	needs(t, "cuMemAllocAsync")
	x := open(t, 0)
	b, s := buffer[int32](t, x, 4), stream(t, x)
	gone, err := safe.NewBuffer[int32](x, 4)
	require.NoError(t, err)
	arg := gone.Arg()
	require.NoError(t, gone.Close())
	var ofGraph safe.Arg
	g, err := s.Capture(func() error {
		b, err := safe.NewBufferAsync[int32](s, 4)
		ofGraph = b.Arg()
		return err
	})
	require.NoError(t, err)
	closing(t, g)
	for name, test := range map[string]struct {
		use  safe.Arg
		is   error
		says string
	}{
		"closed":            {arg, safe.ErrClosed, "cuda: Retain: already closed, or never opened: use 1"},
		"nil":               {(*safe.Buffer[int32])(nil).Arg(), safe.ErrClosed, "use 1"},
		"a value":           {safe.Val(7), safe.ErrInvalidArgument, "use 1 is a value"},
		"memory of a graph": {ofGraph, safe.ErrInvalidArgument, "use 1 is memory that launches of a graph allocate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := safe.Retain(b.Arg(), test.use)
			assert.ErrorIs(t, err, test.is)
			assert.ErrorContains(t, err, test.says)
		})
	}
	release, err := safe.Retain()
	require.NoError(t, err, "of nothing")
	release()
}

// TestRetainResource: a resource is released after release, which may be called by the
// function of another resource and by a host function.
func TestRetainResource(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	for name, call := range map[string]func(f func()){
		"goroutine": func(f func()) { f() },
		"host function": func(f func()) {
			_, err := s.LaunchHostFunc(f)
			require.NoError(t, err)
		},
		"resource": func(f func()) {
			r, err := safe.NewResource(x, f)
			require.NoError(t, err)
			require.NoError(t, r.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, gone := resource(t, x)
			release, err := safe.Retain(r.Arg())
			require.NoError(t, err)
			require.NoError(t, r.Close())
			drop()
			assert.False(t, closed(gone))
			call(release)
			released(t, gone)
		})
	}
}

// TestRetainDropped: the collector calls a release that the program forgets, and reports it.
func TestRetainDropped(t *testing.T) {
	x := open(t, 0)
	reported := collectErrors(t)
	safe.TrackLeaks(true)
	defer safe.TrackLeaks(false)
	r, gone := resource(t, x)
	_, err := safe.Retain(r.Arg())
	require.NoError(t, err)
	require.NoError(t, r.Close())
	assert.Eventually(t, func() bool { drop(); return closed(gone) }, time.Minute, time.Millisecond)
	var leak *safe.LeakError
	require.Eventually(t, func() bool { // an earlier test may have leaks, too
		return slices.ContainsFunc(reported(), func(err error) bool { return errors.As(err, &leak) && leak.Kind == "Retain" })
	}, time.Minute, time.Millisecond)
	assert.Contains(t, leak.Stack, "TestRetainDropped")
}

// TestRetainBeside retains and releases beside Close.
func TestRetainBeside(t *testing.T) {
	x := open(t, 0)
	for range 50 {
		b, err := safe.NewBuffer[int32](x, 4)
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				release, err := safe.Retain(b.Arg())
				if err != nil {
					assert.ErrorIs(t, err, safe.ErrClosed)
					return
				}
				release()
			})
		}
		assert.NoError(t, b.Close())
		all.Wait()
	}
}
