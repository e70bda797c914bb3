//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// registerAdd lets the simulated driver run the kernel add(a, b, sum, n).
func registerAdd() error {
	return control.Kernel("add", func(g sim.Grid, a, b, sum []float32, n uint32) {
		for i := range min(int(n), g.Threads()) {
			sum[i] = a[i] + b[i]
		}
	})
}

func TestRegisteredKernel(t *testing.T) {
	if !onGPU {
		require.NoError(t, registerAdd())
	}
	x := open(t)
	s, b := newStream(t, x), newBuffer(t, x, 1000)
	require.NoError(t, b.Fill(2))
	m, add, err := loadAdd(x)
	require.NoError(t, err)
	closing(t, m)
	require.NoError(t, launchAdd(s, add, b, b, b))
	assert.EqualValues(t, 4, values(t, b)[999])
}

// TestOutOfRange launches a kernel for more values than its buffers have.
func TestOutOfRange(t *testing.T) {
	needsSimulated(t)
	require.NoError(t, registerAdd())
	x := open(t)
	s, b, add := newStream(t, x), newBuffer(t, x, 1000), kernel(t, x, "add")
	require.NoError(t, b.Fill(1))
	require.NoError(t, add.Launch(s, safe.Threads(1001), b.Arg(), b.Arg(), b.Arg(), safe.Val(uint32(1001))))
	assert.ErrorIs(t, s.Synchronize(), driver.CUDA_ERROR_ILLEGAL_ADDRESS)
	assert.Contains(t, control.Violation(), "kernel add: panic: runtime error: index out of range [1000] with length 1000")
	control.Reset() // a real driver cannot recover
}

// signal is the parameter of the kernel weigh, which multiplies the values by the constants weights in turn.
type signal struct {
	Values uint64 // float *
	N      int32
}

// registerWeigh lets the simulated driver run it.
func registerWeigh() error {
	return control.Kernel("weigh", func(g sim.Grid, s signal) {
		values, weights := sim.Slice[float32](s.Values), sim.Variable[float32]("weights")
		for i := range min(int(s.N), g.Threads()) {
			values[i] *= weights[i%len(weights)]
		}
	})
}

func TestVariable(t *testing.T) {
	needsSimulated(t)
	require.NoError(t, registerWeigh())
	x := open(t)
	const ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.const .align 4 .f32 weights[2];\n" +
		".visible .entry weigh(.param .align 8 .b8 s[16])\n{\n\tret;\n}\n"
	m, err := safe.Load(x, []byte(ptx))
	require.NoError(t, err)
	closing(t, m)
	weights, err := safe.Global[float32](m, "weights")
	require.NoError(t, err)
	closing(t, weights)
	require.NoError(t, weights.CopyFromHost([]float32{3, 5}))
	weigh, err := m.Kernel("weigh")
	require.NoError(t, err)
	s, b := newStream(t, x), newBuffer(t, x, 1000)
	require.NoError(t, b.Fill(2))
	config := safe.Threads(b.Len())
	config.Uses = []safe.Arg{b.Arg()}
	require.NoError(t, weigh.Launch(s, config, safe.Val(signal{uint64(b.Raw()), 1000})))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, []float32{6, 10, 6}, values(t, b)[:3])
}

func TestUnregisteredKernel(t *testing.T) {
	needsSimulated(t)
	x := open(t)
	const ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry blur()\n{\n\tret;\n}\n"
	m, err := safe.Load(x, []byte(ptx))
	require.NoError(t, err)
	closing(t, m)
	blur, err := m.Kernel("blur")
	require.NoError(t, err)
	err = blur.Launch(newStream(t, x), safe.Threads(1))
	control.Reset() // the driver counts the launch as a mistake of the test
	require.ErrorIs(t, err, driver.CUDA_ERROR_NOT_SUPPORTED)
	var version int32
	require.NoError(t, driver.CuDriverGetVersion(&version))
	if version >= 12090 {
		assert.EqualError(t, err, "cuda: Kernel.Launch: CUDA_ERROR_NOT_SUPPORTED: this device, driver or system cannot do this: kernel blur is not registered with the simulated driver: register it with sim.Main or sim.Control.Kernel, or build it with simdriver -kernels")
	}
}
