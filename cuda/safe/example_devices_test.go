//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cudabind/cudabind/cuda/safe"
)

// Each part is summed on a goroutine of its own. The parts are distributed over all devices.
func ExampleDevices() {
	sums, err := sumParts([][]float32{{1, 2, 3}, {10, 20, 30}})
	fmt.Println(sums, err)
	// Output: [6 60] <nil>
}

func sumParts(parts [][]float32) ([]float32, error) {
	devices, err := safe.Devices()
	if err != nil {
		return nil, err
	}
	sums, errs := make([]float32, len(parts)), make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		device := devices[i%len(devices)]
		all.Go(func() { sums[i], errs[i] = sumOn(device.Ordinal(), part) })
	}
	all.Wait()
	return sums, errors.Join(errs...)
}

func sumOn(device int, values []float32) (float32, error) {
	x, err := safe.Open(device)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	module, err := safe.LoadFile(x, "testdata/kernels.ptx")
	if err != nil {
		return 0, err
	}
	defer module.Close()
	sum, err := module.Kernel("sum")
	if err != nil {
		return 0, err
	}
	s, err := safe.NewStream(x)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	in, err := safe.NewBuffer[float32](x, len(values))
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := safe.NewBuffer[float32](x, 1)
	if err != nil {
		return 0, err
	}
	defer out.Close()

	if err := in.CopyFromHost(values); err != nil {
		return 0, err
	}
	one := safe.Dim{X: 1}
	err = sum.Launch(s, safe.LaunchConfig{Grid: one, Block: one}, out.Arg(), in.Arg(), safe.Val(uint32(len(values))))
	if err != nil {
		return 0, err
	}
	var got [1]float32
	err = out.CopyToHost(got[:])
	return got[0], err
}
