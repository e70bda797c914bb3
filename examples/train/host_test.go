//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// host is the network on the host, in float64.
type host struct {
	points                         []float64
	labels                         []int32
	parameters, gradient, velocity []float64
}

func newHost(n int) *host {
	points, labels := spiral(n)
	p := wide(initial())
	return &host{wide(points), labels, p, make([]float64, len(p)), make([]float64, len(p))}
}

func wide(v []float32) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

// step is a step of the training. It returns the loss before it.
func (h *host) step() (loss float64) {
	clear(h.gradient)
	n := float64(len(h.labels))
	for i, label := range h.labels {
		values := h.forward(h.points[2*i : 2*i+2])
		delta, sum := slices.Clone(values[len(values)-1]), 0.0
		for _, score := range delta {
			sum += math.Exp(score)
		}
		loss += (math.Log(sum) - delta[label]) / n
		for arm, score := range delta {
			delta[arm] = math.Exp(score) / sum / n
		}
		delta[label] -= 1 / n
		h.backward(values, delta)
	}
	for i, g := range h.gradient {
		h.velocity[i] = momentum*h.velocity[i] + g
		h.parameters[i] -= rate * h.velocity[i]
	}
	return loss
}

// forward returns the inputs and what each layer makes of them.
func (h *host) forward(in []float64) [][]float64 {
	values, p := [][]float64{in}, h.parameters
	for l, outputs := range sizes[1:] {
		out := slices.Clone(p[len(in)*outputs:][:outputs]) // the biases
		for i, v := range in {
			for o := range out {
				out[o] += v * p[i*outputs+o]
			}
		}
		for o := range out {
			if l < len(sizes)-2 {
				out[o] = max(out[o], 0)
			}
		}
		p = p[(len(in)+1)*outputs:]
		values, in = append(values, out), out
	}
	return values
}

// backward adds the gradients of one point, whose loss has the gradient delta by the scores.
func (h *host) backward(values [][]float64, delta []float64) {
	end := len(h.parameters)
	for l := len(sizes) - 2; l >= 0; l-- {
		in, outputs := values[l], len(delta)
		begin := end - (len(in)+1)*outputs
		p, g := h.parameters[begin:end], h.gradient[begin:end]
		before := make([]float64, len(in))
		for i, v := range in {
			for o, d := range delta {
				g[i*outputs+o] += v * d
				if v > 0 {
					before[i] += d * p[i*outputs+o]
				}
			}
		}
		for o, d := range delta {
			g[len(in)*outputs+o] += d
		}
		delta, end = before, begin
	}
}

// TestHost: the spiral can be learned.
func TestHost(t *testing.T) {
	h := newHost(384)
	first, last := h.step(), 0.0
	for range 299 {
		last = h.step()
	}
	assert.InDelta(t, math.Log(arms), first, 0.3, "of a guess")
	assert.Less(t, last, 0.05)
}

// TestHostGradient compares gradients with differences of losses.
func TestHostGradient(t *testing.T) {
	const small = 1e-6
	for i := 0; i < len(initial()); i += 97 {
		low, high := newHost(12), newHost(12)
		low.parameters[i] -= small
		high.parameters[i] += small
		slope := (high.step() - low.step()) / (2 * small)
		assert.InDelta(t, slope, low.gradient[i], 1e-4, "parameter %d", i)
	}
}
