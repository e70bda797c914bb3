//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"math"
)

// hostLoss is the mean loss of a model for one sequence, in float64: what all kernels are compared with.
func hostLoss(s shape, parameters []float64, sequence, targets []byte) float64 {
	h := newHost(s, parameters)
	c := s.Channels
	x := make([][]float64, len(sequence))
	for i, token := range sequence {
		x[i] = make([]float64, c)
		for j := range c {
			x[i][j] = h.ofToken[int(token)*c+j] + h.ofPlace[i*c+j]
		}
	}
	for _, w := range h.layers {
		addAll(x, product(hostAttention(product(normal(x), w[0], 3*c), c), w[1], c))
		wide := product(normal(x), w[2], 4*c)
		for _, row := range wide {
			for i, v := range row {
				row[i] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			}
		}
		addAll(x, product(wide, w[3], c))
	}
	loss := 0.0
	for i, scores := range product(normal(x), h.out, tokens) {
		sum := 0.0
		for _, v := range scores {
			sum += math.Exp(v)
		}
		loss += math.Log(sum) - scores[targets[i]]
	}
	return loss / float64(len(sequence))
}

type host struct {
	ofToken, ofPlace, out []float64
	layers                [][4][]float64
}

func newHost(s shape, parameters []float64) (h host) {
	c := s.Channels
	next := func(n int) (part []float64) {
		part, parameters = parameters[:n], parameters[n:]
		return part
	}
	h.ofToken, h.ofPlace = next(tokens*c), next(s.Context*c)
	for range s.Layers {
		h.layers = append(h.layers, [4][]float64{next(3 * c * c), next(c * c), next(4 * c * c), next(4 * c * c)})
	}
	h.out = next(c * tokens)
	return h
}

// product multiplies rows by a matrix with that many columns.
func product(x [][]float64, w []float64, cols int) (out [][]float64) {
	for _, row := range x {
		sums := make([]float64, cols)
		for i, v := range row {
			for j, f := range w[i*cols:][:cols] {
				sums[j] += v * f
			}
		}
		out = append(out, sums)
	}
	return out
}

func addAll(x, y [][]float64) {
	for i, row := range y {
		for j, v := range row {
			x[i][j] += v
		}
	}
}

// normal scales each row to a root mean square of 1.
func normal(x [][]float64) (out [][]float64) {
	for _, row := range x {
		squares := 0.0
		for _, v := range row {
			squares += v * v
		}
		scaled := make([]float64, len(row))
		for i, v := range row {
			scaled[i] = v / math.Sqrt(squares/float64(len(row))+1e-6)
		}
		out = append(out, scaled)
	}
	return out
}

func hostAttention(qkv [][]float64, channels int) (out [][]float64) {
	for query := range qkv {
		mixed := make([]float64, channels)
		for at := 0; at < channels; at += headSize {
			q := qkv[query][at:][:headSize]
			sum, weights := 0.0, make([]float64, query+1)
			for key := range weights {
				score := 0.0
				for i, v := range qkv[key][channels+at:][:headSize] {
					score += q[i] * v
				}
				weights[key] = math.Exp(score / math.Sqrt(headSize))
				sum += weights[key]
			}
			for key, weight := range weights {
				for i, v := range qkv[key][2*channels+at:][:headSize] {
					mixed[at+i] += weight / sum * v
				}
			}
		}
		out = append(out, mixed)
	}
	return out
}
