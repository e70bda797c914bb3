//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Details of errors: the kernel of a failed launch, the event that Event.Since cannot use,
// the sizes of a failed allocation. Both drivers; some cases need the simulated one.

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// detail returns the Detail of err, which must have the code.
func detail(t *testing.T, err error, code driver.CUresult) string {
	t.Helper()
	var e *safe.Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, code)
	return e.Detail
}

func TestSimLaunchErrorsNameTheKernel(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s, k := stream(t, x), kernel(t, x, "nothing")
	addNode := "cuGraphAddKernelNode_v2"
	if driverOf(t) < 12000 {
		addNode = "cuGraphAddKernelNode"
	}
	for _, test := range []struct {
		name string
		code driver.CUresult
		cfg  safe.LaunchConfig
		want string
	}{
		{"unknown", driver.CUDA_ERROR_UNKNOWN, one, "kernel nothing"},
		{"no code for the device", driver.CUDA_ERROR_NO_BINARY_FOR_GPU, one, "kernel nothing"},
		{"no limit exceeded", driver.CUDA_ERROR_INVALID_VALUE, one, "kernel nothing"},
		{"a limit exceeded", driver.CUDA_ERROR_INVALID_VALUE, safe.LaunchConfig{Block: safe.Dim{X: 1}}, "kernel nothing: grid.X is 0: skip a launch for no values"},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer simulated.Reset()
			simulated.Fail("cuLaunchKernel", 1, uint32(test.code))
			err := k.Launch(s, test.cfg)
			assert.Equal(t, test.want, detail(t, err, test.code))

			g, err := safe.NewGraph(x)
			require.NoError(t, err)
			closing(t, g)
			simulated.Fail(addNode, 1, uint32(test.code))
			_, err = g.Add(safe.KernelNode(k, test.cfg))
			assert.Equal(t, test.want, detail(t, err, test.code))
		})
	}
}

// TestSimUnregisteredKernels: the error says what to do, as far as the driver keeps a log, also of a kernel that the
// image calls otherwise than the program does.
func TestSimUnregisteredKernels(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s := stream(t, x)
	for name, symbol := range map[string]string{"strange": "strange", "odd<float>": "_Z3oddIfEvv"} {
		t.Run(name, func(t *testing.T) {
			m, err := safe.LoadWith(x, []byte(head+".visible .entry "+symbol+"()\n{\n\tret;\n}\n"), safe.LoadOptions{Names: map[string]string{name: symbol}})
			require.NoError(t, err)
			closing(t, m)
			k, err := m.Kernel(name)
			require.NoError(t, err)
			g, err := safe.NewGraph(x)
			require.NoError(t, err)
			closing(t, g)
			want := "kernel " + name
			if driverOf(t) >= 12090 {
				want += " is not registered with the simulated driver: register it with sim.Main or sim.Control.Kernel, or build it with simdriver -kernels"
			}
			defer simulated.Reset()
			assert.Equal(t, want, detail(t, k.Launch(s, one), driver.CUDA_ERROR_NOT_SUPPORTED))
			_, err = g.Add(safe.KernelNode(k, one))
			assert.Equal(t, want, detail(t, err, driver.CUDA_ERROR_NOT_SUPPORTED))
		})
	}
}

func TestSinceSaysWhichEvent(t *testing.T) {
	x := open(t, 0)
	g, s := newGate(t, x), stream(t, x)
	recorded, never, late := event(t, x), event(t, x), event(t, x)
	untimed, err := safe.NewEventWith(x, safe.EventOptions{DisableTiming: true})
	require.NoError(t, err)
	closing(t, untimed)
	require.NoError(t, s.Record(recorded))
	require.NoError(t, s.Record(untimed))
	require.NoError(t, s.Synchronize())
	g.shut(t, s)
	require.NoError(t, s.Record(late))
	for _, test := range []struct {
		name       string
		start, end *safe.Event
		code       driver.CUresult
		want       string
	}{
		{"start unrecorded", never, recorded, driver.CUDA_ERROR_INVALID_HANDLE, "the start event was never recorded"},
		{"end unrecorded", recorded, never, driver.CUDA_ERROR_INVALID_HANDLE, "the end event was never recorded"},
		{"both unrecorded", never, never, driver.CUDA_ERROR_INVALID_HANDLE, "the start event was never recorded; the end event was never recorded"},
		{"start untimed", untimed, recorded, driver.CUDA_ERROR_INVALID_HANDLE, "the start event has DisableTiming set"},
		{"end untimed", recorded, untimed, driver.CUDA_ERROR_INVALID_HANDLE, "the end event has DisableTiming set"},
		{"start unfinished", late, recorded, driver.CUDA_ERROR_NOT_READY, "the start event has not completed"},
		{"end unfinished", recorded, late, driver.CUDA_ERROR_NOT_READY, "the end event has not completed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.end.Since(test.start)
			assert.Equal(t, test.want, detail(t, err, test.code))
		})
	}
	g.open()
	require.NoError(t, late.Synchronize())
	_, err = late.Since(recorded)
	assert.NoError(t, err)
}

