//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/stretchr/testify/require"
)

// TestZeros: nil, zero and closed receivers and arguments of everything that is exported cause no panic.
func TestZeros(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	b := buffer(t, x, make([]float32, 16))
	closed, err := blas.Open(x, blas.Options{Workspace: 4096})
	require.NoError(t, err)
	m := blas.Rows(b, 2, 2)
	batch, err := blas.NewBatch(closed, []blas.Matrix[float32]{m}, []blas.Matrix[float32]{m}, []blas.Matrix[float32]{{Buffer: b, Rows: 2, Cols: 2, Offset: 4}})
	require.NoError(t, err)
	require.NoError(t, batch.Close())
	require.NoError(t, closed.Close())
	closedBuffer, err := safe.NewBuffer[float32](x, 16)
	require.NoError(t, err)
	require.NoError(t, closedBuffer.Close())
	closedStream, err := safe.NewStream(x, safe.StreamOptions{})
	require.NoError(t, err)
	require.NoError(t, closedStream.Close())

	const huge = 1 << 60
	a := drivertest.Arguments{}
	a.Usable(x, h, s, b, m, blas.Vec(b), float32(1))
	a.Unusable(closed, closedStream, closedBuffer, batch, blas.Rows(closedBuffer, 2, 2), blas.Vec(closedBuffer),
		blas.Matrix[float32]{Buffer: b, Rows: huge, Cols: huge, Stride: huge, Offset: huge}, blas.Rows(b, 1<<33, 1<<33), blas.Rows(b, -1<<63, -1<<63),
		blas.Vector[float32]{Buffer: b, N: huge, Step: huge, Offset: huge}, blas.Vector[float32]{Buffer: b, N: 2, Step: -1 << 63, Offset: -1 << 63},
		blas.Stack[float32]{Matrix: m, Count: 1 << 33, Step: 1 << 33}, blas.Stack[float32]{Matrix: m, Count: -1, Step: huge},
		[]blas.Matrix[float32]{m, {}}, h.With(-1),
		blas.Options{Handles: huge}, blas.Options{Workspace: huge}, blas.Options{Workspaces: huge}, blas.Options{Math: -1},
		blas.MatmulOptions{Bias: (*safe.Buffer[float32])(nil), Epilogue: blas.ReLU}, blas.MatmulOptions{Aux: &safe.Buffer[uint8]{}, Epilogue: blas.DReLU},
		blas.MatmulOptions{ScaleA: closedBuffer, SumA: closedBuffer, AmaxD: &safe.Buffer[float32]{}}, blas.MatmulOptions{Epilogue: 99})
	calls := map[string]any{
		"AuxLen": blas.AuxLen, "Axpy": blas.Axpy[float32, float32], "DotTo": blas.DotTo[float32], "Dot": blas.Dot[float32],
		"GemmBatched": blas.GemmBatched[float32, float32], "GemmStrided": blas.GemmStrided[float32, float32], "Gemm": blas.Gemm[float32, float32],
		"Gemv": blas.Gemv[float32, float32], "Matmul": blas.Matmul[float32, float32, float32, float32], "NewBatch": blas.NewBatch[float32],
		"Nrm2To": blas.Nrm2To[float32, float32], "Nrm2": blas.Nrm2[float32], "Open": blas.Open, "Rows": blas.Rows[float32],
		"Scal": blas.Scal[float32, float32], "Vec": blas.Vec[float32],
	}
	names := []string{"Batch", "Handle", "Epilogue", "Math", "Matrix", "Stack", "Vector"}
	for name, f := range calls {
		a.Call(t, name, f)
		names = append(names, name)
	}
	a.Methods(t, (*blas.Handle)(nil), &blas.Handle{}, closed, (&blas.Handle{}).With(99), closed.With(blas.TF32),
		(*blas.Batch[float32])(nil), &blas.Batch[float32]{}, batch, blas.Epilogue(-1), blas.Epilogue(99), blas.Math(-1), blas.Math(99),
		blas.Matrix[float32]{}, m, blas.Rows(b, -1<<63, 1<<62), blas.Stack[float32]{}, blas.Stack[float32]{Matrix: m, Count: -1}, blas.Vector[float32]{}, blas.Vec(closedBuffer))
	drivertest.Covers(t, "../../../api/blas.txt", names...)
}
