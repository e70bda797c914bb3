// Command saxpy adds a multiple of a vector to another, and prints how long that takes the GPU.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
)

const source = `extern "C" __global__ void saxpy(int n, float a, const float *x, float *y) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) y[i] += a * x[i];
}`

func main() {
	const n = 1 << 24
	ctx := context.Background()
	gpu, err1 := safe.Open(0)
	module, err2 := compile.Load(ctx, gpu, source, compile.Options{})
	saxpy, err3 := module.Kernel("saxpy")
	s, err4 := safe.NewStream(gpu)
	x, err5 := safe.NewBuffer[float32](gpu, n)
	y, err6 := safe.NewZeroed[float32](gpu, n)
	launch := func() error {
		return saxpy.Launch(s, safe.Threads(n), safe.Val(int32(n)), safe.Val(float32(2)), x.Arg(), y.Arg())
	}
	err7 := cmp.Or(x.Fill(3), launch()) // the first launch takes longer
	took, err8 := s.Time(ctx, launch)
	got, err9 := y.Download()
	if err := cmp.Or(err1, err2, err3, err4, err5, err6, err7, err8, err9); err != nil {
		log.Fatal(err)
	}
	for i, v := range got {
		if v != 12 {
			log.Fatalf("y[%d] is %v, not 12", i, v)
		}
	}
	fmt.Printf("%v, %.0f GB/s\n", took, 12*n/took.Seconds()/1e9)
}