// tooMuch are allocations of 1 PiB.
var tooMuch = []struct {
	name string
	do   func(x *safe.Context, s *safe.Stream) (closer, error)
	host bool
}{
	{"NewBuffer", func(x *safe.Context, s *safe.Stream) (closer, error) { return safe.NewBuffer[byte](x, 1<<50) }, false},
	{"NewBufferAsync", func(x *safe.Context, s *safe.Stream) (closer, error) { return safe.NewBufferAsync[byte](s, 1<<50) }, false},
	{"NewManagedBuffer", func(x *safe.Context, s *safe.Stream) (closer, error) {
		return safe.NewManagedBuffer[byte](x, 1<<50)
	}, false},
	{"NewPitched", func(x *safe.Context, s *safe.Stream) (closer, error) {
		return safe.NewPitched[float32](x, safe.Extent{Width: 1 << 10, Height: 1 << 38})
	}, false},
	{"NewArray", func(x *safe.Context, s *safe.Stream) (closer, error) {
		return safe.NewArray[[4]float32](x, safe.Extent{Width: 1 << 15, Height: 1 << 17, Depth: 1 << 14}, safe.ArrayOptions{})
	}, false},
	{"NewPhysicalMemory", func(x *safe.Context, s *safe.Stream) (closer, error) {
		return safe.NewPhysicalMemory(x, 1<<50, safe.PhysicalMemoryOptions{})
	}, false},
	{"NewPinned", func(x *safe.Context, s *safe.Stream) (closer, error) {
		return safe.NewPinned[byte](x, 1<<50)
	}, true},
}

// TestSimOutOfMemorySaysSizes: the error tells how much was requested and how much is
// free; a capture elsewhere survives the question.
func TestSimOutOfMemorySaysSizes(t *testing.T) {
	needsSimulated(t)
	startClean(t) // before an allocation fails, what was dropped is collected
	x := open(t, 0)
	s, captured := stream(t, x), stream(t, x)
	b := buffer[byte](t, x, 1<<20)
	for _, test := range tooMuch {
		t.Run(test.name, func(t *testing.T) {
			defer simulated.Reset()
			free, total, err := x.MemoryInfo()
			require.NoError(t, err)
			want := fmt.Sprintf("1125899906842624 bytes requested, %d of %d bytes free on device 0", free, total)
			if test.host {
				want = "1125899906842624 bytes of host memory requested"
			}
			g, err := captured.CaptureWith(context.Background(), safe.CaptureOptions{Mode: safe.CaptureGlobal}, func() error {
				_, err = test.do(x, s)
				assert.Equal(t, want, detail(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY))
				return b.FillAsync(captured, 0)
			})
			require.NoError(t, err)
			require.NoError(t, g.Close())

			simulated.Fail("cuMemGetInfo_v2", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
			_, err = test.do(x, s)
			assert.Contains(t, detail(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY), "1125899906842624 bytes ")
			assert.NotErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
		})
	}
	t.Run("NewBufferFrom", func(t *testing.T) {
		if driverOf(t) < 12020 {
			t.Skip("pools have no limit")
		}
		p := pool(t, x, safe.PoolOptions{MaxSize: 64 << 20})
		bufferFrom[byte](t, p, s, 1<<20)
		_, err := safe.NewBufferFrom[byte](p, s, 512<<20)
		assert.Regexp(t, `^536870912 bytes requested, 1048576 bytes of the pool in use, \d+ of \d+ bytes free on device 0$`, detail(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY))
	})
	var e *safe.Error
	_, err := safe.NewBuffer[byte](x, -1)
	require.True(t, errors.As(err, &e))
	assert.Empty(t, e.Detail, "no other error tells of free memory")
}
