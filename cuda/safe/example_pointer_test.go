//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
)

// AddKernel is the kernel add(const float *a, const float *b, float *sum, unsigned n).
type AddKernel struct{ *safe.Kernel }

// LoadAdd looks the kernel up, and compares its parameters with those of Launch.
func LoadAdd(m *safe.Module) (AddKernel, error) {
	k, err := m.KernelWith("add", safe.KernelOptions{Parameters: []int{8, 8, 8, 4}})
	return AddKernel{k}, err
}

// Launch takes memory of float32 only, such as a Buffer or Pinned.
func (k AddKernel) Launch(s *safe.Stream, config safe.LaunchConfig, a, b, sum safe.Pointer[float32], n uint32) error {
	return k.Kernel.Launch(s, config, safe.PointerArg(a), safe.PointerArg(b), safe.PointerArg(sum), safe.Val(n))
}

// A type of one's own for a kernel, whose arguments the Go compiler checks.
func ExamplePointer() {
	fmt.Println(addPinned([]float32{1, 2, 3}, []float32{10, 20, 30}))
	// Output: [11 22 33] <nil>
}

func addPinned(a, b []float32) ([]float32, error) {
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
	add, err := LoadAdd(module)
	if err != nil {
		return nil, err
	}
	s, err := safe.NewStream(x)
	if err != nil {
		return nil, err
	}
	onDevice, err := safe.Upload(x, a)
	if err != nil {
		return nil, err
	}
	pinned, err := safe.NewPinned[float32](x, len(b))
	if err != nil {
		return nil, err
	}
	copy(pinned.Data(), b)
	if err := add.Launch(s, safe.Threads(len(a)), onDevice, pinned, onDevice, uint32(len(a))); err != nil {
		return nil, err
	}
	return onDevice.Download() // waits for the kernel
}
