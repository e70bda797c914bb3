//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"math"
	"sync/atomic"

	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

// The kernels of this folder for the simulated driver: loops that compute the same on the host.

var layersDoubles = LayersDoubles{
	Sample: func(g sim.Grid, text []uint8, length, seed uint64, step []int32, later, first int32, tokens, targets []uint8, context int32) {
		n := int(context)
		for i := range int(g.Grid.X) {
			at := sampleAt(length-uint64(n), seed, int(step[0]+later), int(first)+i)
			copy(tokens[i*n:][:n], text[at:])
			copy(targets[i*n:][:n], text[at+1:])
		}
	},
	Embed: func(_ sim.Grid, tokens []uint8, ofToken, ofPlace, x []float32, rows, context, channels int32) {
		each(rows, channels, func(row, c, at int) {
			x[at] = ofToken[int(tokens[row])*int(channels)+c] + ofPlace[row%int(context)*int(channels)+c]
		})
	},
	Normalize: func(_ sim.Grid, x []float32, branch []bf16, random []uint8, drop int32, y []bf16, scales []float32, rows, channels int32) {
		squares := make([]float64, rows)
		each(rows, channels, func(row, _, at int) {
			if branch != nil {
				x[at] += kept(branch[at].Float32(), random, at, drop)
			}
			squares[row] += float64(x[at]) * float64(x[at])
		})
		each(rows, channels, func(row, _, at int) {
			scales[row] = float32(1 / math.Sqrt(squares[row]/float64(channels)+1e-6))
			y[at] = dtype.NewBFloat16(x[at] * scales[row])
		})
	},
	NormalizeBackward: func(_ sim.Grid, dy, y []bf16, scales, dx []float32, begin int32, dbranch []bf16, random []uint8, drop, rows, channels int32) {
		means := make([]float32, rows)
		each(rows, channels, func(row, _, at int) { means[row] += dy[at].Float32() * y[at].Float32() / float32(channels) })
		each(rows, channels, func(row, _, at int) {
			if begin != 0 {
				dx[at] = 0
			}
			dx[at] += scales[row] * (dy[at].Float32() - y[at].Float32()*means[row])
			dbranch[at] = dtype.NewBFloat16(kept(dx[at], random, at, drop))
		})
	},
	CrossEntropy: func(_ sim.Grid, scores []bf16, targets []uint8, losses []float32, rows, n int32) {
		for row, target := range targets[:rows] {
			score := dtype.Float32s(scores[row*int(n):][:n])
			p, logSum := softmax(score)
			losses[row] = logSum - score[target]
			p[target]--
			for i, v := range p {
				scores[row*int(n)+i] = dtype.NewBFloat16(v / float32(rows))
			}
		}
	},
	OneHot: func(_ sim.Grid, tokens []uint8, hot []bf16, rows, width int32) {
		clear(hot)
		for row, token := range tokens[:rows] {
			hot[row*int(width)+int(token)] = dtype.NewBFloat16(1)
		}
	},
	PlacesBackward: func(_ sim.Grid, dx []float32, ofPlace []bf16, sequences, context, channels int32) {
		sums := make([]float32, context*channels)
		for i, d := range dx[:int(sequences)*len(sums)] {
			sums[i%len(sums)] += d
		}
		set(ofPlace, sums)
	},
}

func each(rows, channels int32, f func(row, c, at int)) {
	for at := range int(rows * channels) {
		f(at/int(channels), at%int(channels), at)
	}
}

func kept(v float32, random []uint8, at int, drop int32) float32 {
	switch {
	case drop == 0:
		return v
	case int32(random[at]) < drop:
		return 0
	}
	return v * 256 / float32(256-drop)
}

// sampleAt is where a sequence of a step begins.
func sampleAt(places, seed uint64, step, sequence int) uint64 {
	z := seed + (uint64(step)<<32+uint64(sequence))*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) % places
}

