// Command mlp runs a perceptron of three layers on a batch of inputs.
package main

import (
	"cmp"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/blas"
)

func main() {
	sizes, batch := []int{784, 512, 256, 10}, 256
	want := random(batch * sizes[0])
	gpu, err1 := safe.Open(0)
	s, err2 := safe.NewStream(gpu)
	h, err3 := blas.Open(gpu, blas.Options{})
	values, err4 := safe.Upload(gpu, want)
	err := cmp.Or(err1, err2, err3, err4)
	for i, n := range sizes[1:] {
		w, b := random(sizes[i]*n), random(n)
		weights, err1 := safe.Upload(gpu, w)
		bias, err2 := safe.Upload(gpu, b)
		out, err3 := safe.NewBuffer[float32](gpu, batch*n)
		err4 := blas.Matmul(h, s, 1, blas.Rows(values, batch, sizes[i]), blas.Rows(weights, sizes[i], n),
			0, blas.Rows(out, batch, n), blas.MatmulOptions{Bias: bias, Epilogue: blas.ReLU})
		err, values, want = cmp.Or(err, err1, err2, err3, err4), out, layer(want[:sizes[i]], w, b)
	}
	got, err5 := values.Download()
	if err := cmp.Or(err, err5); err != nil {
		log.Fatal(err)
	}
	near := func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-4 }
	if !slices.EqualFunc(got[:len(want)], want, near) {
		log.Fatalf("outputs are %v, not %v", got[:len(want)], want)
	}
	fmt.Println(want)
}

// layer returns what a layer makes of one input, computed on the host.
func layer(in, weights, bias []float32) []float32 {
	for j := range bias {
		for i, v := range in {
			bias[j] += v * weights[i*len(bias)+j]
		}
		bias[j] = max(bias[j], 0)
	}
	return bias
}

// random returns n numbers from -0.1 to 0.1.
func random(n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = 0.2*rand.Float32() - 0.1
	}
	return values
}
