package main

import (
	"fmt"
	"io"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// simpleOccupancy adds vectors by blocks of one warp, and by blocks of the size
// with which the multiprocessors are busiest.
func simpleOccupancy(x *safe.Context, m *safe.Module, w io.Writer) error {
	add, err := m.Kernel("add")
	if err != nil {
		return err
	}
	p, err := x.Device().Properties()
	if err != nil {
		return err
	}
	atLeast, suggested, err := add.MaxPotentialBlockSize(safe.BlockSizeOptions{})
	if err != nil {
		return err
	}

	for _, c := range []struct {
		name    string
		threads int
	}{{"one warp", p.WarpSize}, {"the suggested size", suggested}} {
		busy, err := add.MaxBlocksPerMultiprocessor(c.threads, 0)
		if err != nil {
			return err
		}
		took, err := addBy(x, add, c.threads)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "simpleOccupancy: blocks of %s are right, took %v with %d threads each, %d%% of a multiprocessor's\n",
			c.name, took, c.threads, 100*busy*c.threads/p.MaxThreadsPerMultiprocessor)
	}
	if atLeast < p.Multiprocessors {
		return fmt.Errorf("%d blocks do not keep %d multiprocessors busy", atLeast, p.Multiprocessors)
	}
	return nil
}

// addBy adds vectors by blocks of so many threads, checks the sums, and says how
// long it took on the device.
func addBy(x *safe.Context, add *safe.Kernel, threads int) (time.Duration, error) {
	const n = 1 << 20
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i)
	}
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	events, err := newEvents(x, 2, safe.EventOptions{})
	defer closeAll(events)
	if err != nil {
		return 0, err
	}
	in, err := safe.NewBuffer[float32](x, n)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := safe.NewBuffer[float32](x, n)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	if err := in.CopyFromHost(values); err != nil {
		return 0, err
	}

	cfg := safe.LaunchConfig{Grid: safe.Blocks(n, threads), Block: safe.Dim{X: uint32(threads)}}
	for range 2 { // the first launch may also load the kernel
		if err := s.Record(events[0]); err != nil {
			return 0, err
		}
		if err := add.Launch(s, cfg, in.Arg(), in.Arg(), out.Arg(), safe.Val(uint32(n))); err != nil {
			return 0, err
		}
		if err := s.Record(events[1]); err != nil {
			return 0, err
		}
	}
	if err := out.CopyToHost(values); err != nil {
		return 0, err
	}
	for i, got := range values {
		if want := 2 * float32(i); got != want {
			return 0, fmt.Errorf("sum %d is %v, not %v", i, got, want)
		}
	}
	return events[1].Since(events[0])
}
