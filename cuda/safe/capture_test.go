//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Captures of one and of several streams, and of work from other goroutines. Runs on any
// driver.

package safe_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func executable(t *testing.T, g *safe.Graph) *safe.GraphExec {
	t.Helper()
	e, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, e)
	return e
}

// adding returns a graph that adds 1 to each value by saxpy.
func adding(t *testing.T, s *safe.Stream, saxpy *safe.Kernel, ones, y *safe.Buffer[float32]) *safe.Graph {
	t.Helper()
	g, err := s.Capture(func() error {
		return saxpy.Launch(s, perValue(y.Len()), safe.Val(uint32(y.Len())), safe.Val(float32(1)), ones.Arg(), y.Arg())
	})
	require.NoError(t, err)
	closing(t, g)
	return g
}

func ones(t *testing.T, x *safe.Context, n int) *safe.Buffer[float32] {
	b := buffer[float32](t, x, n)
	require.NoError(t, b.Fill(1))
	return b
}

func TestCapture(t *testing.T) {
	x := open(t, 0)
	const n = 100
	s, saxpy, one, y := stream(t, x), kernel(t, x, "saxpy"), ones(t, x, n), buffer[float32](t, x, n)
	for _, m := range factModes {
		t.Run(m.name, func(t *testing.T) {
			require.NoError(t, y.Fill(0))
			g, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: m.own}, func() error {
				status, err := s.CaptureStatus()
				assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_ACTIVE, status)
				return errors.Join(err, y.FillAsync(s, 4),
					saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), one.Arg(), y.Arg()))
			})
			require.NoError(t, err)
			status, err := s.CaptureStatus()
			require.NoError(t, err)
			assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_NONE, status)
			got := make([]float32, n)
			require.NoError(t, y.CopyToHost(got))
			assert.Zero(t, got[0], "nothing has run")
			e := executable(t, g)
			require.NoError(t, g.Close())
			require.NoError(t, e.Upload(s))
			require.NoError(t, e.Launch(s))
			require.NoError(t, y.CopyToHost(got), "after the launch")
			assert.EqualValues(t, 5, got[n-1])
		})
	}
}

// TestCaptureFork captures two streams; another goroutine enqueues on one of them.
func TestCaptureFork(t *testing.T) {
	x := open(t, 0)
	const n = 64
	s, side, fork, join := stream(t, x), stream(t, x), event(t, x), event(t, x)
	saxpy, one := kernel(t, x, "saxpy"), ones(t, x, n)
	a, b := buffer[float32](t, x, n), buffer[float32](t, x, n)
	g, err := s.Capture(func() error {
		require.NoError(t, a.FillAsync(s, 1))
		require.NoError(t, s.Record(fork))
		require.NoError(t, side.WaitEvent(fork))
		_, err := side.Query()
		assert.ErrorIs(t, err, safe.ErrCapturing)
		fed := make(chan error)
		go func() { fed <- b.FillAsync(side, 2) }()
		require.NoError(t, <-fed)
		require.NoError(t, side.Record(join))
		require.NoError(t, s.WaitEvent(join))
		return saxpy.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(1)), a.Arg(), b.Arg())
	})
	require.NoError(t, err)
	closing(t, g)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 3)
	e := executable(t, g)
	require.NoError(t, e.Launch(side))
	got := make([]float32, n)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 3, got[n-1])
	_ = one
	require.NoError(t, fork.Close())
	require.NoError(t, side.Synchronize(), "it captures no more")
}

func TestCaptureInfo(t *testing.T) {
	x := open(t, 0)
	s, y := stream(t, x), buffer[float32](t, x, 10)
	info, err := s.CaptureInfo()
	require.NoError(t, err)
	assert.Equal(t, safe.CaptureInfo{}, info)
	var first []safe.Node
	g, err := s.Capture(func() error {
		require.NoError(t, y.FillAsync(s, 1))
		info, err := s.CaptureInfo()
		require.NoError(t, err)
		assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_ACTIVE, info.Status)
		assert.NotZero(t, info.ID)
		assert.NotZero(t, info.Graph)
		require.Len(t, info.Dependencies, 1)
		assert.Equal(t, driver.CU_GRAPH_NODE_TYPE_MEMSET, info.Dependencies[0].Type())
		first = info.Dependencies
		require.NoError(t, y.FillAsync(s, 2))
		require.NoError(t, s.UpdateCaptureDependencies(first, nil, driver.CU_STREAM_SET_CAPTURE_DEPENDENCIES))
		return y.FillAsync(s, 3) // after the first, concurrent with the second
	})
	require.NoError(t, err)
	closing(t, g)
	edges, err := g.Edges()
	require.NoError(t, err)
	require.Len(t, edges, 2)
	for _, e := range edges {
		assert.Equal(t, first[0].Raw(), e.From.Raw())
	}
	err = s.UpdateCaptureDependencies(first, nil, 0)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_ILLEGAL_STATE)
	other, err := s.Capture(func() error {
		assert.ErrorIs(t, s.UpdateCaptureDependencies(first, nil, 0), safe.ErrForeignNode)
		return y.FillAsync(s, 0)
	})
	require.NoError(t, err)
	require.NoError(t, other.Close())
}

// TestCaptureAmongOthers: a capture in any mode survives 100 goroutines that use the
// package.
func TestCaptureAmongOthers(t *testing.T) {
	x := open(t, 0)
	const n = 256
	fill, side := kernel(t, x, "fill"), stream(t, x)
	for _, m := range factModes {
		t.Run(m.name, func(t *testing.T) {
			s, b := stream(t, x), buffer[float32](t, x, n)
			var others sync.WaitGroup
			g, err := s.CaptureWith(context.Background(), safe.CaptureOptions{Mode: m.own}, func() error {
				for i := range 100 {
					others.Go(func() {
						for r := range 5 {
							assert.NoError(t, oneRound(x, side, fill, n, float32(i+r), r%2 == 0))
							_, err := side.LaunchHostFunc(func() {})
							assert.NoError(t, err)
							assert.NoError(t, side.Completion().Err())
						}
					})
				}
				for range 20 {
					require.NoError(t, fill.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(5)), b.Arg()))
					runtime.GC()
					time.Sleep(time.Millisecond)
				}
				others.Wait()
				return nil
			})
			others.Wait()
			require.NoError(t, err)
			closing(t, g)
			require.NoError(t, executable(t, g).Launch(s))
			got := make([]float32, n)
			require.NoError(t, b.CopyToHost(got))
			assert.EqualValues(t, 5, got[n-1])
		})
	}
}
