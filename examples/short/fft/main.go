// Command fft finds the frequency of a signal.
package main

import (
	"cmp"
	"fmt"
	"log"
	"math"
	"math/cmplx"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/fft"
)

func main() {
	const n, frequency = 1 << 12, 1234
	signal := make([]float32, n)
	for i := range signal {
		signal[i] = float32(math.Sin(2 * math.Pi * frequency * float64(i) / n))
	}
	gpu, err1 := safe.Open(0)
	plan, err2 := fft.New[float32, complex64](gpu, fft.Shape{N: []int{n}}, fft.Options{})
	s, err3 := safe.NewStream(gpu)
	in, err4 := safe.Upload(gpu, signal)
	out, err5 := safe.NewBuffer[complex64](gpu, n/2+1)
	err6 := plan.Forward(s, in, out)
	spectrum, err7 := out.Download()
	if err := cmp.Or(err1, err2, err3, err4, err5, err6, err7); err != nil {
		log.Fatal(err)
	}
	for i, v := range spectrum {
		if strong := cmplx.Abs(complex128(v)) > n/4; strong != (i == frequency) {
			log.Fatalf("frequency %d has the amplitude %v", i, v)
		}
	}
	fmt.Println("the frequency is", frequency)
}
