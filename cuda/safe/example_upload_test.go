//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
)

// Copy a slice to new device memory, let a kernel use it, and copy the result back.
func ExampleUpload() {
	doubled, err := double([]float32{1, 2, 3})
	fmt.Println(doubled, err)
	// Output: [2 4 6] <nil>
}

func double(values []float32) ([]float32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	defer x.CloseAll()
	module, err := safe.Load(x, compiled)
	if err != nil {
		return nil, err
	}
	add, err := module.Kernel("add")
	if err != nil {
		return nil, err
	}
	s, err := safe.NewStream(x)
	if err != nil {
		return nil, err
	}
	b, err := safe.Upload(x, values)
	if err != nil {
		return nil, err
	}
	n := b.Len()
	if err := add.Launch(s, safe.Threads(n), b.Arg(), b.Arg(), b.Arg(), safe.Val(uint32(n))); err != nil {
		return nil, err
	}
	return b.Download() // waits for the kernel
}

func ExampleBuffer_Download() {
	x, err := safe.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	b, err := safe.Upload(x, []int32{10, 20, 30, 40})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	last, err := b.Slice(2, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(last.Download())
	// Output: [30 40] <nil>
}

func ExampleNewZeroed() {
	x, err := safe.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	counts, err := safe.NewZeroed[uint32](x, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer counts.Close()
	fmt.Println(counts.Download())
	// Output: [0 0 0 0] <nil>
}

// Close everything that was made in a context, in one call.
func ExampleContext_CloseAll() {
	x, err := safe.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	for range 3 {
		if _, err := safe.NewZeroed[float32](x, 1000); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(x.CloseAll())
	// Output: <nil>
}

// A function that gets a stream can allocate memory in its context.
func ExampleStream_Context() {
	temporary := func(s *safe.Stream) (*safe.Buffer[float32], error) {
		return safe.NewBuffer[float32](s.Context(), 256)
	}
	x, err := safe.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	b, err := temporary(s)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	fmt.Println(b.Len(), b.Context().Raw() == x.Raw())
	// Output: 256 true
}

// As many blocks of 256 threads as 1000 values take.
func ExampleThreads() {
	cfg := safe.Threads(1000)
	fmt.Println(cfg.Grid.X, cfg.Block.X)
	// Output: 4 256
}

// One thread for each pixel of an image.
func ExampleThreads2D() {
	cfg := safe.Threads2D(1920, 1080)
	fmt.Println(cfg.Grid.X, cfg.Grid.Y, cfg.Block.X, cfg.Block.Y)
	// Output: 60 135 32 8
}

func ExampleFloat16() {
	third := dtype.NewFloat16(1.0 / 3)
	fmt.Println(third, third.Float32()*3)
	fmt.Printf("%#04x\n", uint16(third))
	// Output:
	// 0.33325195 0.99975586
	// 0x3555
}

func ExampleBFloat16() {
	fmt.Println(dtype.NewBFloat16(3.14159))
	// Output: 3.140625
}

// Numbers out of range become the largest one, as with CUDA's own conversions.
func ExampleFloat8E4M3() {
	fmt.Println(dtype.NewFloat8E4M3(0.3), dtype.NewFloat8E4M3(1000))
	// Output: 0.3125 448
}

// Device memory of half-precision numbers from float32s.
func ExampleUpload_halfPrecision() {
	x, err := safe.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	b, err := safe.Upload(x, dtype.FromFloat32s[dtype.Float16]([]float32{1, 0.5, 65504}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	halves, err := b.Download()
	fmt.Println(b.Size(), dtype.Float32s(halves), err)
	// Output: 6 [1 0.5 65504] <nil>
}
