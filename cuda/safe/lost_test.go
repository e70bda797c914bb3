//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What waits when CUDA is lost, or when everything is closed, is told. The loss is of
// the whole process, so that each test has one of its own. On a GPU the streams that
// are stuck must have queues of the hardware of their own, or the kernel that faults
// never runs.
const connections = "CUDA_DEVICE_MAX_CONNECTIONS=32"

// A doomed process will lose CUDA, so that what it has is not closed.
type doomed struct {
	x     *safe.Context
	store *safe.Kernel
	bad   *safe.Stream
}

func newDoomed(t *testing.T) *doomed {
	t.Helper()
	x, err := safe.Open(0)
	require.NoError(t, err)
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	neverDropped = append(neverDropped, x, m)
	store, err := m.Kernel("store")
	require.NoError(t, err)
	d := &doomed{x: x, store: store}
	d.bad = d.stream(t)
	h, err := safe.NewPinned[uint64](x, 1)
	require.NoError(t, err)
	require.NoError(t, store.Launch(d.bad, one, h.Arg(), safe.Val(uint64(1)))) // loads it
	require.NoError(t, d.bad.Synchronize())
	t.Cleanup(func() {
		if !onGPU {
			simulated.Reset()
			simulated.Purge()
			simulated.Lost()
		}
	})
	neverDropped = append(neverDropped, h)
	return d
}

// neverDropped is not given back: the process is over soon.
var neverDropped []any

func (d *doomed) stream(t *testing.T) *safe.Stream {
	t.Helper()
	s, err := safe.NewStreamWith(d.x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	neverDropped = append(neverDropped, s)
	return s
}

// stuck is a stream that is stuck until it is opened.
func (d *doomed) stuck(t *testing.T) (s *safe.Stream, open func()) {
	t.Helper()
	s = d.stream(t)
	h, err := safe.NewPinned[uint32](d.x, 1)
	require.NoError(t, err)
	neverDropped = append(neverDropped, h)
	return s, stickOn(t, h, s)
}

// lose makes the process lose CUDA.
func (d *doomed) lose(t *testing.T) {
	t.Helper()
	if !onGPU {
		simulated.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
		return
	}
	require.NoError(t, d.store.Launch(d.bad, one, safe.Val(uint64(8)), safe.Val(uint64(1))))
}

// TestFutureAfterLoss: the future of a host function completes though the program
// makes no call.
func TestFutureAfterLoss(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		d := newDoomed(t)
		s, unstick := d.stuck(t)
		f, err := s.LaunchHostFunc(func() {})
		require.NoError(t, err)
		d.lose(t)
		if soon(t, f.Done(), "the future never completes") {
			assert.True(t, safe.IsFatal(f.Err()), "%v", f.Err())
		}
		unstick()
		assert.True(t, safe.IsFatal(s.Synchronize()))
		<-f.Done()
	}, connections)
}

// TestWaitersAfterLoss: so do hundreds of waits of every kind, for 16 streams that are stuck.
func TestWaitersAfterLoss(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		d := newDoomed(t)
		e, err := safe.NewEventWith(d.x, safe.EventOptions{DisableTiming: true})
		require.NoError(t, err)
		neverDropped = append(neverDropped, e)
		var streams []*safe.Stream
		for range 16 {
			s, _ := d.stuck(t)
			streams = append(streams, s)
		}
		require.NoError(t, streams[0].Record(e))
		told := make(chan error, 2000)
		n := 0
		for i := range 800 {
			if wait := waysToWait[i%len(waysToWait)]; i < 200 || !wait.few {
				require.NoError(t, wait.begin(streams[i%len(streams)], e, told))
				n++
			}
		}
		time.Sleep(100 * time.Millisecond)
		d.lose(t)
		late := time.After(atOnce)
		for i := range n {
			select {
			case err := <-told:
				require.True(t, safe.IsFatal(err), "%v", err)
			case <-late:
				require.Fail(t, "not all are told", "%d of %d", i, n)
			}
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			for _, s := range streams {
				assert.NoError(t, exceptFatal(s.Close()))
			}
		}()
		soon(t, closed, "Close hangs")
	}, connections)
}

// waysToWait are the ways to wait for work; few of some, as the driver calls them on a
// thread that all share.
var waysToWait = []struct {
	few   bool
	begin func(s *safe.Stream, e *safe.Event, told chan<- error) error
}{
	{false, func(s *safe.Stream, _ *safe.Event, told chan<- error) error {
		go func() { told <- s.Wait(context.Background()) }()
		return nil
	}},
	{false, func(_ *safe.Stream, e *safe.Event, told chan<- error) error {
		go func() { told <- e.Wait(context.Background()) }()
		return nil
	}},
	{false, func(s *safe.Stream, _ *safe.Event, told chan<- error) error {
		f := s.Completion()
		go func() { <-f.Done(); told <- f.Err() }()
		return nil
	}},
	{true, func(s *safe.Stream, _ *safe.Event, told chan<- error) error {
		f, err := s.LaunchHostFunc(func() {})
		go func() { <-f.Done(); told <- f.Err() }()
		return err
	}},
	{true, func(s *safe.Stream, _ *safe.Event, told chan<- error) error {
		return s.AddCallback(func(err error) { told <- err })
	}},
}

func exceptFatal(err error) error {
	if safe.IsFatal(err) {
		return nil
	}
	return err
}

// TestClosedWithHostFunc: everything is closed while a host function and a callback
// are pending. Both are called, or told.
func TestClosedWithHostFunc(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		for range 3 {
			x, err := safe.Open(0)
			require.NoError(t, err)
			m, err := safe.LoadFile(x, "testdata/kernels.ptx")
			require.NoError(t, err)
			spin, err := m.Kernel("spin")
			require.NoError(t, err)
			s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
			require.NoError(t, err)
			require.NoError(t, spin.Launch(s, one, safe.Val(uint64(100_000_000))))
			f, err := s.LaunchHostFunc(func() {})
			require.NoError(t, err)
			called := make(chan struct{})
			require.NoError(t, s.AddCallback(func(error) { close(called) }))
			require.NoError(t, errors.Join(s.Close(), m.Close(), x.Close()))
			soon(t, f.Done(), "the future never completes")
			soon(t, called, "the function of AddCallback is never called")
		}
		noViolation(t)
	})
}
