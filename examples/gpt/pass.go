package main

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

type bf16 = dtype.BFloat16

// A pass goes forward through a model for some sequences, and backward. It has what the forward
// pass computes and the backward pass needs.
type pass struct {
	*model
	sequences int

	tokens, targets *safe.Buffer[uint8]
	x               *safe.Buffer[float32] // a row for each token, to which each branch adds
	layers          []activations
	last            normalized
	scores          blas.Matrix[bf16] // of all tokens; crossEntropy replaces them by the gradient by them
	losses          *safe.Buffer[float32]

	drop   int                   // of 256 values of a branch, how many are dropped
	random []*safe.Buffer[uint8] // a byte for each value of each branch; nil if none is dropped

	// For any layer. Branch 2*i is the attention of layer i, and 2*i+1 its network.
	branch, dy blas.Matrix[bf16]     // forward, branch is what the latest one adds to x; backward, the gradient by it
	dx         *safe.Buffer[float32] // the gradient by x
	dwide      blas.Matrix[bf16]
	dqkv       blas.Matrix[bf16]
	dots       *safe.Buffer[float32]
	hot        blas.Matrix[bf16]
}

// A normalized input of a branch: y = x * scales.
type normalized struct {
	y      blas.Matrix[bf16]
	scales *safe.Buffer[float32]
}

type activations struct {
	attention, network normalized
	qkv, mixed         blas.Matrix[bf16] // mixed are the heads' means of values
	logSums            *safe.Buffer[float32]
	wide               blas.Matrix[bf16]  // after GELU
	beforeGELU         *safe.Buffer[bf16] // of wide
}

// newPass allocates a pass for so many sequences. drop is of 256.
func newPass(m *model, sequences, drop int) (*pass, error) {
	p := &pass{model: m, sequences: sequences, drop: drop}
	a, n, c := &allocator{context: m.context}, p.rows(), m.Channels
	p.tokens, p.targets = buffer[uint8](a, n), buffer[uint8](a, n)
	p.x, p.dx = buffer[float32](a, n*c), buffer[float32](a, n*c)
	for range m.Layers {
		l := activations{
			attention: newNormalized(a, n, c), network: newNormalized(a, n, c),
			qkv: matrix(a, n, 3*c), mixed: matrix(a, n, c), logSums: buffer[float32](a, n*m.heads()),
			wide: matrix(a, n, 4*c), beforeGELU: buffer[bf16](a, blas.AuxLen(blas.GELU, n, 4*c)),
		}
		p.layers = append(p.layers, l)
	}
	p.last = newNormalized(a, n, c)
	p.scores, p.hot = matrix(a, n, tokens), matrix(a, n, tokens)
	p.losses, p.dots = buffer[float32](a, n), buffer[float32](a, n*m.heads())
	p.branch, p.dy = matrix(a, n, c), matrix(a, n, c)
	p.dwide, p.dqkv = matrix(a, n, 4*c), matrix(a, n, 3*c)
	p.random = make([]*safe.Buffer[uint8], 2*m.Layers)
	return p, a.err
}

func (p *pass) rows() int { return p.sequences * p.Context }

func newNormalized(a *allocator, rows, channels int) normalized {
	return normalized{matrix(a, rows, channels), buffer[float32](a, rows)}
}

func matrix(a *allocator, rows, cols int) blas.Matrix[bf16] {
	return blas.Rows(buffer[bf16](a, rows*cols), rows, cols)
}

// multiply enqueues d = a * b.
func (m *model) multiply(a, b, d blas.Matrix[bf16], o blas.MatmulOptions) error {
	return blas.Matmul(m.blas, m.stream, 1, a, b, 0, d, o)
}

