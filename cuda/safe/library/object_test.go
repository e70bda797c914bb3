//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// How Objects begin and end.

package library_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNothingLeft: an Object that is closed, or that New could not make, keeps neither pools nor its context. That does
// not take the garbage collector.
func TestNothingLeft(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	for name, failing := range map[string]string{"no failure": "", "no pool": "cuMemPoolCreate", "no attribute": "cuMemPoolSetAttribute"} {
		for kind, streams := range map[string]int{"shared": 0, "own": 2} {
			t.Run(name+", "+kind, func(t *testing.T) {
				contexts, pools := simulated.Live("context"), simulated.Live("pool")
				x, err := safe.NewContext(must(safe.Devices())[0])
				require.NoError(t, err)
				c := new(counts)
				options := counted(c)
				options.Streams, options.CallsOnly = streams, true
				if failing != "" {
					simulated.Fail(failing, 1, uint32(driver.CUDA_ERROR_UNKNOWN))
					defer simulated.Reset()
				}
				o, err := library.New(x, options)
				if failing != "" {
					assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
					assert.Equal(t, failing, simulated.Failed())
					assert.Zero(t, c.created.Load())
				} else {
					require.NoError(t, err)
				}
				require.NoError(t, errors.Join(o.Close(), x.Close()))
				gone := func() bool { return simulated.Live("context") <= contexts && simulated.Live("pool") <= pools }
				assert.Eventually(t, gone, 10*time.Second, time.Millisecond)
			})
		}
	}
}

// TestAfterFault: what the library has created is destroyed, too, if work has failed for good.
func TestAfterFault(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	for name, only := range map[string]bool{"retained": false, "CallsOnly": true} {
		t.Run(name, func(t *testing.T) {
			x := open(t)
			c := new(counts)
			options := counted(c)
			options.CallsOnly = only
			o := newObject(t, x, options)
			require.NoError(t, o.Enqueue(stream(t, x), 0, nothing))
			simulated.FaultDelay(0)
			simulated.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
			defer simulated.Reset()
			_ = o.Close() // tells of the fault, perhaps
			assert.Eventually(t, func() bool { return c.destroyed.Load() == 1 }, time.Minute, time.Millisecond)
		})
	}
}

// TestCloseFails: Close returns the errors of Destroy and of the memory's release.
func TestCloseFails(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	drivertest.InChild(t, func(t *testing.T) {
		t.Cleanup(simulated.Purge) // the pool stays
		x := open(t)
		options := counted(new(counts))
		failed := errors.New("on purpose")
		options.CallsOnly, options.Destroy = true, func() error { return failed }
		o, err := library.New(x, options)
		require.NoError(t, err)
		simulated.Fail("cuMemPoolDestroy", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
		err = o.Close()
		assert.ErrorIs(t, err, failed)
		assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
	})
}

// TestMatchesNothing: an Object whose context is gone suits no stream.
func TestMatchesNothing(t *testing.T) {
	s := stream(t, open(t))
	x, err := safe.NewContext(must(safe.Devices())[0])
	require.NoError(t, err)
	options := counted(new(counts))
	options.CallsOnly = true
	o := newObject(t, x, options)
	require.ErrorIs(t, o.Matches(s), safe.ErrContextMismatch)
	require.NoError(t, errors.Join(o.Close(), x.Close()))
	assert.Eventually(t, func() bool { return errors.Is(o.Matches(s), safe.ErrClosed) }, 10*time.Second, time.Millisecond)
}

// TestCallKeepsNothing: a Call that was submitted and reset keeps no memory from the garbage collector.
func TestCallKeepsNothing(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	x := open(t)
	s := stream(t, x)
	c := library.Call{Do: nothing}
	o := newObject(t, x, counted(new(counts)))
	before := simulated.Live("memory")
	func() {
		b, err := safe.NewBufferWith[byte](x, 1<<20, safe.BufferOptions{Plain: true})
		require.NoError(t, err)
		require.Greater(t, simulated.Live("memory"), before)
		c.Object, c.Stream, c.Uses = o, s, append(c.Uses, b.Arg())
		require.NoError(t, errors.Join(c.Submit(), s.Synchronize()))
		c.Reset()
	}()
	assert.Eventually(t, func() bool { runtime.GC(); return simulated.Live("memory") <= before }, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(&c)
}

// TestClosedUse: an error about something that a call uses names its number, as the Object is open.
func TestClosedUse(t *testing.T) {
	x := open(t)
	s, o := stream(t, x), newObject(t, x, counted(new(counts)))
	b, closed := words(t, x), words(t, x)
	require.NoError(t, closed.Close())
	err := o.Enqueue(s, 0, nothing, b.Arg(), closed.Arg())
	require.ErrorIs(t, err, safe.ErrClosed)
	assert.ErrorContains(t, err, "use 1")
}