// softmax returns probabilities, and the logarithm of what they were divided by.
func softmax(scores []float32) (p []float32, logSum float32) {
	most, sum := float32(math.Inf(-1)), 0.0
	for _, v := range scores {
		most = max(most, v)
	}
	for _, v := range scores {
		sum += math.Exp(float64(v - most))
	}
	for _, v := range scores {
		p = append(p, float32(math.Exp(float64(v-most))/sum))
	}
	return p, most + float32(math.Log(sum))
}

// A head is one of a sequence, in matrices with a row for each token.
type head struct {
	context, channels, row, column int
}

func heads(g sim.Grid, context, channels int32, f func(head)) {
	for sequence := range int(g.Grid.Z) {
		for i := range int(g.Grid.Y) {
			f(head{int(context), int(channels), sequence * int(context), i * headSize})
		}
	}
}

// of returns a vector of a token: part 0 to 2 of qkv, or the only one of a matrix with as many
// channels as the model.
func (h head) of(m []bf16, parts, part, token int) []bf16 {
	return m[((h.row+token)*parts+part)*h.channels+h.column:][:headSize]
}

func dot(a, b []bf16) (sum float32) {
	for i, v := range a {
		sum += v.Float32() * b[i].Float32()
	}
	return sum
}

func (h head) scores(qkv []bf16, query int) (all []float32) {
	for key := range query + 1 {
		all = append(all, dot(h.of(qkv, 3, 0, query), h.of(qkv, 3, 1, key))/8)
	}
	return all
}

var attentionDoubles = AttentionDoubles{
	Attention: func(g sim.Grid, qkv, out []bf16, logSums []float32, context, channels int32) {
		heads(g, context, channels, func(h head) {
			for query := range h.context {
				p, _ := softmax(h.scores(qkv, query))
				mixed := make([]float32, headSize)
				for key, weight := range p {
					add(mixed, weight, h.of(qkv, 3, 2, key))
				}
				set(h.of(out, 1, 0, query), mixed)
			}
		})
	},
	// The double of the queries' kernel does nothing: that of the keys' has all that both do, but
	// for the sums that one leaves for the other.
	QueriesBackward: func(_ sim.Grid, qkv, out, dout []bf16, logSums []float32, dqkv []bf16, dots []float32, context, channels int32) {
	},
	KeysBackward: func(g sim.Grid, qkv, dout []bf16, logSums, dots []float32, dqkv []bf16, context, channels int32) {
		heads(g, context, channels, func(h head) {
			grads := make([][3][headSize]float32, h.context)
			for query := range h.context {
				h.backward(qkv, dout, query, grads)
			}
			for token := range grads {
				for part := range 3 {
					set(h.of(dqkv, 3, part, token), grads[token][part][:])
				}
			}
		})
	},
}

// backward adds the gradients that come from a query.
func (h head) backward(qkv, dout []bf16, query int, grads [][3][headSize]float32) {
	p, _ := softmax(h.scores(qkv, query))
	d := h.of(dout, 1, 0, query)
	var dp []float32
	var mean float32
	for key, weight := range p {
		dp = append(dp, dot(d, h.of(qkv, 3, 2, key)))
		mean += weight * dp[key]
		add(grads[key][2][:], weight, d)
	}
	for key, weight := range p {
		ds := weight * (dp[key] - mean) / 8
		add(grads[query][0][:], ds, h.of(qkv, 3, 1, key))
		add(grads[key][1][:], ds, h.of(qkv, 3, 0, query))
	}
}

func add(to []float32, factor float32, v []bf16) {
	for i := range to {
		to[i] += factor * v[i].Float32()
	}
}

func set(to []bf16, v []float32) { copy(to, dtype.FromFloat32s[bf16](v)) }

