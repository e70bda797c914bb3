//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Device.ResetPrimary. Each test runs in its own process. Runs on any driver.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// untouched runs f in a process that has opened nothing, and checks that it leaves nothing.
func untouched(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		f(t)
		noViolation(t)
		if !onGPU {
			settle(t)
			assert.Zero(t, simulated.Lost(), "objects went with a context")
		}
	})
}

// firstDevice returns a device without a context.
func firstDevice(t *testing.T) safe.Device {
	t.Helper()
	all, err := safe.Devices()
	require.NoError(t, err)
	return all[0]
}

// TestResetRefused: a reset names what is open, and harms nothing.
func TestResetRefused(t *testing.T) {
	make := map[string]func(x *safe.Context) (closer, error){
		"Context":  func(x *safe.Context) (closer, error) { return safe.Open(0) },
		"Stream":   func(x *safe.Context) (closer, error) { return safe.NewStream(x) },
		"Event":    func(x *safe.Context) (closer, error) { return safe.NewEvent(x) },
		"Buffer":   func(x *safe.Context) (closer, error) { return safe.NewBuffer[uint32](x, 4) },
		"Pinned":   func(x *safe.Context) (closer, error) { return safe.NewPinned[uint32](x, 4) },
		"Graph":    func(x *safe.Context) (closer, error) { return safe.NewGraph(x) },
		"Resource": func(x *safe.Context) (closer, error) { return safe.NewResource(x, func() {}) },
		"Module": func(x *safe.Context) (closer, error) {
			return safe.LoadFile(x, "testdata/kernels.ptx")
		},
		"borrowed": func(x *safe.Context) (closer, error) { return safe.BorrowContext(x.Raw(), nil) },
	}
	for name, make := range make {
		t.Run(name, func(t *testing.T) {
			untouched(t, func(t *testing.T) {
				x, err := safe.Open(0)
				require.NoError(t, err)
				d := x.Device()
				o, err := make(x)
				require.NoError(t, err)
				require.NoError(t, x.Close()) // what is open keeps the context
				err = d.ResetPrimary()
				assert.ErrorIs(t, err, safe.ErrInUse)
				assert.ErrorContains(t, err, "device 0")
				x, err = safe.Open(0)
				require.NoError(t, err)
				assert.ErrorIs(t, d.ResetPrimary(), safe.ErrInUse)
				b, err := safe.NewBuffer[float32](x, 4)
				require.NoError(t, errors.Join(err, b.Fill(7)))
				assert.EqualValues(t, 7, read(t, b))
				require.NoError(t, errors.Join(b.Close(), x.Close(), o.Close()))
				require.NoError(t, d.ResetPrimary())
			})
		})
	}
}

// TestResetPrimary: a reset destroys what other code has in the context.
func TestResetPrimary(t *testing.T) {
	untouched(t, func(t *testing.T) {
		d := firstDevice(t)
		require.NoError(t, d.ResetPrimary(), "there is no context")
		var raw driver.CUcontext
		require.NoError(t, driver.CuDevicePrimaryCtxRetain(&raw, d.Raw()))
		x, err := safe.BorrowContext(raw, nil)
		require.NoError(t, err)
		var p driver.CUdeviceptr
		require.NoError(t, x.WithCurrent(func() error { return driver.CuMemAlloc(&p, 64<<20) }))
		require.NoError(t, x.Close())
		require.NoError(t, d.ResetPrimary())
		assert.False(t, inUse(t, d))
		if !onGPU {
			assert.Equal(t, 1, simulated.Lost(), "the memory")
			simulated.Purge()
		}
		x, err = safe.Open(0)
		require.NoError(t, err)
		b, err := safe.NewBuffer[float32](x, 4)
		require.NoError(t, errors.Join(err, b.Fill(7)))
		assert.EqualValues(t, 7, read(t, b))
		require.NoError(t, errors.Join(b.Close(), x.Close()))
	})
}

