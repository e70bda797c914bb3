//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"context"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:generate go run ../../tools/kernels -doubles vector.cu

// typed replaces each value v by 2 * v + 1. LoadVector, its kernels and Line are in the generated
// vector_cu.go.
func typed(ctx context.Context, x *safe.Context, s *safe.Stream, values *safe.Buffer[float32]) error {
	k, err := LoadVector(ctx, x, compile.Options{})
	if err != nil {
		return err
	}
	defer k.Close() // unloads them after the launch
	n := values.Len()
	return k.Apply.Launch(s, safe.Threads(n), values, Line{Slope: 2, Offset: 1}, uint32(n))
}

// registerVector lets the simulated driver run the kernels of vector.cu. VectorDoubles is in the
// generated vector_cu_test.go.
func registerVector() error {
	return VectorDoubles{
		Apply: func(_ sim.Grid, values []float32, line Line, n uint32) {
			for i := range n {
				values[i] = line.Slope*values[i] + line.Offset
			}
		},
	}.Register(control)
}

func TestTyped(t *testing.T) {
	needsNVRTC(t)
	if !onGPU {
		require.NoError(t, registerVector())
	}
	x := open(t)
	s, b := newStream(t, x), newBuffer(t, x, 1000)
	require.NoError(t, b.Fill(3))
	require.NoError(t, typed(context.Background(), x, s, b))
	assert.EqualValues(t, 7, values(t, b)[999])
}
