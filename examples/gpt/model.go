package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/compile"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/cudabind/cudabind/cuda/safe/random"
)

//go:generate go run ../../tools/kernels -doubles layers.cu attention.cu optimizer.cu serve.cu

const (
	tokens      = 256 // a token is a byte
	headSize    = 64  // channels of an attention head
	tile        = 64  // attention does so many tokens at once
	longest     = 1024
	warpsABlock = 4
)

// A shape is the size of a model.
type shape struct {
	Layers   int // each is attention and a network of two products
	Channels int // values of a token between layers, a multiple of 128
	Context  int // tokens that the model sees, a multiple of 64
}

func (s shape) check() error {
	if s.Layers < 1 || s.Layers > 1000 || s.Channels < 128 || s.Channels > 1<<14 || s.Channels%128 != 0 || s.Context < tile || s.Context%tile != 0 || s.Context > longest {
		return fmt.Errorf("%d layers of %d channels with a context of %d: needs 1 to 1000 layers, a multiple of 128 channels up to %d, and a context that is a multiple of %d up to %d",
			s.Layers, s.Channels, s.Context, 1<<14, tile, longest)
	}
	if n := s.parameters(); n > math.MaxInt32 {
		return fmt.Errorf("%d layers of %d channels have %d parameters: at most %d", s.Layers, s.Channels, n, math.MaxInt32)
	}
	return nil
}

func (s shape) heads() int { return s.Channels / headSize }

// layer is the number of parameters of a layer, and parameters that of all.
func (s shape) layer() int      { return 12 * s.Channels * s.Channels }
func (s shape) parameters() int { return s.beforeLayers() + s.Layers*s.layer() + s.Channels*tokens }

func (s shape) beforeLayers() int { return (tokens + s.Context) * s.Channels }

// weights are the matrices of a model, one after the other in a buffer, or the gradients by them.
// Those of products have a row for each input.
type weights[T blas.Number] struct {
	ofToken, ofPlace blas.Matrix[T]
	layers           []layerWeights[T]
	out              blas.Matrix[T] // to the scores of all tokens
}

type layerWeights[T blas.Number] struct {
	qkv     blas.Matrix[T] // to queries, keys and values
	project blas.Matrix[T] // from the heads' means to a branch
	widen   blas.Matrix[T] // to four times the channels
	narrow  blas.Matrix[T] // and back, to a branch
}

func weightsOf[T blas.Number](b *safe.Buffer[T], s shape) (w weights[T]) {
	at, c := 0, s.Channels
	next := func(rows, cols int) blas.Matrix[T] {
		m := blas.Matrix[T]{Buffer: b, Offset: at, Rows: rows, Cols: cols}
		at += rows * cols
		return m
	}
	w.ofToken, w.ofPlace = next(tokens, c), next(s.Context, c)
	for range s.Layers {
		w.layers = append(w.layers, layerWeights[T]{next(c, 3*c), next(c, c), next(c, 4*c), next(4*c, c)})
	}
	w.out = next(c, tokens)
	return w
}

// A model is on one GPU. Training works on its stream, and so does serving.
type model struct {
	shape
	context *safe.Context
	stream  *safe.Stream
	blas    *blas.Handle

	kernels struct {
		*Layers
		*Attention
		*Optimizer
		*Serve
	}

	parameters *safe.Buffer[float32]        // exact, as the optimizer needs them
	ofPlace    *safe.Buffer[float32]        // a part of parameters
	rounded    *safe.Buffer[dtype.BFloat16] // for products by tensor cores
	weights    weights[dtype.BFloat16]      // in rounded
}

// newModel makes a model with these parameters, or with random ones if there are none. close frees it.
func newModel(ctx context.Context, x *safe.Context, s shape, parameters []float32, seed uint64) (m *model, err error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	m = &model{shape: s, context: x}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	k, o := &m.kernels, compile.Options{}
	var errs [6]error
	k.Layers, errs[0] = LoadLayers(ctx, x, o)
	k.Attention, errs[1] = LoadAttention(ctx, x, o)
	k.Optimizer, errs[2] = LoadOptimizer(ctx, x, o)
	k.Serve, errs[3] = LoadServe(ctx, x, o)
	m.stream, errs[4] = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	m.blas, errs[5] = blas.Open(x, blas.Options{})
	if err := errors.Join(errs[:]...); err != nil {
		return m, err
	}
	a := allocator{context: x}
	m.parameters = buffer[float32](&a, s.parameters())
	m.ofPlace = slice(&a, m.parameters, tokens*s.Channels, s.beforeLayers())
	m.rounded = buffer[dtype.BFloat16](&a, s.parameters())
	if a.err != nil {
		return m, a.err
	}
	m.weights = weightsOf(m.rounded, s)
	if parameters != nil {
		err = m.parameters.CopyFromHost(parameters)
	} else {
		err = m.randomize(seed)
	}
	if err != nil {
		return m, err
	}
	return m, m.kernels.RoundAll.Launch(m.stream, safe.Threads(s.parameters()), m.parameters, m.rounded, int32(s.parameters()))
}

// close frees the model, once its work is done.
func (m *model) close() error {
	k := m.kernels
	return errors.Join(k.Layers.Close(), k.Attention.Close(), k.Optimizer.Close(), k.Serve.Close(),
		m.parameters.Close(), m.rounded.Close(), m.blas.Close(), m.stream.Close())
}

// randomize begins the model: normal numbers, smaller for the matrices that add branches, of which
// there are many.
func (m *model) randomize(seed uint64) error {
	g, err := random.New(m.context, random.Philox, random.Options{Seed: seed})
	if err != nil {
		return err
	}
	defer g.Close()
	if err := random.Normal(g, m.stream, m.parameters, 0, 0.02); err != nil {
		return err
	}
	less := float32(1 / math.Sqrt(2*float64(m.Layers)))
	for _, l := range weightsOf(m.parameters, m.shape).layers {
		for _, w := range []blas.Matrix[float32]{l.project, l.narrow} {
			if err := blas.Scal(m.blas, m.stream, less, blas.Vector[float32]{Buffer: w.Buffer, Offset: w.Offset, N: w.Rows * w.Cols}); err != nil {
				return err
			}
		}
	}
	return nil
}

// rows is the launch of a kernel in which a warp does a row.
func rows(n int) safe.LaunchConfig {
	return safe.LaunchConfig{Grid: safe.Dim{X: uint32((n + warpsABlock - 1) / warpsABlock)}, Block: safe.Dim{X: 32 * warpsABlock}}
}

// An allocator allocates buffers of a context until one cannot be allocated, and keeps that error.
type allocator struct {
	context *safe.Context
	err     error
}

func buffer[T any](a *allocator, n int) (b *safe.Buffer[T]) {
	if a.err == nil {
		b, a.err = safe.NewBuffer[T](a.context, n)
	}
	return b
}

func slice[T any](a *allocator, of *safe.Buffer[T], from, to int) (b *safe.Buffer[T]) {
	if a.err == nil {
		b, a.err = of.Slice(from, to)
	}
	return b
}
