package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/collective"
	"github.com/cudabind/cudabind/cuda/safe/compile"
)

//go:generate go run ../../tools/kernels -doubles -D ARMS=3 kernels.cu

const rate, momentum = 0.1, 0.9

// A network is on one GPU, with the points that it learns from.
type network struct {
	handle  *blas.Handle
	stream  *safe.Stream
	kernels *Kernels

	points blas.Matrix[float32] // a row each
	labels *safe.Buffer[int32]
	layers []layer

	// Of all layers, one after the other. The gradient ends with one value more, the loss: so one
	// all-reduce averages both.
	parameters, gradient, velocity, loss *safe.Buffer[float32]

	losses *safe.Buffer[float32] // of all steps
	done   *safe.Buffer[int32]   // how many steps
}

// A layer computes out = ReLU(in * weights + bias), the last one without ReLU. Weights have a row
// for each input; in and out have a row for each point.
type layer struct {
	weights, weightsGradient blas.Matrix[float32]
	bias, biasGradient       *safe.Buffer[float32]
	out                      blas.Matrix[float32]
	delta                    blas.Matrix[float32] // the gradient of the loss by what out is before ReLU
	mask                     *safe.Buffer[uint8]  // where that is above 0; nil for the last layer
}

// newNetwork makes a network for these points. Close the handle; all else is closed with x.
func newNetwork(ctx context.Context, x *safe.Context, points []float32, labels []int32, steps int) (n *network, err error) {
	kernels, err := LoadKernels(ctx, x, compile.Options{Defines: map[string]string{"ARMS": strconv.Itoa(arms)}})
	if err != nil {
		return nil, err
	}
	n = &network{kernels: kernels}
	first, count := initial(), len(labels)
	var onDevice *safe.Buffer[float32]
	var errs [9]error
	n.stream, errs[0] = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	onDevice, errs[1] = safe.Upload(x, points)
	n.labels, errs[2] = safe.Upload(x, labels)
	n.parameters, errs[3] = safe.Upload(x, first)
	n.gradient, errs[4] = safe.NewZeroed[float32](x, len(first)+1)
	n.velocity, errs[5] = safe.NewZeroed[float32](x, len(first))
	n.loss, errs[6] = n.gradient.Slice(len(first), len(first)+1)
	n.losses, errs[7] = safe.NewZeroed[float32](x, steps)
	n.done, errs[8] = safe.NewZeroed[int32](x, 1)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	n.points = blas.Rows(onDevice, count, sizes[0])
	at := 0
	for i, in := range sizes[:len(sizes)-1] {
		l, err := n.newLayer(x, at, in, sizes[i+1], i == len(sizes)-2)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		n.layers = append(n.layers, l)
		at += (in + 1) * sizes[i+1]
	}
	n.handle, err = blas.Open(x, blas.Options{})
	return n, err
}

// newLayer makes a layer whose parameters begin at a place among those of all layers.
func (n *network) newLayer(x *safe.Context, at, in, out int, last bool) (l layer, err error) {
	count, bias, end := n.points.Rows, at+in*out, at+(in+1)*out
	l.weights = blas.Matrix[float32]{Buffer: n.parameters, Offset: at, Rows: in, Cols: out}
	l.weightsGradient = blas.Matrix[float32]{Buffer: n.gradient, Offset: at, Rows: in, Cols: out}
	var values, delta *safe.Buffer[float32]
	var errs [5]error
	l.bias, errs[0] = n.parameters.Slice(bias, end)
	l.biasGradient, errs[1] = n.gradient.Slice(bias, end)
	values, errs[2] = safe.NewBuffer[float32](x, count*out)
	delta, errs[3] = safe.NewBuffer[float32](x, count*out)
	if !last {
		l.mask, errs[4] = safe.NewBuffer[uint8](x, blas.AuxLen(blas.ReLU, count, out))
	}
	l.out, l.delta = blas.Rows(values, count, out), blas.Rows(delta, count, out)
	return l, errors.Join(errs[:]...)
}

// step enqueues a step of the training: forward, loss, backward, average over all ranks of c,
// and descent. c is nil if there is one rank.
func (n *network) step(c *collective.Comm) error {
	in := n.points
	for i := range n.layers {
		if err := n.forward(&n.layers[i], in); err != nil {
			return fmt.Errorf("forward through layer %d: %w", i, err)
		}
		in = n.layers[i].out
	}
	last := &n.layers[len(n.layers)-1]
	err := n.kernels.Softmax.Launch(n.stream, safe.Threads(n.labels.Len()),
		last.out.Buffer, n.labels, last.delta.Buffer, n.loss, int32(n.labels.Len()))
	if err != nil {
		return err
	}
	for i := len(n.layers) - 1; i >= 0; i-- {
		if err := n.backward(i); err != nil {
			return fmt.Errorf("backward through layer %d: %w", i, err)
		}
	}
	if c != nil {
		if err := collective.AllReduce(c, n.stream, n.gradient, n.gradient, collective.Average); err != nil {
			return err
		}
	}
	return n.kernels.Descend.Launch(n.stream, safe.Threads(n.gradient.Len()),
		n.parameters, n.gradient, n.velocity, int32(n.parameters.Len()), rate, momentum, n.losses, n.done)
}

// forward enqueues a layer's product. cuBLAS adds the bias and applies ReLU in the same kernel.
func (n *network) forward(l *layer, in blas.Matrix[float32]) error {
	o := blas.MatmulOptions{Bias: l.bias}
	if l.mask != nil {
		o.Epilogue, o.Aux = blas.ReLU, l.mask
	}
	return blas.Matmul(n.handle, n.stream, 1, in, l.weights, 0, l.out, o)
}

// backward enqueues the gradients of layer i from its delta, and the delta of the layer before.
func (n *network) backward(i int) error {
	l, in := &n.layers[i], n.points
	if i > 0 {
		before := &n.layers[i-1]
		in = before.out
		o := blas.MatmulOptions{Epilogue: blas.DReLU, Aux: before.mask}
		if err := blas.Matmul(n.handle, n.stream, 1, l.delta, l.weights.T(), 0, before.delta, o); err != nil {
			return err
		}
	}
	return blas.Matmul(n.handle, n.stream, 1, in.T(), l.delta, 0, l.weightsGradient, blas.MatmulOptions{SumB: l.biasGradient})
}
