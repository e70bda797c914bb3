//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// room is how much a stream takes before a call waits.
const room = 1020

// aside makes a call on a thread of its own, with the context current.
func aside(t *testing.T, c driver.CUcontext, do func() error) (returned <-chan error) {
	over := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := driver.CuCtxPushCurrent(c); err != nil {
			over <- err
			return
		}
		err := do()
		_ = driver.CuCtxPopCurrent(nil)
		over <- err
	}()
	return over
}

// blocks tells whether a call does not return for some time: for long, on a busy machine, if it is to return.
func blocks(over <-chan error, want bool) bool {
	limit := time.Minute
	if want {
		limit = 50 * time.Millisecond
	}
	select {
	case <-over:
		return false
	case <-time.After(limit):
		return true
	}
}

func untimed(t *testing.T) (e driver.CUevent) {
	require.NoError(t, driver.CuEventCreate(&e, driver.CU_EVENT_DISABLE_TIMING))
	t.Cleanup(func() { require.NoError(t, driver.CuEventDestroy(e)) })
	return e
}

func TestFullQueue(t *testing.T) {
	for _, c := range []struct {
		name   string
		blocks bool
		do     func(*stage) func() error
	}{
		{"memsets", true, func(s *stage) func() error {
			return func() error { return driver.CuMemsetD32Async(s.memory, 0, 1, s.a) }
		}},
		{"kernels", true, func(s *stage) func() error {
			f := kernel(s.t, "nothing")
			return func() error { return launch(f, s.a, 0) }
		}},
		{"graphs", true, func(s *stage) func() error {
			return func() error { return driver.CuGraphLaunch(s.idle, s.a) }
		}},
		{"records", true, func(s *stage) func() error {
			return func() error { return driver.CuEventRecord(s.fresh, s.a) }
		}},
		{"records without time", false, func(s *stage) func() error {
			e := untimed(s.t)
			return func() error { return driver.CuEventRecord(e, s.a) }
		}},
		{"event waits", false, func(s *stage) func() error {
			require.NoError(s.t, driver.CuEventRecord(s.fresh, s.a))
			return func() error { return driver.CuStreamWaitEvent(s.a, s.fresh, 0) }
		}},
		{"host functions", false, func(s *stage) func() error {
			count := newCounter(s.t)
			return func() error { return driver.CuLaunchHostFunc(s.a, count.fn, count.data()) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := primary(t, 0)
			s := newStage(t)
			defer s.end()
			do := c.do(s)
			open := gate(t, s.a)
			for range room - 1 {
				require.NoError(t, do())
			}
			over := aside(t, x, do)
			assert.Equal(t, c.blocks, blocks(over, c.blocks))
			open()
			if c.blocks {
				require.NoError(t, <-over)
			}
			require.NoError(t, driver.CuStreamSynchronize(s.a))
		})
	}
}

// TestHeldUpByFullQueue: a call that waits for room holds up some others.
func TestHeldUpByFullQueue(t *testing.T) {
	for _, c := range []struct {
		name string
		held bool
		do   func(*stage) error
	}{
		{"query", true, query(onA).do},
		{"query of another stream", false, query(onOther).do},
		{"is capturing", false, isCapturing(onA).do},
		{"id", false, id(onA).do},
		{"query of an event", false, queryEvent(anEvent).do},
		{"record on another stream", false, recordOn(onOther, anEvent).do},
		{"work on another stream", false, set(onOther).do},
		{"launch on another stream", false, launchIt(idleOne).do},
		{"begin and end", true, func(s *stage) error {
			var g driver.CUgraph
			if err := driver.CuStreamBeginCapture(s.a, loose); err != nil {
				return err
			}
			if err := driver.CuStreamEndCapture(s.a, &g); err != nil {
				return err
			}
			return driver.CuGraphDestroy(g)
		}},
		{"begin and end of another stream", true, func(s *stage) error {
			var g driver.CUgraph
			if err := driver.CuStreamBeginCapture(s.b, loose); err != nil {
				return err
			}
			if err := driver.CuStreamEndCapture(s.b, &g); err != nil {
				return err
			}
			return driver.CuGraphDestroy(g)
		}},
		{"allocation", true, func(*stage) error {
			var p driver.CUdeviceptr
			if err := driver.CuMemAlloc(&p, 4); err != nil {
				return err
			}
			return driver.CuMemFree(p)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := primary(t, 0)
			s := newStage(t)
			defer s.end()
			open := gate(t, s.a)
			for range room - 1 {
				require.NoError(t, driver.CuMemsetD32Async(s.memory, 0, 1, s.a))
			}
			before := control.Calls("cuMemsetD32Async")
			full := aside(t, x, func() error { return driver.CuMemsetD32Async(s.memory, 0, 1, s.a) })
			require.Eventually(t, func() bool { return control.Calls("cuMemsetD32Async") > before }, time.Minute, time.Millisecond, "it waits, or is over")
			require.True(t, blocks(full, true))
			over := aside(t, x, func() error { return c.do(s) })
			held := blocks(over, c.held)
			assert.Equal(t, c.held, held)
			open()
			require.NoError(t, <-full)
			if held {
				if err := <-over; err != driver.CUDA_ERROR_NOT_READY {
					require.NoError(t, err)
				}
			}
			require.NoError(t, driver.CuCtxSynchronize())
		})
	}
}
