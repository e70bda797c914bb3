//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

// multiplied returns the product of a, of m rows, and b, of n columns.
func multiplied(h *blas.Handle, s *safe.Stream, a, b []float32, m, n int) ([]float32, error) {
	x, k := h.Context(), len(b)/n
	onDeviceA, err := safe.Upload(x, a)
	if err != nil {
		return nil, err
	}
	defer onDeviceA.Close()
	onDeviceB, err := safe.Upload(x, b)
	if err != nil {
		return nil, err
	}
	defer onDeviceB.Close()
	c, err := safe.NewBuffer[float32](x, m*n)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	err = blas.Gemm(h, s, 1, blas.Rows(onDeviceA, m, k), blas.Rows(onDeviceB, k, n), 0, blas.Rows(c, m, n))
	if err != nil {
		return nil, err
	}
	return c.Download() // waits for the product
}

func ExampleGemm() {
	x, err := safe.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	h, err := blas.Open(x, blas.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	fmt.Println(multiplied(h, s, []float32{1, 2, 3, 4, 5, 6}, []float32{1, 0, 2, 1, 0, 1}, 2, 2))
	// Output: [5 5 14 11] <nil>
}

// layer is a layer of a neural network for batches of one size. Weights have a row for each
// output, inputs and outputs one for each sample.
type layer struct {
	weights, gradients blas.Matrix[dtype.BFloat16]
	bias, biasGradient *safe.Buffer[dtype.BFloat16]
	aux                *safe.Buffer[dtype.BFloat16] // of blas.AuxLen values
}

// forward enqueues y = GELU(x*weights' + bias).
func (l *layer) forward(h *blas.Handle, s *safe.Stream, x, y blas.Matrix[dtype.BFloat16]) error {
	return blas.Matmul(h, s, 1, x, l.weights.T(), 0, y, blas.MatmulOptions{Epilogue: blas.GELU, Bias: l.bias, Aux: l.aux})
}

// backward enqueues the gradients of the layer. dy is the gradient of the layer's values before
// GELU. dx receives that of the values of the layer before it, also before GELU.
func (l *layer) backward(h *blas.Handle, s *safe.Stream, before *layer, x, dx, dy blas.Matrix[dtype.BFloat16]) error {
	return errors.Join(
		blas.Matmul(h, s, 1, dy.T(), x, 0, l.gradients, blas.MatmulOptions{}),
		blas.Matmul(h, s, 1, dy, l.weights, 0, dx, blas.MatmulOptions{Epilogue: blas.DGELU, Aux: before.aux, BiasGrad: before.biasGradient}))
}
