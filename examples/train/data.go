package main

import "math"

const arms = 3 // of the spiral: the network says for a point of the plane which arm it is on

// sizes are the numbers of inputs, of neurons of the two hidden layers, and of outputs.
var sizes = [...]int{2, 64, 64, arms}

// random is a generator that takes one line in any language: train.py has the same one.
type random uint32

// next returns a number from 0 up to 1.
func (r *random) next() float64 {
	*r = *r*1664525 + 1013904223
	return float64(*r>>8) / (1 << 24)
}

// spiral returns n points, x and y of each, and the arm that each is on.
func spiral(n int) (points []float32, labels []int32) {
	r := random(1)
	for i := range n {
		arm, far := i%arms, (float64(i)+0.5)/float64(n)
		angle := 2*math.Pi*(far+float64(arm)/arms) + 0.4*(r.next()-0.5)
		points = append(points, float32(far*math.Cos(angle)), float32(far*math.Sin(angle)))
		labels = append(labels, int32(arm))
	}
	return points, labels
}

// initial returns the parameters to begin with: of each layer the weights, with a row for each
// input, and then the biases.
func initial() (all []float32) {
	r := random(2)
	for l, in := range sizes[:len(sizes)-1] {
		out, largest := sizes[l+1], math.Sqrt(6/float64(in))
		for range in * out {
			all = append(all, float32(largest*(2*r.next()-1)))
		}
		all = append(all, make([]float32, out)...)
	}
	return all
}
