//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Calls on virtual memory beside resets, host functions and the garbage collector. They need
// the simulated driver, which can be told to take long.

package safe_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCloseRangeInHostFunc: Close of a range in a host function does not wait for another call on the
// range. The memory is unmapped, and the addresses are freed, after that call.
func TestCloseRangeInHostFunc(t *testing.T) {
	needsSimulated(t)
	watch(t)
	startClean(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	r, err := safe.ReserveAddress(x, 2*simGranule, safe.ReserveOptions{})
	require.NoError(t, err)
	p, err := safe.NewPhysicalMemory(x, simGranule, safe.PhysicalMemoryOptions{})
	require.NoError(t, err)
	require.NoError(t, errors.Join(r.Map(0, p), r.Map(simGranule, p), p.Close()))
	simulated.Delay("cuMemUnmap", hang)
	unmap := background(func() { assert.NoError(t, r.Unmap(0, simGranule)) })
	inside(t, "driver.CuMemUnmap")
	over := make(chan struct{})
	_, err = s.LaunchHostFunc(func() {
		defer close(over)
		assert.NoError(t, r.Close())
	})
	require.NoError(t, err)
	soon(t, over, "Close waits for Unmap")
	assert.False(t, closed(unmap))
	simulated.Reset() // the delay
	<-unmap
	require.NoError(t, errors.Join(s.Close(), x.Close()))
	nothingAlive(t, "after Close")
	runtime.KeepAlive(r)
}

// TestRangeDroppedDuringCall: memory stays mapped during the last call with its range, also if the call
// has to wait for the range first.
func TestRangeDroppedDuringCall(t *testing.T) {
	for name, call := range map[string]func(r *safe.AddressRange) error{
		"SetAccess": func(r *safe.AddressRange) error { return r.SetAccess(0, simGranule, readWrite) },
		"NewMappedBuffer": func(r *safe.AddressRange) error {
			b, err := safe.NewMappedBuffer[uint32](r, 0, 16)
			if err != nil {
				return err
			}
			return errors.Join(b.Fill(0), b.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			needsSimulated(t)
			watch(t)
			startClean(t) // ranges of earlier tests would be counted
			x := open(t, 0)
			over, before := make(chan error, 1), simulated.Live("reserved")
			func() { // no variable outside has the range
				r, err := safe.ReserveAddress(x, 2*simGranule, safe.ReserveOptions{})
				require.NoError(t, err)
				mapped(t, x, r, 0, simGranule)
				mapped(t, x, r, simGranule, simGranule)
				b := mappedBuffer[uint32](t, r, simGranule, 16)
				require.NoError(t, r.Unmap(simGranule, simGranule)) // follows b.Close
				simulated.Delay("cuMemUnmap", hang)
				require.NoError(t, b.Close())
				inside(t, "driver.CuMemUnmap")
				go func() { over <- call(r) }()
			}()
			time.Sleep(20 * time.Millisecond)
			drop()
			assert.Empty(t, over, "it does not wait for the range")
			simulated.Reset() // the delay
			assert.NoError(t, <-over)
			assert.Eventually(t, func() bool {
				drop()
				return simulated.Live("reserved") == before
			}, atOnce, time.Millisecond)
			noViolation(t)
		})
	}
}
