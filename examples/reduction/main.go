// Command reduction computes the sum and the maximum of many values on the GPU, with CUB. NVRTC
// 13.3 and newer contain CUB; with older ones, it takes the headers of a toolkit or of Python's
// packages.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
)

//go:generate go run ../../tools/kernels kernels.cu

func main() {
	n := flag.Int("n", 1<<24, "how many values, at least 1")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("reduction: unexpected argument %q", flag.Arg(0))
	}
	values := make([]float32, max(*n, 1))
	for i := range values {
		values[i] = rand.Float32()
	}

	x := must(safe.Open(0))
	kernels := must(LoadKernels(context.Background(), x, compile.Options{}))
	stream := must(safe.NewStream(x))
	in := must(safe.Upload(x, values))

	sum := reduce(x, stream, kernels.Sum, in)
	largest := reduce(x, stream, kernels.Maximum, in)
	fmt.Printf("%d values: sum %g, maximum %g\n", len(values), sum, largest)

	var want float64
	for _, v := range values {
		want += float64(v)
	}
	if !(math.Abs(float64(sum)-want) <= 1e-5*want) || largest != slices.Max(values) {
		log.Fatalf("on the host: sum %g, maximum %g", want, slices.Max(values))
	}
}

// A reduction is one of the kernels.
type reduction interface {
	Launch(stream *safe.Stream, config safe.LaunchConfig, in safe.Pointer[float32], n int64, out safe.Pointer[float32]) error
}

// reduce makes one value of each block's share, and then one of those.
func reduce(x *safe.Context, stream *safe.Stream, k reduction, in *safe.Buffer[float32]) float32 {
	const blocks = 1024
	parts := must(safe.NewBuffer[float32](x, blocks))
	result := must(safe.NewBuffer[float32](x, 1))
	check(k.Launch(stream, safe.Threads(blocks*256), in, int64(in.Len()), parts))
	check(k.Launch(stream, safe.Threads(1), parts, blocks, result))
	return must(result.Download())[0] // waits for the kernels
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
