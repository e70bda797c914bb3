//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"fmt"
	"slices"

	"github.com/cudabind/cudabind/cuda/safe"
)

// Copies from and to pinned memory are asynchronous: the host can do other work meanwhile.
func ExamplePinned() {
	values, err := thereAndBack([]float32{1, 2, 3})
	fmt.Println(values, err)
	// Output: [1 2 3] <nil>
}

func thereAndBack(values []float32) ([]float32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	there, err := safe.NewPinned[float32](x, len(values))
	if err != nil {
		return nil, err
	}
	defer there.Close()
	back, err := safe.NewPinned[float32](x, len(values))
	if err != nil {
		return nil, err
	}
	defer back.Close()
	device, err := safe.NewBuffer[float32](x, len(values))
	if err != nil {
		return nil, err
	}
	defer device.Close()

	copy(there.Data(), values)
	if err := device.CopyFromHostAsync(s, there); err != nil {
		return nil, err
	}
	if err := device.CopyToHostAsync(s, back); err != nil {
		return nil, err
	}
	// Use neither there nor back before the copies have completed.
	if err := s.Synchronize(); err != nil {
		return nil, err
	}
	return slices.Clone(back.Data()), nil // back.Close frees the memory
}