// forward enqueues the pass from p.tokens to p.losses.
func (p *pass) forward() error {
	k, s, n := p.kernels, p.stream, p.rows()
	err := k.Embed.Launch(s, rows(n), p.tokens, p.parameters, p.ofPlace, p.x, int32(n), int32(p.Context), int32(p.Channels))
	if err != nil {
		return err
	}
	for i := range p.layers {
		if err := p.layerForward(i); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return errors.Join(
		p.normalize(p.last, 2*p.Layers-1),
		p.multiply(p.last.y, p.weights.out, p.scores, blas.MatmulOptions{}),
		k.CrossEntropy.Launch(s, rows(n), p.scores.Buffer, p.targets, p.losses, int32(n), tokens))
}

// layerForward enqueues a layer. errors.Join makes each call in turn, even after one that failed: what the others enqueue
// is lost then.
func (p *pass) layerForward(i int) error {
	l, w := &p.layers[i], &p.weights.layers[i]
	return errors.Join(
		p.normalize(l.attention, 2*i-1),
		p.multiply(l.attention.y, w.qkv, l.qkv, blas.MatmulOptions{}),
		p.kernels.Attention.Attention.Launch(p.stream, p.tiles(), l.qkv.Buffer, l.mixed.Buffer, l.logSums, int32(p.Context), int32(p.Channels)),
		p.multiply(l.mixed, w.project, p.branch, blas.MatmulOptions{}),
		p.normalize(l.network, 2*i),
		p.multiply(l.network.y, w.widen, l.wide, blas.MatmulOptions{Epilogue: blas.GELU, Aux: l.beforeGELU}),
		p.multiply(l.wide, w.narrow, p.branch, blas.MatmulOptions{}))
}

// normalize adds p.branch, which is the one of this number, to x, and normalizes the sum. -1 is before
// the first branch: nothing is added.
func (p *pass) normalize(to normalized, branch int) error {
	var added safe.Pointer[bf16]
	var random safe.Pointer[uint8]
	drop := 0
	if branch >= 0 {
		added = p.branch.Buffer
		random, drop = p.dropped(branch)
	}
	return p.kernels.Normalize.Launch(p.stream, rows(p.rows()), p.x, added, random, int32(drop), to.y.Buffer, to.scales, int32(p.rows()), int32(p.Channels))
}

func (p *pass) dropped(branch int) (safe.Pointer[uint8], int) {
	if branch < 0 || p.random[branch] == nil {
		return nil, 0
	}
	return p.random[branch], p.drop
}

// tiles is the launch of a kernel in which a block does 64 tokens of a head of a sequence.
func (p *pass) tiles() safe.LaunchConfig {
	return safe.LaunchConfig{Grid: safe.Dim{X: uint32(p.Context / tile), Y: uint32(p.heads()), Z: uint32(p.sequences)}, Block: safe.Dim{X: 128}}
}

// backward enqueues the pass from the gradient by p.scores to those by all weights. It calls done
// when work has been enqueued after which the parameters' gradients from one place to another are there.
func (p *pass) backward(to weights[bf16], done func(from, to int) error) error {
	err := errors.Join(
		p.multiply(p.last.y.T(), p.scores, to.out, blas.MatmulOptions{}),
		p.multiply(p.scores, p.weights.out.T(), p.dy, blas.MatmulOptions{}),
		p.normalizeBackward(p.last, 2*p.Layers-1))
	if err != nil {
		return err
	}
	if err := done(p.parametersBefore(p.Layers), p.shape.parameters()); err != nil {
		return err
	}
	for i := p.Layers - 1; i >= 0; i-- {
		if err := p.layerBackward(i, &to.layers[i]); err != nil {
			return fmt.Errorf("backward through layer %d: %w", i, err)
		}
		if err := done(p.parametersBefore(i), p.parametersBefore(i+1)); err != nil {
			return err
		}
	}
	k, n := p.kernels, p.rows()
	ofPlace, err := to.ofPlace.Buffer.Slice(to.ofPlace.Offset, to.ofPlace.Offset+p.Context*p.Channels)
	if err != nil {
		return err
	}
	return errors.Join(
		k.OneHot.Launch(p.stream, rows(n), p.tokens, p.hot.Buffer, int32(n), tokens),
		p.multiply(p.hot.T(), p.branch, to.ofToken, blas.MatmulOptions{}),
		k.PlacesBackward.Launch(p.stream, safe.Threads(p.Context*p.Channels), p.dx, ofPlace, int32(p.sequences), int32(p.Context), int32(p.Channels)),
		done(0, p.parametersBefore(0)))
}

// layerBackward begins with the gradient by the layer's second branch in p.branch, and leaves
// there that by the branch before the layer.
func (p *pass) layerBackward(i int, to *layerWeights[bf16]) error {
	l, w, a, s := &p.layers[i], &p.weights.layers[i], p.kernels.Attention, p.stream
	return errors.Join(
		p.multiply(l.wide.T(), p.branch, to.narrow, blas.MatmulOptions{}),
		p.multiply(p.branch, w.narrow.T(), p.dwide, blas.MatmulOptions{Epilogue: blas.DGELU, Aux: l.beforeGELU}),
		p.multiply(l.network.y.T(), p.dwide, to.widen, blas.MatmulOptions{}),
		p.multiply(p.dwide, w.widen.T(), p.dy, blas.MatmulOptions{}),
		p.normalizeBackward(l.network, 2*i),
		p.multiply(l.mixed.T(), p.branch, to.project, blas.MatmulOptions{}),
		p.multiply(p.branch, w.project.T(), p.dy, blas.MatmulOptions{}),
		a.QueriesBackward.Launch(s, p.tiles(), l.qkv.Buffer, l.mixed.Buffer, p.dy.Buffer, l.logSums, p.dqkv.Buffer, p.dots, int32(p.Context), int32(p.Channels)),
		a.KeysBackward.Launch(s, p.tiles(), l.qkv.Buffer, p.dy.Buffer, l.logSums, p.dots, p.dqkv.Buffer, int32(p.Context), int32(p.Channels)),
		p.multiply(l.attention.y.T(), p.dqkv, to.qkv, blas.MatmulOptions{}),
		p.multiply(p.dqkv, w.qkv.T(), p.dy, blas.MatmulOptions{}),
		p.normalizeBackward(l.attention, 2*i-1))
}

// normalizeBackward adds to p.dx what comes by p.dy, and sets p.branch to the gradient by the
// branch of this number. The last branch is the first to be here.
func (p *pass) normalizeBackward(of normalized, branch int) error {
	var begin int32
	if branch == 2*p.Layers-1 {
		begin = 1
	}
	random, drop := p.dropped(branch)
	return p.kernels.NormalizeBackward.Launch(p.stream, rows(p.rows()), p.dy.Buffer, of.y.Buffer, of.scales, p.dx, begin,
		p.branch.Buffer, random, int32(drop), int32(p.rows()), int32(p.Channels))
}

// parametersBefore is where the parameters of a layer begin.
func (s shape) parametersBefore(layer int) int { return s.beforeLayers() + layer*s.layer() }
