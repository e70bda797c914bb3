//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"fmt"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// Time a kernel with two events, by the device's clock.
func ExampleEvent_Since() {
	took, err := timeKernel(5 * time.Millisecond)
	fmt.Println(took > 4*time.Millisecond, err)
	// Output: true <nil>
}

func timeKernel(d time.Duration) (time.Duration, error) {
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
	spin, err := module.Kernel("spin") // runs for the given number of nanoseconds
	if err != nil {
		return 0, err
	}
	s, err := safe.NewStream(x)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	var events [2]*safe.Event
	for i := range events {
		if events[i], err = safe.NewEvent(x); err != nil {
			return 0, err
		}
		defer events[i].Close()
	}

	if err := s.Record(events[0]); err != nil {
		return 0, err
	}
	one := safe.Dim{X: 1}
	if err := spin.Launch(s, safe.LaunchConfig{Grid: one, Block: one}, safe.Val(uint64(d))); err != nil {
		return 0, err
	}
	if err := s.Record(events[1]); err != nil {
		return 0, err
	}
	if err := events[1].Synchronize(); err != nil {
		return 0, err
	}
	return events[1].Since(events[0])
}
