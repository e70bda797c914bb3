//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// A wait ends with its context.Context. The work continues, and the objects it uses are
// released after it, even if they are closed before.
func ExampleStream_Wait() {
	err := giveUp()
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(err)
	// Output:
	// true
	// cuda: Stream.Wait: context deadline exceeded
}

func giveUp() error {
	x, err := safe.Open(0)
	if err != nil {
		return err
	}
	defer x.Close()
	module, err := safe.LoadFile(x, "testdata/kernels.ptx")
	if err != nil {
		return err
	}
	defer module.Close()
	wait, err := module.Kernel("wait") // runs until the word at its argument is not 0
	if err != nil {
		return err
	}
	flag, err := safe.NewPinned[uint32](x, 1)
	if err != nil {
		return err
	}
	defer flag.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	defer s.Close() // does not wait for pending work
	values, err := safe.NewBufferAsync[float32](s, 1000)
	if err != nil {
		return err
	}
	defer values.Close() // the memory is freed after the pending work

	flag.Data()[0] = 0
	defer atomic.StoreUint32(&flag.Data()[0], 1) // ends the kernel, before the objects are closed
	one := safe.Dim{X: 1}
	if err := wait.Launch(s, safe.LaunchConfig{Grid: one, Block: one}, flag.Arg()); err != nil {
		return err
	}
	if err := values.FillAsync(s, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	return s.Wait(ctx)
}
