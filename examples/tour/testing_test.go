//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/cmplx"
	"os"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// left returns an error if the tests have leaked objects or broken rules of CUDA.
func left() error {
	for range 6000 { // another goroutine destroys some objects
		if control.Live("") == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if control.Live("") > 0 {
		return fmt.Errorf("leaked:\n%s", control.List())
	}
	if v := control.Violation(); v != "" {
		return errors.New(v)
	}
	return nil
}

// zeros is the function under test: it returns n numbers that a device cleared.
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
	if err := b.Fill(0); err != nil {
		return nil, err
	}
	values = make([]float32, n)
	return values, b.CopyToHost(values)
}

// An fftInGo stands for an fft.Plan in tests.
type fftInGo struct {
	in  *safe.Pinned[float32]
	out *safe.Pinned[complex64]
}

// Forward computes a Fourier transform of real values.
func (p fftInGo) Forward(s *safe.Stream, in *safe.Buffer[float32], out *safe.Buffer[complex64]) error {
	err1 := in.CopyToHostAsync(s, p.in)
	_, err2 := s.LaunchHostFunc(func() {
		values, sums := p.in.Data(), p.out.Data()
		for k := range sums {
			sums[k] = 0
			for n, v := range values {
				sums[k] += complex64(cmplx.Rect(float64(v), -2*math.Pi*float64(k*n)/float64(len(values))))
			}
		}
	})
	err3 := out.CopyFromHostAsync(s, p.out)
	return cmp.Or(err1, err2, err3)
}

func TestFFTInGo(t *testing.T) {
	x := open(t)
	s, in := newStream(t, x), newBuffer(t, x, 8)
	out, err1 := safe.NewBuffer[complex64](x, 5)
	hostIn, err2 := safe.NewPinned[float32](x, 8)
	hostOut, err3 := safe.NewPinned[complex64](x, 5)
	g, err4 := s.Capture(func() error { return fftInGo{hostIn, hostOut}.Forward(s, in, out) })
	e, err5 := g.Instantiate()
	require.NoError(t, cmp.Or(err1, err2, err3, err4, err5))
	for _, c := range []closer{out, hostIn, hostOut, g, e} {
		closing(t, c)
	}
	for _, v := range []float32{1, 2} {
		require.NoError(t, in.Fill(v))
		require.NoError(t, e.Launch(s))
		sums, err := out.Download()
		require.NoError(t, err)
		for k, want := range []complex64{complex(8*v, 0), 0, 0, 0, 0} {
			assert.InDelta(t, 0, cmplx.Abs(complex128(sums[k]-want)), 1e-5)
		}
	}
}

// TestZerosFail makes the first driver call in zeros fail, then the second, and so on,
// until there are no more. Either zeros returns the error, or its result is correct.
func TestZerosFail(t *testing.T) {
	needsSimulated(t)
	require.NoError(t, left()) // else the failure may meet the rest of another test
	for n := 1; ; n++ {
		control.Fail("", n, uint32(driver.CUDA_ERROR_UNKNOWN))
		values, err := zeros(1000)
		failed := control.Failed()
		control.Reset()
		control.Purge() // destroys what could not be released
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

// TestRefused makes one function fail. If it failed for lack of memory, package safe would release what
// it keeps, and try again.
func TestRefused(t *testing.T) {
	needsSimulated(t)
	x := open(t)
	defer control.Reset()
	control.Fail("cuStreamCreateWithPriority", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
	_, err := safe.NewStream(x)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
}

// TestSlow stops the device, so that a wait is certain to time out.
func TestSlow(t *testing.T) {
	needsSimulated(t)
	x := open(t)
	s, b := newStream(t, x), newBuffer(t, x, 1000)
	control.Hold(true)
	require.NoError(t, b.FillAsync(s, 0))
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, s.Wait(ctx), context.DeadlineExceeded)
	control.Hold(false)
	assert.NoError(t, s.Synchronize())
}

// TestLost loses CUDA, as a kernel does that writes to an invalid address.
func TestLost(t *testing.T) {
	needsSimulated(t)
	x := open(t)
	s := newStream(t, x)
	control.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
	var err error
	for err == nil { // the fault comes a little later
		err = s.Synchronize()
	}
	assert.True(t, safe.IsFatal(err), err)
	control.Reset() // a real driver cannot recover
}

// TestOlder runs tests again, in a process with a driver for CUDA 11.8.
func TestOlder(t *testing.T) {
	needsSimulated(t)
	self, err := os.Executable()
	require.NoError(t, err)
	again := command.Built(self, "-test.run=^Test(Waiting|Graphs|Memory|Mixing|Upgrading)$")
	again.Env = append(os.Environ(), "CUDABIND_SIM_DRIVER=11.8")
	out, err := again.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}
