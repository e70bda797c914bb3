//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Variables of modules. Runs on any driver.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// weighPTX multiplies values by the weights in turn, and counts its runs.
const weighPTX = head + `
.const .align 4 .f32 weights[2] = {0f40000000, 0f40400000};
.visible .global .align 4 .u32 runs = 5;
.global .align 8 .b8 _ZN2ns5extraE[12];

.visible .entry weigh(.param .align 8 .b8 p[16])
{
	.reg .b64 data, at;
	.reg .b32 n, i, odd, old;
	.reg .f32 v, w;
	.reg .pred over;

	ld.param.u64 data, [p];
	ld.param.u32 n, [p+8];
	cvta.to.global.u64 data, data;
	mov.u32 i, %tid.x;
	setp.ge.u32 over, i, n;
	@over bra done;
	mad.wide.u32 data, i, 4, data;
	and.b32 odd, i, 1;
	mov.u64 at, weights;
	mad.wide.u32 at, odd, 4, at;
	ld.global.f32 v, [data];
	ld.const.f32 w, [at];
	mul.f32 v, v, w;
	st.global.f32 [data], v;
	setp.ne.u32 over, i, 0;
	@over bra done;
	ld.global.u32 old, [runs];
	add.u32 old, old, 1;
	st.global.u32 [runs], old;
done:
	ret;
}
`

type weighed struct {
	Data uint64
	N    uint32
}

// registerWeigh lets the simulated driver run it.
func registerWeigh(t *testing.T) {
	t.Helper()
	if onGPU {
		return
	}
	require.NoError(t, simulated.Kernel("weigh", func(g sim.Grid, p weighed) {
		data, weights := sim.Slice[float32](p.Data), sim.Variable[float32]("weights")
		for i := range min(int(p.N), g.Threads()) {
			data[i] *= weights[i%2]
		}
		sim.Variable[uint32]("runs")[0]++
	}))
}

// readGlobal closes a variable after it has been read.
func readGlobal[T any](t *testing.T, m *safe.Module, name string) []T {
	t.Helper()
	b, err := safe.Global[T](m, name)
	require.NoError(t, err)
	v := make([]T, b.Len())
	require.NoError(t, b.CopyToHost(v))
	require.NoError(t, b.Close())
	return v
}

// TestGlobal: the program and kernels share the variables of a module. Each module has its own.
func TestGlobal(t *testing.T) {
	registerWeigh(t)
	x := open(t, 0)
	s, b := stream(t, x), buffer[float32](t, x, 4)
	load := func() (*safe.Module, *safe.Kernel) {
		m, err := safe.Load(x, []byte(weighPTX))
		require.NoError(t, err)
		closing(t, m)
		k, err := m.Kernel("weigh")
		require.NoError(t, err)
		return m, k
	}
	m, weigh := load()
	other, _ := load()
	assert.Equal(t, []float32{2, 3}, readGlobal[float32](t, m, "weights"))
	assert.Equal(t, make([]byte, 12), readGlobal[byte](t, m, "_ZN2ns5extraE"))
	_, err := safe.Global[float32](m, "extra")
	assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_FOUND)
	_, err = safe.Global[float64](m, "runs")
	assert.ErrorIs(t, err, safe.ErrRange)

	weights, err := safe.Global[float32](m, "weights")
	require.NoError(t, err)
	defer weights.Close()
	require.NoError(t, b.CopyFromHost([]float32{1, 2, 3, 4}))
	config := perValue(4)
	config.Uses = []safe.Arg{b.Arg()}
	args := safe.Val(weighed{uint64(b.Raw()), 3})
	require.NoError(t, weigh.Launch(s, config, args))
	require.NoError(t, s.Synchronize())
	require.NoError(t, weights.CopyFromHost([]float32{10, 100}))
	g, err := s.Capture(func() error { return weigh.Launch(s, config, args) })
	require.NoError(t, err)
	closing(t, g)
	require.NoError(t, executable(t, g).Launch(s))
	require.NoError(t, s.Synchronize())
	got := make([]float32, 4)
	require.NoError(t, b.CopyToHost(got))
	assert.Equal(t, []float32{20, 600, 60, 4}, got)
	assert.Equal(t, []uint32{7}, readGlobal[uint32](t, m, "runs"))
	assert.Equal(t, []uint32{5}, readGlobal[uint32](t, other, "runs"))
	assert.Equal(t, []float32{2, 3}, readGlobal[float32](t, other, "weights"))
}

// TestGlobalManaged finds a __managed__ variable, too.
func TestGlobalManaged(t *testing.T) {
	x := open(t, 0)
	m, err := safe.Load(x, []byte(head+".visible .global .attribute(.managed) .align 4 .u32 shared[2] = {6, 7};\n.visible .entry none() { ret; }\n"))
	require.NoError(t, err)
	closing(t, m)
	assert.Equal(t, []uint32{6, 7}, readGlobal[uint32](t, m, "shared"))
	_, err = safe.Global[uint32](m, "unshared")
	assert.ErrorIs(t, err, driver.CUDA_ERROR_NOT_FOUND)
}