var optimizerDoubles = OptimizerDoubles{
	Mean: func(_ sim.Grid, values []float32, n int32, result []float32) {
		sum := 0.0
		for _, v := range values[:n] {
			sum += float64(v)
		}
		result[0] = float32(sum / float64(n))
	},
	Squares: func(_ sim.Grid, gradient []bf16, n int32, sums []float32) {
		sum := 0.0
		for _, v := range gradient[:n] {
			g := float64(v.Float32())
			sum += g * g
		}
		clear(sums)
		sums[0] = float32(sum)
	},
	Plan: func(_ sim.Grid, sums []float32, n int32, loss []float32, s Schedule, update []Update, losses []float32, step []int32) {
		t := step[0]
		rate := float64(s.Rate) * float64(t+1) / float64(s.WarmUp)
		if t >= s.WarmUp {
			part := min(float64(t-s.WarmUp)/float64(max(s.Steps-s.WarmUp, 1)), 1)
			rate = float64(s.Rate) * (0.55 + 0.45*math.Cos(math.Pi*part))
		}
		correction := func(beta float32) float32 { return float32(1 / (1 - math.Pow(float64(beta), float64(t+1)))) }
		update[0] = Update{float32(rate), min(1, s.Norm/float32(math.Sqrt(float64(sums[0])))), correction(s.Beta1), correction(s.Beta2)}
		losses[t] = loss[0]
		step[0]++
	},
	Adam: func(_ sim.Grid, parameters []float32, rounded, gradient []bf16, first, second []float32, update []Update, s Schedule, n int32) {
		u := update[0]
		for i := range n {
			g := gradient[i].Float32() * u.GradientScale
			first[i] = s.Beta1*first[i] + (1-s.Beta1)*g
			second[i] = s.Beta2*second[i] + (1-s.Beta2)*g*g
			parameters[i] *= 1 - u.Rate*s.Decay
			parameters[i] -= u.Rate * first[i] * u.Scale1 / (float32(math.Sqrt(float64(second[i]*u.Scale2))) + 1e-8)
			rounded[i] = dtype.NewBFloat16(parameters[i])
		}
	},
	RoundAll: func(_ sim.Grid, parameters []float32, rounded []bf16, n int32) { set(rounded[:n], parameters[:n]) },
}

// untilHeld is in how many steps of the decoder the GPU stops: see holdIn.
var untilHeld atomic.Int64

var serveDoubles = ServeDoubles{
	Begin: func(g sim.Grid, rows []Row, ofToken, ofPlace, x []float32, channels int32) {
		each(int32(g.Grid.X), channels, func(row, c, at int) {
			x[at] = ofToken[int(rows[row].Token*channels)+c] + ofPlace[int(rows[row].Place*channels)+c]
		})
	},
	AttendCache: func(g sim.Grid, qkv, cache []bf16, rows []Row, out []bf16, context, channels int32) {
		for row := range int(g.Grid.X) {
			slot := cache[int(rows[row].Slot)*int(context*2*channels):][:context*2*channels]
			place := int(rows[row].Place)
			copy(slot[place*2*int(channels):], qkv[(row*3+1)*int(channels):][:2*channels])
			for i := range int(g.Grid.Y) {
				h := head{int(context), int(channels), 0, i * headSize}
				var scores []float32
				for key := range place + 1 {
					scores = append(scores, dot(h.of(qkv, 3, 0, row), h.of(slot, 2, 0, key))/8)
				}
				p, _ := softmax(scores)
				mixed := make([]float32, headSize)
				for key, weight := range p {
					add(mixed, weight, h.of(slot, 2, 1, key))
				}
				set(h.of(out, 1, 0, row), mixed)
			}
		}
	},
	Pick: func(_ sim.Grid, scores []bf16, rows []Row, random []float32, chosen []int32, n int32) {
		for row := range int(n) {
			score := dtype.Float32s(scores[row*tokens:][:tokens])
			heat, wanted := rows[row].Temperature, random[row]
			if heat == 0 {
				heat, wanted = 1e-6, 0
			}
			for i := range score {
				score[i] /= heat
			}
			p, _ := softmax(score)
			upTo := float32(0)
			for chosen[row] = 0; int(chosen[row]) < tokens-1; chosen[row]++ {
				if v := p[chosen[row]]; v > 0 && upTo+v >= wanted {
					break
				}
				upTo += p[chosen[row]]
			}
		}
		if untilHeld.Load() == 1 {
			control.Hold(true)
		}
		untilHeld.Add(-1)
	},
}