// TestResetAwaitsWork: a reset waits for what was closed while work uses it, or says that it is in use.
func TestResetAwaitsWork(t *testing.T) {
	untouched(t, func(t *testing.T) {
		x, err := safe.Open(0)
		require.NoError(t, err)
		d := x.Device()
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		goOn := make(chan struct{})
		_, err = s.LaunchHostFunc(func() { <-goOn })
		require.NoError(t, err)
		b, err := safe.NewBufferAsync[float32](s, 4)
		require.NoError(t, errors.Join(err, b.FillAsync(s, 7), b.Close(), s.Close(), x.Close()))
		restore := safe.ResetPatience(50 * time.Millisecond)
		err = d.ResetPrimary()
		restore()
		assert.ErrorIs(t, err, safe.ErrInUse)
		assert.ErrorContains(t, err, "still in use")
		reset := background(func() { err = d.ResetPrimary() })
		close(goOn)
		<-reset
		assert.NoError(t, err)
	})
}

// TestResetBesideOwnContext: a reset waits for the primary context, whatever is open in a context of NewContext.
func TestResetBesideOwnContext(t *testing.T) {
	untouched(t, func(t *testing.T) {
		x, err := safe.Open(0)
		require.NoError(t, err)
		own, err := safe.NewContext(x.Device())
		require.NoError(t, err)
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		goOn := make(chan struct{})
		_, err = s.LaunchHostFunc(func() { <-goOn })
		require.NoError(t, errors.Join(err, s.Close(), x.Close()))
		time.AfterFunc(20*time.Millisecond, func() { close(goOn) })
		require.NoError(t, own.Device().ResetPrimary())
		require.NoError(t, own.Close())
	})
}

// TestResetAfterFailures: a context that could not be opened or borrowed keeps none from being reset.
func TestResetAfterFailures(t *testing.T) {
	needsSimulated(t)
	for name, open := range map[string]func(raw driver.CUcontext) (*safe.Context, error){
		"Open":          func(driver.CUcontext) (*safe.Context, error) { return safe.Open(0) },
		"BorrowContext": func(raw driver.CUcontext) (*safe.Context, error) { return safe.BorrowContext(raw, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			untouched(t, func(t *testing.T) {
				d := firstDevice(t)
				var raw driver.CUcontext
				require.NoError(t, driver.CuDevicePrimaryCtxRetain(&raw, d.Raw()))
				simulated.Fail("cuDevicePrimaryCtxRetain", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
				_, err := open(raw)
				require.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
				require.NoError(t, driver.CuDevicePrimaryCtxRelease(d.Raw()))
				assert.NoError(t, d.ResetPrimary())
			})
		})
	}
}

// TestResetOtherDevice: a reset minds nothing of another device but host functions.
func TestResetOtherDevice(t *testing.T) {
	untouched(t, func(t *testing.T) {
		all, err := safe.Devices()
		require.NoError(t, err)
		if len(all) < 2 {
			t.Skip("needs two devices")
		}
		x, err := safe.Open(0)
		require.NoError(t, err)
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		runs, goOn := make(chan struct{}), make(chan struct{})
		f, err := s.LaunchHostFunc(func() {
			close(runs)
			assert.ErrorIs(t, all[1].ResetPrimary(), safe.ErrInCallback)
			<-goOn
		})
		require.NoError(t, err)
		next(t, runs)
		restore := safe.ResetPatience(50 * time.Millisecond)
		err = all[1].ResetPrimary()
		restore()
		assert.ErrorIs(t, err, safe.ErrInUse)
		assert.ErrorContains(t, err, "or a host function runs")
		close(goOn)
		_, err = f.Wait(t.Context())
		require.NoError(t, err)
		assert.NoError(t, all[1].ResetPrimary())
		assert.ErrorIs(t, all[0].ResetPrimary(), safe.ErrInUse)
		require.NoError(t, errors.Join(s.Close(), x.Close()))
		require.NoError(t, all[0].ResetPrimary())
	})
}

// TestResetBesideOpens: goroutines open and close a device, and borrow its context, while others reset it. Each
// context works for as long as it is open.
func TestResetBesideOpens(t *testing.T) {
	untouched(t, func(t *testing.T) {
		d := firstDevice(t)
		var c racers
		c.add(3, opensAndCloses)
		c.add(1, func() error {
			x, err := safe.Open(0)
			if err != nil {
				return err
			}
			y, err := safe.BorrowContext(x.Raw(), nil)
			if err != nil {
				return err
			}
			return errors.Join(x.Close(), y.Close())
		})
		c.add(2, func() error { return except(d.ResetPrimary(), safe.ErrInUse) })
		time.Sleep(2 * stormTime(t))
		require.NoError(t, c.end())
		require.Eventually(t, func() bool { return d.ResetPrimary() == nil }, atOnce, time.Millisecond)
	})
}
