//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// needsSimulated skips a test that tells the driver what to do.
func needsSimulated(t *testing.T) {
	t.Helper()
	if onGPU {
		t.Skip("needs the simulated driver, which can be told to fail")
	}
}

// sweep makes the first call of the driver in do fail, then the second, and so
// on, until do needs no more calls.
func sweep(t *testing.T, code driver.CUresult, do func(n int) error, check func(failed string, err error)) {
	t.Helper()
	for n := 1; ; n++ {
		require.Less(t, n, 500, "it does not end")
		err := do(n)
		failed := simulated.Failed()
		simulated.Reset()
		check(failed, err)
		if failed == "" {
			return
		}
	}
}

// failing is what a call is made to fail with.
func failing(nth int, code driver.CUresult) { simulated.Fail("", nth, uint32(code)) }

// startClean has the collector find what tests before have dropped, and waits until it is
// destroyed. Tests that count objects or calls need it. On a GPU it does nothing.
func startClean(t *testing.T) {
	t.Helper()
	if onGPU {
		return
	}
	for end := time.Now().Add(atOnce); simulated.Live("") > 0 && time.Now().Before(end); {
		drop()
	}
	nothingAlive(t, "before")
	simulated.Reset()
}

// inDriver makes a call, which the driver delays, on another goroutine, and waits until the driver has it. On a slow
// machine a short delay may be over by then.
func inDriver(t *testing.T, call func() error) (over <-chan error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	require.Eventually(t, func() bool { return simulated.Flying() == 1 || len(done) > 0 }, hang, time.Millisecond)
	return done
}

// nothingAlive waits for the reaper and checks that it has left nothing.
func nothingAlive(t *testing.T, what string) {
	t.Helper()
	fewAlive(t, 0, what)
}

// fewAlive waits until not more than most objects are alive. Memory goes after the reaper has
// released it, in the order of its stream.
func fewAlive(t *testing.T, most int, what string) {
	t.Helper()
	for end := time.Now().Add(atOnce); simulated.Live("") > most && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	require.LessOrEqual(t, simulated.Live(""), most, "%s: %s", what, simulated.List())
}

// TestSimFaultSweep has every call of the driver that an operation makes fail.
func TestSimFaultSweep(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	codes := []driver.CUresult{driver.CUDA_ERROR_UNKNOWN}
	if !testing.Short() {
		codes = append(codes, driver.CUDA_ERROR_OUT_OF_MEMORY) // after which calls are made again
	}
	for _, code := range codes {
		for _, op := range operations {
			t.Run(op.name, func(t *testing.T) {
				var w *world
				sweep(t, code, func(n int) error {
					var err error
					w, err = newWorld()
					require.NoError(t, err)
					failing(n, code)
					return op.do(w)
				}, func(failed string, err error) {
					if err != nil && failed != "" && !errors.Is(err, safe.ErrNotSupported) {
						var e *safe.Error
						require.ErrorAs(t, err, &e, failed)
						// The first is not needed; the second is called again, as memory was short, with no handle.
						if failed != "cuCtxGetId" && failed != "cuIpcOpenEventHandle" {
							assert.ErrorIs(t, err, code, failed)
						}
						assert.Contains(t, append(within[op.name], op.name), e.Op, failed)
					}
					require.NoError(t, w.close(), failed)
					if destroys(failed) { // what was not destroyed counts as gone
						settle(t)
						fewAlive(t, 1, failed)
						purge(t)
						return
					}
					nothingAlive(t, failed)
					assert.Zero(t, simulated.Lost(), "went with the context after %s", failed)
				})
			})
		}
	}
	assert.Empty(t, simulated.Violation())
}

// collectErrors returns a function that returns what OnError was told since it was
// called before.
func collectErrors(t *testing.T) func() []error {
	t.Helper()
	var mu sync.Mutex
	var reported []error
	safe.OnError(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err)
	})
	t.Cleanup(func() { safe.OnError(nil) })
	return func() []error {
		mu.Lock()
		defer mu.Unlock()
		errs := reported
		reported = nil
		return errs
	}
}

// TestSimCloseSweep has every call fail that closing makes. What could not be
// destroyed counts as gone, and the error reaches Close or the hook.
func TestSimCloseSweep(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	reported := collectErrors(t)
	for _, code := range []driver.CUresult{driver.CUDA_ERROR_UNKNOWN, driver.CUDA_ERROR_OUT_OF_MEMORY} {
		var w *world
		sweep(t, code, func(n int) error {
			var err error
			w, err = newWorld()
			require.NoError(t, err)
			failing(n, code)
			return w.close()
		}, func(failed string, err error) {
			settle(t)
			err = errors.Join(append(reported(), err)...)
			if destroys(failed) {
				assert.ErrorIs(t, err, code, failed)
			}
			if err == nil {
				nothingAlive(t, failed)
			}
			fewAlive(t, 1, failed)
			assert.NoError(t, w.close(), "again")
			purge(t)
		})
	}
	assert.Empty(t, simulated.Violation())
}

func destroys(function string) bool {
	for _, s := range []string{"Destroy", "Free", "Unload", "Release", "Unregister"} {
		if strings.Contains(function, s) {
			return true
		}
	}
	return false
}

// settle waits until nothing is given back any more, on any driver.
func settle(t *testing.T) {
	t.Helper()
	require.Eventually(t, safe.ReaperIdle, atOnce, time.Millisecond, "the reaper does not end")
}

// purge destroys what a failure has left, once nothing else does.
func purge(t *testing.T) {
	t.Helper()
	settle(t)
	simulated.Purge()
	settle(t)
	simulated.Lost()
}
