//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/stretchr/testify/require"
)

// TestHostile calls every function and method with nil, zero and extreme values.
func TestHostile(t *testing.T) {
	needsDouble(t)
	drivertest.Hostile{Objects: func(t *testing.T) []any {
		x, err := safe.Open(0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, x.Close()) })
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		h, err := blas.Open(x, blas.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close()) })
		b, err := safe.NewBuffer[float32](x, 16)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return []any{x, s, h, b, blas.Rows(b, 4, 4), blas.Vec(b), blas.Stack[float32]{Matrix: blas.Rows(b, 2, 2), Count: 4}}
	}}.Run(t, map[string]any{
		"AuxLen": blas.AuxLen, "Axpy": blas.Axpy[float32, float32], "Dot": blas.Dot[float32], "DotTo": blas.DotTo[float32],
		"Gemm": blas.Gemm[float32, float32], "GemmBatched": blas.GemmBatched[float32, float32], "GemmStrided": blas.GemmStrided[float32, float32],
		"Gemv": blas.Gemv[float32, float32], "Matmul": blas.Matmul[float32, float32, float32, float32], "NewBatch": blas.NewBatch[float32],
		"Nrm2": blas.Nrm2[float32], "Nrm2To": blas.Nrm2To[float32, float32], "Open": blas.Open, "Rows": blas.Rows[float32],
		"Scal": blas.Scal[float32, float32], "Vec": blas.Vec[float32],
	}, []any{&blas.Handle{}, &blas.Batch[float32]{}, blas.Epilogue(0), blas.Math(0), blas.Matrix[float32]{}, blas.Stack[float32]{}, blas.Vector[float32]{}})
}
