// Command vectoradd adds two vectors on the GPU. It exits with 2 if there is none.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// The kernel, compiled to PTX. The driver compiles PTX for the GPU that it finds.
//
//go:generate nvcc -ptx -arch=compute_75 -o kernel.ptx kernel.cu
//go:embed kernel.ptx
var ptx []byte

func main() {
	a, b := make([]float32, 1000), make([]float32, 1000)
	for i := range a {
		a[i], b[i] = float32(i), float32(2*i)
	}
	sum, err := add(a, b)
	if errors.As(err, new(*driver.LibraryError)) || errors.Is(err, driver.CUDA_ERROR_NO_DEVICE) {
		fmt.Fprintln(os.Stderr, "no GPU here:", err)
		os.Exit(2)
	} else if err != nil {
		log.Fatal(err)
	}
	for i := range sum {
		if sum[i] != a[i]+b[i] {
			log.Fatalf("%v + %v = %v", a[i], b[i], sum[i])
		}
	}
	fmt.Printf("%d sums are correct: %v + %v = %v\n", len(sum), a[999], b[999], sum[999])
}

// add returns a + b, computed on device 0.
func add(a, b []float32) ([]float32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	module, err := safe.Load(x, ptx, safe.LoadOptions{})
	if err != nil {
		return nil, err
	}
	defer module.Close()
	kernel, err := module.Kernel("add")
	if err != nil {
		return nil, err
	}
	stream, err := safe.NewStream(x, safe.StreamOptions{})
	if err != nil {
		return nil, err
	}
	defer stream.Close()

	var memory [3]*safe.Buffer[float32] // a, b and their sum, on the device
	for i := range memory {
		if memory[i], err = safe.NewBuffer[float32](x, len(a)); err != nil {
			return nil, err
		}
		defer memory[i].Close()
	}
	if err := errors.Join(memory[0].CopyFromHost(a), memory[1].CopyFromHost(b)); err != nil {
		return nil, err
	}
	config := safe.LaunchConfig{Grid: safe.Blocks(len(a), 256), Block: safe.Dim{X: 256}}
	err = kernel.Launch(stream, config, memory[0].Arg(), memory[1].Arg(), memory[2].Arg(), safe.Val(uint32(len(a))))
	if err != nil {
		return nil, err
	}
	sum := make([]float32, len(a))
	return sum, memory[2].CopyToHost(sum) // waits for the kernel
}
