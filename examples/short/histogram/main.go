// Command histogram counts how often each byte occurs.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"slices"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/compile"
)

const source = `extern "C" __global__ void histogram(const unsigned char *data, int n, unsigned *counts) {
	__shared__ unsigned block[256];
	block[threadIdx.x] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&block[data[i]], 1);
	__syncthreads();
	atomicAdd(&counts[threadIdx.x], block[threadIdx.x]);
}`

func main() {
	data, want := make([]byte, 1<<24), make([]uint32, 256)
	for i := range data {
		data[i] = byte(rand.IntN(128) + rand.IntN(129))
		want[data[i]]++
	}
	gpu, err1 := safe.Open(0)
	module, err2 := compile.Load(context.Background(), gpu, source, compile.Options{})
	histogram, err3 := module.Kernel("histogram")
	s, err4 := safe.NewStream(gpu)
	in, err5 := safe.Upload(gpu, data)
	counts, err6 := safe.NewZeroed[uint32](gpu, len(want))
	err7 := histogram.Launch(s, safe.Threads(1<<16), in.Arg(), safe.Val(int32(len(data))), counts.Arg())
	got, err8 := counts.Download()
	if err := cmp.Or(err1, err2, err3, err4, err5, err6, err7, err8); err != nil {
		log.Fatal(err)
	}
	if !slices.Equal(got, want) {
		log.Fatalf("counts are %d, not %d", got, want)
	}
	fmt.Println("byte 128 occurs", got[128], "times")
}
