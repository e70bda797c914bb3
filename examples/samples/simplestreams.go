package main

import (
	"fmt"
	"io"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// simpleStreams doubles values of the host's memory on the device, all of them on
// one stream, and then in parts on several: there the copies of one part run
// beside the kernel and the copies of another.
func simpleStreams(x *safe.Context, m *safe.Module, w io.Writer) error {
	const n = 1 << 22
	add, err := m.Kernel("add")
	if err != nil {
		return err
	}
	host, err := safe.NewPinned[float32](x, n)
	if err != nil {
		return err
	}
	defer host.Close()
	device, err := safe.NewBuffer[float32](x, n)
	if err != nil {
		return err
	}
	defer device.Close()

	if _, err := doubleOn(1, x, add, host, device); err != nil { // the first launch also loads the kernel
		return err
	}
	for _, streams := range []int{1, 2, 4} {
		took, err := doubleOn(streams, x, add, host, device)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "simpleStreams: %d values doubled, streams used: %d, took %v\n", n, streams, took)
	}
	return nil
}

// doubleOn doubles host on so many streams, checks it, and says how long it took.
func doubleOn(n int, x *safe.Context, add *safe.Kernel, host *safe.Pinned[float32], device *safe.Buffer[float32]) (time.Duration, error) {
	streams, err := newStreams(x, n)
	defer closeAll(streams)
	if err != nil {
		return 0, err
	}
	for i := range host.Data() {
		host.Data()[i] = float32(i)
	}

	start := time.Now()
	part := host.Len() / n
	for i, s := range streams {
		there, err := host.Slice(i*part, (i+1)*part)
		if err != nil {
			return 0, err
		}
		here, err := device.Slice(i*part, (i+1)*part)
		if err != nil {
			return 0, err
		}
		if err := double(s, add, there, here); err != nil {
			return 0, err
		}
	}
	for _, s := range streams {
		if err := s.Synchronize(); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)

	for i, got := range host.Data() {
		if want := 2 * float32(i); got != want {
			return 0, fmt.Errorf("value %d is %v, not %v", i, got, want)
		}
	}
	return took, nil
}

// double enqueues two copies and a kernel, and waits for none of them.
func double(s *safe.Stream, add *safe.Kernel, host *safe.Pinned[float32], device *safe.Buffer[float32]) error {
	if err := device.CopyFromHostAsync(s, host); err != nil {
		return err
	}
	n := device.Len()
	if err := add.Launch(s, safe.Threads(n), device.Arg(), device.Arg(), device.Arg(), safe.Val(uint32(n))); err != nil {
		return err
	}
	return device.CopyToHostAsync(s, host)
}
