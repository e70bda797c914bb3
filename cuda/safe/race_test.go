//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Helpers for the race_ and stuck_ tests. They run on any driver. CUDABIND_STORM, such as
// 2s, is the duration of each race; -short shortens it.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stormTime returns how long goroutines race.
func stormTime(t testing.TB) time.Duration {
	t.Helper()
	if text := os.Getenv("CUDABIND_STORM"); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		return d
	}
	if testing.Short() {
		return 20 * time.Millisecond
	}
	return 100 * time.Millisecond
}

// watch ends the program with the stacks of all goroutines if a test hangs: its objects
// could not be closed.
func watch(t testing.TB) {
	t.Helper()
	name := t.Name()
	timer := time.AfterFunc(hang+stormTime(t), func() {
		debug.SetTraceback("all")
		panic(name + " hangs")
	})
	t.Cleanup(func() { timer.Stop() })
}

// racers are goroutines that repeat their calls until they are stopped or one of them
// returns an error.
type racers struct {
	stop  atomic.Bool
	calls atomic.Int64
	all   sync.WaitGroup
	once  sync.Once
	err   error
}

// add starts n goroutines that call f.
func (c *racers) add(n int, f func() error) {
	for range n {
		c.all.Go(func() {
			for !c.stop.Load() {
				if err := f(); err != nil {
					c.once.Do(func() { c.err = err })
					c.stop.Store(true)
				}
				c.calls.Add(1)
			}
		})
	}
}

// end stops the goroutines and returns an error of one of them, if any.
func (c *racers) end() error {
	c.stop.Store(true)
	c.all.Wait()
	return c.err
}

// except returns err unless it is allowed, or means that the driver lacks a feature.
func except(err error, allowed ...error) error {
	for _, is := range append(allowed, safe.ErrNotSupported) {
		if errors.Is(err, is) {
			return nil
		}
	}
	return err
}

// stick makes a stream wait for a value in host memory, which open writes.
func stick(t testing.TB, x *safe.Context, s *safe.Stream) (open func()) {
	t.Helper()
	h := host[uint32](t, x, 1)
	open = stickOn(t, h, s)
	t.Cleanup(func() { open(); assert.NoError(t, s.SynchronizeBlocking()) }) // before anything is closed
	return open
}

func stickOn(t testing.TB, h *safe.Pinned[uint32], s *safe.Stream) (open func()) {
	t.Helper()
	word := &h.Data()[0]
	*word = 0
	require.NoError(t, safe.WaitValue(s, h.At(0), uint32(1), driver.CU_STREAM_WAIT_VALUE_GEQ))
	return sync.OnceFunc(func() { atomic.StoreUint32(word, 1) }) // the memory may be gone later
}

// fillQueue launches n times on a stuck stream, on another goroutine, which blocks when
// the queue is full. over is closed once all are launched.
func fillQueue(t testing.TB, s *safe.Stream, k *safe.Kernel, n int) (over chan struct{}) {
	t.Helper()
	over = make(chan struct{})
	var launched atomic.Int64
	kept := safe.Reserved(s)
	go func() {
		defer close(over)
		for range n {
			switch err := k.Launch(s, one); {
			case errors.Is(err, safe.ErrClosed) || !assert.NoError(t, err):
				return
			}
			launched.Add(1)
		}
	}()
	require.Eventually(t, func() bool { return safe.Reserved(s) > kept || isDone(over) }, hang, time.Millisecond, "no launch waits for room")
	t.Logf("%d launches are queued", launched.Load())
	return over
}

// uncounted enqueues n operations in one call, which counts for fewer.
func uncounted(t testing.TB, s *safe.Stream, m *safe.Buffer[uint32], n int) {
	t.Helper()
	require.NoError(t, s.EnqueueRaw(func(raw driver.CUstream) (err error) {
		for range n {
			err = errors.Join(err, driver.CuMemsetD32Async(m.Raw(), 1, 1, raw))
		}
		return err
	}, m.Arg()))
}

// untilBlocked waits until n no longer grows, as the call that would count next blocks.
func untilBlocked(n *atomic.Int64) int64 {
	for before := int64(-1); before != n.Load(); time.Sleep(150 * time.Millisecond) {
		before = n.Load()
	}
	return n.Load()
}

// onStacks counts the goroutines that have all of these functions on their stacks.
func onStacks(functions ...string) (n int) {
	all := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if !slices.ContainsFunc(functions, func(f string) bool { return !strings.Contains(stack, f+"(") }) {
			n++
		}
	}
	return n
}

// inside waits until a goroutine has all of these functions on its stack.
func inside(t testing.TB, functions ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return onStacks(functions...) > 0 }, hang, time.Millisecond, "%v", functions)
}

// soon waits for c to be closed, or reports what did not happen.
func soon(t testing.TB, c <-chan struct{}, what string, args ...any) bool {
	t.Helper()
	select {
	case <-c:
		return true
	case <-time.After(atOnce):
		return assert.Fail(t, fmt.Sprintf(what, args...))
	}
}

// noViolation checks that the simulated driver reports no violation, and resets its
// report.
func noViolation(t testing.TB) {
	t.Helper()
	if !onGPU && !assert.Empty(t, simulated.Violation()) {
		simulated.Reset()
	}
}

func synchronized(s *safe.Stream) error { return s.Wait(context.Background()) }
