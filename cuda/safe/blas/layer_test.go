//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package blas_test

import (
	"math/rand/v2"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/require"
)

// TestLayers: the sample of docs/matrices.md computes the gradients of two layers, captured.
func TestLayers(t *testing.T) {
	x := open(t)
	h, s := handle(t, x, blas.Options{}), stream(t, x)
	type T = dtype.BFloat16
	const samples, inputs, hidden, outputs = 16, 24, 32, 8
	r := rand.New(rand.NewPCG(25, 26))
	m := func(rows, cols int) blas.Matrix[T] {
		return blas.Rows(buffer(t, x, random[T](r, rows*cols)), rows, cols)
	}
	newLayer := func(in, out int) *layer {
		return &layer{m(out, in), m(out, in), buffer(t, x, random[T](r, out)), buffer(t, x, make([]T, out)),
			buffer(t, x, make([]T, blas.AuxLen(blas.GELU, samples, out)))}
	}
	one, two := newLayer(inputs, hidden), newLayer(hidden, outputs)
	in, mid, out, dmid, dout := m(samples, inputs), m(samples, hidden), m(samples, outputs), m(samples, hidden), m(samples, outputs)
	launch(t, captured(t, s, func() error {
		if err := one.forward(h, s, in, mid); err != nil {
			return err
		}
		if err := two.forward(h, s, mid, out); err != nil {
			return err
		}
		return two.backward(h, s, one, mid, dmid, dout)
	}), s)

	get := func(m blas.Matrix[T]) dense { return read(m, download(t, m.Buffer)) }
	zero := func(rows, cols int) dense { return dense{rows, cols, make([]complex128, rows*cols)} }
	bias := download(t, one.bias)
	before := mapped(product(1, get(in), get(one.weights.T()), 0, zero(samples, hidden)), func(_, j int, v float64) float64 { return v + real(wide(bias[j])) })
	near(t, "the activations", get(mid), mapped(before, func(_, _ int, v float64) float64 { return gelu(v) }))
	near(t, "the gradients of the weights", get(two.gradients), product(1, get(dout.T()), get(mid), 0, zero(outputs, hidden)))
	through := mapped(product(1, get(dout), get(two.weights), 0, zero(samples, hidden)), func(i, j int, v float64) float64 { return v * slope(real(before.at(i, j))) })
	near(t, "the gradients before GELU", get(dmid), through)
	sums := zero(1, hidden)
	for i, v := range through.data {
		sums.data[i%hidden] += v
	}
	got := read(blas.Rows(one.biasGradient, 1, hidden), download(t, one.biasGradient))
	for i := range sums.data {
		require.InDelta(t, real(sums.data[i]), real(got.data[i]), 0.2, "gradient %d of the bias", i) // of 16 numbers with 8 bits
	}
}
