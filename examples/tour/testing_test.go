//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// left says what the tests have not given back, or done wrong.
func left() error {
	for range 1000 { // some things are destroyed by another goroutine
		if control.Live("") == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if control.Live("") > 0 {
		return fmt.Errorf("alive:\n%s", control.List())
	}
	if v := control.Violation(); v != "" {
		return errors.New(v)
	}
	return nil
}

// zeros is what is tested here: n numbers that a device has cleared.
func zeros(n int) (values []float32, err error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	b, err := safe.NewBuffer[float32](x, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.Zero(); err != nil {
		return nil, err
	}
	values = make([]float32, n)
	return values, b.CopyToHost(values)
}

// TestZerosFail has every call of the driver in zeros fail once: the first, then
// the second, and so on, until there are no more. Either the caller hears of
// it, or the program can do without the call.
func TestZerosFail(t *testing.T) {
	needsSimulated(t)
	for n := 1; ; n++ {
		control.Fail("", n, uint32(driver.CUDA_ERROR_UNKNOWN))
		values, err := zeros(1000)
		failed := control.Failed()
		control.Reset()
		control.Purge() // what could not be given back
		if err == nil {
			assert.Equal(t, make([]float32, 1000), values, failed)
		} else {
			assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN, failed)
		}
		if failed == "" {
			break
		}
	}
}

// TestFull has one function fail, as if the device were full.
func TestFull(t *testing.T) {
	needsSimulated(t)
	x := open(t)
	defer control.Reset()
	control.Fail("cuStreamCreateWithPriority", 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
	_, err := safe.NewStream(x, safe.StreamOptions{})
	assert.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
}

// TestSlow has the device begin nothing, so that a wait surely runs out of time.
func TestSlow(t *testing.T) {
	needsSimulated(t)
	x := open(t)
	s, b := newStream(t, x), newBuffer(t, x, 1000)
	control.Hold(true)
	require.NoError(t, b.ZeroAsync(s))
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, s.Wait(ctx), context.DeadlineExceeded)
	control.Hold(false)
	assert.NoError(t, s.Synchronize())
}

// TestLost kills CUDA, as a kernel does that stores where there is no memory.
func TestLost(t *testing.T) {
	needsSimulated(t)
	x := open(t)
	s := newStream(t, x)
	control.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
	var err error
	for err == nil { // CUDA is lost a little later
		err = s.Synchronize()
	}
	assert.True(t, safe.IsFatal(err), err)
	control.Reset() // CUDA cannot do that
}

// TestOlder runs tests again in a process with a driver of CUDA 11.8.
func TestOlder(t *testing.T) {
	needsSimulated(t)
	self, err := os.Executable()
	require.NoError(t, err)
	again := command.Built(self, "-test.run=^Test(Waiting|Graphs|Memory|Mixing|Upgrading)$")
	again.Env = append(os.Environ(), "CUDABIND_SIM_DRIVER=11.8")
	out, err := again.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}
