//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	_ "embed"
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
)

//go:embed testdata/kernels.ptx
var compiled []byte

// Add two vectors: a complete program.
func Example() {
	sum, err := add([]float32{1, 2, 3}, []float32{10, 20, 30})
	fmt.Println(sum, err)
	// Output: [11 22 33] <nil>
}

func add(a, b []float32) ([]float32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	module, err := safe.Load(x, compiled)
	if err != nil {
		return nil, err
	}
	defer module.Close()
	kernel, err := module.Kernel("add")
	if err != nil {
		return nil, err
	}
	stream, err := safe.NewStream(x)
	if err != nil {
		return nil, err
	}
	defer stream.Close()

	var memory [3]*safe.Buffer[float32] // a, b and the sum
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
	return sum, memory[2].CopyToHost(sum) // waits for the kernel
}
