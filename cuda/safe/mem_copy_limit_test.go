//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests make synchronous copies from many goroutines. Two of them need the simulated
// driver, whose queues are finite.

package safe_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nowCalls are synchronous calls that wait for the work that uses the memory.
func nowCalls(t *testing.T, x *safe.Context, b *safe.Buffer[float32]) map[string]func() error {
	t.Helper()
	rows, err := b.Pitched(safe.Extent{Width: 4, Height: 4}, 0)
	require.NoError(t, err)
	return map[string]func() error{
		"copy to":   func() error { return b.CopyToHost(make([]float32, 16)) },
		"copy from": func() error { return b.CopyFromHost(make([]float32, 16)) },
		"zero":      func() error { return b.Fill(0) },
		"fill":      func() error { return b.Fill(1) },
		"rows":      func() error { return rows.CopyToHost(make([]float32, 16)) },
		"zero rows": func() error { return rows.Fill(0) },
	}
}

// TestCopiesHoldNoThreads: a thousand copies that wait for a stuck stream block no
// threads.
func TestCopiesHoldNoThreads(t *testing.T) {
	x := open(t, 0)
	g, s, b := newGate(t, x), stream(t, x), buffer[float32](t, x, 16)
	calls := nowCalls(t, x, b)
	g.shut(t, s)
	require.NoError(t, b.FillAsync(s, 0))
	var all sync.WaitGroup
	const each = 50
	for range each {
		for name, call := range calls {
			all.Go(func() { assert.NoError(t, call(), name) })
		}
	}
	// one of them polls
	assert.Eventually(t, func() bool { return parked(t, "(*waiter).wait") >= each*len(calls)-1 }, hang, time.Millisecond, "copies hold threads")
	g.open()
	all.Wait()
}

// TestCopiesBesideStuck: copies that wait for a stuck stream do not hold up other copies.
func TestCopiesBesideStuck(t *testing.T) {
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	stuck, idle := buffer[float32](t, x, 16), buffer[float32](t, x, 16)
	g.shut(t, s)
	require.NoError(t, stuck.FillAsync(s, 0))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { assert.NoError(t, stuck.CopyToHost(make([]float32, 16))) })
	}
	time.Sleep(50 * time.Millisecond)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			assert.NoError(t, idle.CopyToHost(make([]float32, 16)))
		}
	}()
	select {
	case <-done:
	case <-time.After(atOnce):
		t.Error("copies of other memory wait as well")
	}
	g.open()
	all.Wait()
}

// TestCopiesInCallback: a host function does not wait for a lock, even while a launch
// waits for room on the stream that uses the memory.
func TestCopiesInCallback(t *testing.T) {
	x := open(t, 0)
	k, g, first, s := kernel(t, x, "nothing"), newGate(t, x), stream(t, x), stream(t, x)
	b, e := buffer[float32](t, x, 16), event(t, x)
	calls := nowCalls(t, x, b)
	require.NoError(t, b.Fill(0)) // the pool of internal streams has one now
	begin, over := make(chan struct{}), make(chan struct{})
	g.shut(t, first)
	require.NoError(t, b.FillAsync(s, 0))
	_, err := first.LaunchHostFunc(func() {
		defer close(over)
		<-begin
		for name, call := range calls {
			assert.ErrorIs(t, call(), safe.ErrInCallback, name)
		}
	})
	require.NoError(t, err)
	require.NoError(t, first.Record(e))
	require.NoError(t, s.WaitEvent(e)) // s continues after the host function
	g.open()
	launched := fillQueue(t, s, k, queued)
	close(begin)
	select {
	case <-over:
	case <-time.After(atOnce):
		t.Fatal("the host function waits for the launch, which waits for the host function")
	}
	<-launched
}

// TestCopiesInCallbackBesidePools: nor does it wait for the destruction of a pool.
func TestCopiesInCallbackBesidePools(t *testing.T) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[float32](t, x, 16)
	calls := nowCalls(t, x, b)
	require.NoError(t, b.Fill(0)) // the pool of internal streams has one now
	begin := make(chan struct{})
	f, err := s.LaunchHostFunc(func() {
		<-begin
		for name, call := range calls {
			assert.ErrorIs(t, call(), safe.ErrInCallback, name)
		}
	})
	require.NoError(t, err)
	safe.WithoutWaits(func() {
		close(begin)
		soon(t, f.Done(), "the host function waits")
	})
}

// TestPeerCopyInCallback: nor does it wait for a change of access to copy between devices.
func TestPeerCopyInCallback(t *testing.T) {
	x, y := open(t, 0), second(t)
	s, other, a, b := stream(t, x), stream(t, x), buffer[float32](t, x, 16), buffer[float32](t, y, 16)
	begin := make(chan struct{})
	f, err := s.LaunchHostFunc(func() {
		<-begin
		err := a.CopyFromAsync(other, b)
		assert.ErrorIs(t, err, safe.ErrInCallback)
		assert.ErrorContains(t, err, "Buffer.CopyFromAsync")
	})
	require.NoError(t, err)
	safe.WithoutPeerCopies(func() {
		close(begin)
		soon(t, f.Done(), "the host function waits")
	})
	assert.Zero(t, safe.Pending(other))
}

// BenchmarkCopyToHost measures a copy that has nothing to wait for.
func BenchmarkCopyToHost(b *testing.B) {
	x := open(b, 0)
	s, m := stream(b, x), buffer[float32](b, x, 16)
	dst := make([]float32, 16)
	require.NoError(b, m.FillAsync(s, 0))
	require.NoError(b, s.Synchronize())
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			if err := m.CopyToHost(dst); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("after work", func(b *testing.B) {
		for b.Loop() {
			if m.FillAsync(s, 0) != nil || m.CopyToHost(dst) != nil {
				b.Fatal("fails")
			}
		}
	})
}
