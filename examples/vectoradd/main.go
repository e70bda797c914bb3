// Command vectoradd adds two vectors on the GPU.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
)

const source = `
extern "C" __global__ void add(const float *a, const float *b, float *sum, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) sum[i] = a[i] + b[i];
}`

func main() {
	x := must(safe.Open(0))
	module := must(compile.Load(context.Background(), x, source, compile.Options{}))
	add := must(module.Kernel("add"))
	stream := must(safe.NewStream(x))

	a := must(safe.Upload(x, []float32{1, 2, 3, 4}))
	b := must(safe.Upload(x, []float32{10, 20, 30, 40}))
	sum := must(safe.NewBuffer[float32](x, a.Len()))
	err := add.Launch(stream, safe.Threads(a.Len()), a.Arg(), b.Arg(), sum.Arg(), safe.Val(int32(a.Len())))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(must(sum.Download())) // waits for the kernel
	// The end of the process releases everything. Longer-lived programs close what they open.
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
