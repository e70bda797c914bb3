//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
)

// One stream fills a buffer and another sums it. The second stream waits for the first on
// the device; the host waits only for the result.
func ExampleStream_WaitEvent() {
	total, err := fillAndSum(1000, 0.5)
	fmt.Println(total, err)
	// Output: 500 <nil>
}

func fillAndSum(n int, value float32) (float32, error) {
	x, err := safe.Open(0)
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
	var streams [2]*safe.Stream
	for i := range streams {
		if streams[i], err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
			return 0, err
		}
		defer streams[i].Close()
	}
	filled, err := safe.NewEventWith(x, safe.EventOptions{DisableTiming: true})
	if err != nil {
		return 0, err
	}
	defer filled.Close()
	values, err := safe.NewBuffer[float32](x, n)
	if err != nil {
		return 0, err
	}
	defer values.Close()
	total, err := safe.NewBuffer[float32](x, 1)
	if err != nil {
		return 0, err
	}
	defer total.Close()

	if err := values.FillAsync(streams[0], value); err != nil {
		return 0, err
	}
	if err := streams[0].Record(filled); err != nil {
		return 0, err
	}
	if err := streams[1].WaitEvent(filled); err != nil {
		return 0, err
	}
	one := safe.Dim{X: 1}
	err = sum.Launch(streams[1], safe.LaunchConfig{Grid: one, Block: one}, total.Arg(), values.Arg(), safe.Val(uint32(n)))
	if err != nil {
		return 0, err
	}
	var got [1]float32
	err = total.CopyToHost(got[:])
	return got[0], err
}
