// Command vectoradd adds two vectors on a GPU, by a kernel of its own:
//
//	go run github.com/cudabind/cudabind/examples/vectoradd
//
// Where there is no GPU it says so and exits with 2.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

func main() {
	err := run(os.Stdout)
	switch {
	case err == nil:
	case errors.As(err, new(*driver.LibraryError)), errors.Is(err, driver.CUDA_ERROR_NO_DEVICE):
		fmt.Fprintln(os.Stderr, "vectoradd: no GPU here:", err)
		fmt.Fprintln(os.Stderr, "In a checkout of cudabind, make example runs this on a simulated driver.")
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "vectoradd:", err)
		os.Exit(1)
	}
}

// kernels is kernel.cu as PTX, which the driver compiles for the GPU. It is
// committed, so that whoever builds the program needs no nvcc.
//
//go:generate nvcc -ptx -arch=compute_75 -o kernel.ptx kernel.cu
//go:embed kernel.ptx
var kernels []byte

// add has a GPU add two vectors of the same length.
func add(device int, a, b []float32) ([]float32, error) {
	x, err := safe.Open(device)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	module, err := safe.Load(x, kernels, safe.LoadOptions{})
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

	var memory [3]*safe.Buffer[float32] // a, b and their sum
	for i := range memory {
		if memory[i], err = safe.NewBuffer[float32](x, len(a)); err != nil {
			return nil, err
		}
		defer memory[i].Close()
	}
	if err := memory[0].CopyFromHost(a); err != nil {
		return nil, err
	}
	if err := memory[1].CopyFromHost(b); err != nil {
		return nil, err
	}
	config := safe.LaunchConfig{Grid: safe.Blocks(len(a), 256), Block: safe.Dim{X: 256}}
	err = kernel.Launch(stream, config, memory[0].Arg(), memory[1].Arg(), memory[2].Arg(), safe.Val(uint32(len(a))))
	if err != nil {
		return nil, err
	}
	sum := make([]float32, len(a))
	return sum, memory[2].CopyToHost(sum) // when the kernel is done
}

func run(w io.Writer) error {
	const n = 1000
	a, b := make([]float32, n), make([]float32, n)
	for i := range n {
		a[i], b[i] = float32(i), float32(2*i)
	}
	sum, err := add(0, a, b)
	if err != nil {
		return err
	}
	for i, got := range sum {
		if want := a[i] + b[i]; got != want {
			return fmt.Errorf("%v + %v = %v, says the GPU", a[i], b[i], got)
		}
	}
	fmt.Fprintf(w, "%d sums are right, such as %v + %v = %v\n", n, a[n-1], b[n-1], sum[n-1])
	return where(w)
}

// where says what the sums were computed by.
func where(w io.Writer) error {
	devices, err := safe.Devices()
	if err != nil {
		return err
	}
	name, err := devices[0].Name()
	if err != nil {
		return err
	}
	file, version, err := driver.Library()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "by %s, with %s of CUDA %s\n", name, file, version)
	return err
}
