//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"context"
	"fmt"

	"github.com/cudabind/cudabind/cuda/safe"
)

// Fill the halves of a buffer side by side: both wait for the stream's earlier work, and the
// sum waits for both.
func ExampleStream_Fork() {
	x, err := safe.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	defer x.CloseAll()
	total, err := sumOfHalves(x)
	fmt.Println(total, err)
	// Output: [300] <nil>
}

func sumOfHalves(x *safe.Context) ([]float32, error) {
	const n = 200
	module, err := safe.Load(x, compiled)
	if err != nil {
		return nil, err
	}
	sum, err := module.Kernel("sum")
	if err != nil {
		return nil, err
	}
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return nil, err
	}
	values, err := safe.NewBuffer[float32](x, n)
	if err != nil {
		return nil, err
	}
	total, err := safe.NewBuffer[float32](x, 1)
	if err != nil {
		return nil, err
	}
	err = s.Fork(2, func(branches []*safe.Stream) error {
		for i, branch := range branches {
			half, err := values.Slice(i*n/2, (i+1)*n/2)
			if err != nil {
				return err
			}
			if err := half.FillAsync(branch, float32(i+1)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	one := safe.Dim{X: 1}
	if err := sum.Launch(s, safe.LaunchConfig{Grid: one, Block: one}, total.Arg(), values.Arg(), safe.Val(uint32(n))); err != nil {
		return nil, err
	}
	return total.Download()
}

// The second stream reads what the first has written.
func ExampleStream_WaitStream() {
	x, err := safe.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	defer x.CloseAll()
	copied, err := passedOn(x)
	fmt.Println(copied, err)
	// Output: [7 7 7] <nil>
}

func passedOn(x *safe.Context) ([]int32, error) {
	var streams [2]*safe.Stream
	var buffers [2]*safe.Buffer[int32]
	for i := range streams {
		var err error
		if streams[i], err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
			return nil, err
		}
		if buffers[i], err = safe.NewBuffer[int32](x, 3); err != nil {
			return nil, err
		}
	}
	if err := buffers[0].FillAsync(streams[0], 7); err != nil {
		return nil, err
	}
	if err := streams[1].WaitStream(streams[0]); err != nil {
		return nil, err
	}
	if err := buffers[1].CopyFromAsync(streams[1], buffers[0]); err != nil {
		return nil, err
	}
	return buffers[1].Download()
}

// The time that the device takes for a fill of 4 MB.
func ExampleStream_Time() {
	x, err := safe.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	defer x.CloseAll()
	s, err := safe.NewStream(x)
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := safe.NewBuffer[float32](x, 1<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	took, err := s.Time(context.Background(), func() error { return b.FillAsync(s, 1) })
	fmt.Println(took > 0, err)
	// Output: true <nil>
}
