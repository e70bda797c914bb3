package main

import (
	"fmt"
	"io"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// streamOrderedAllocation allocates memory in the order of a stream, uses it and
// gives it back, again and again, before the device has done any of it.
func streamOrderedAllocation(x *safe.Context, m *safe.Module, w io.Writer) error {
	properties, err := x.Device().Properties()
	if err != nil {
		return err
	}
	if !properties.MemoryPools {
		fmt.Fprintln(w, "streamOrderedAllocation: the device has no memory pools")
		return nil
	}
	add, err := m.Kernel("add")
	if err != nil {
		return err
	}
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	defer s.Close()

	a, b := make([]float32, 10_000), make([]float32, 10_000)
	for i := range a {
		a[i], b[i] = float32(i), float32(2*i)
	}
	sum, err := addOn(s, add, a, b)
	if err != nil {
		return err
	}
	for i, got := range sum {
		if want := float32(3 * i); got != want {
			return fmt.Errorf("sum %d is %v, not %v", i, got, want)
		}
	}
	fmt.Fprintf(w, "streamOrderedAllocation: %d sums are right\n", len(sum))

	const rounds = 100
	start := time.Now()
	total, places, err := again(s, add, rounds)
	if err != nil {
		return err
	}
	if total != rounds {
		return fmt.Errorf("the total of %d rounds is %v", rounds, total)
	}
	fmt.Fprintf(w, "streamOrderedAllocation: %d buffers in the order of one stream, took %v and %d places in memory\n", rounds, time.Since(start), places)
	return nil
}

// addOn adds two vectors on a stream. It allocates and frees in stream order, so
// nothing waits before the scope ends.
func addOn(s *safe.Stream, add *safe.Kernel, a, b []float32) ([]float32, error) {
	sum := make([]float32, len(a))
	return sum, s.Scope(func(c *safe.Scope) error {
		var memory [3]*safe.Buffer[float32] // a, b and their sum
		for i := range memory {
			var err error
			if memory[i], err = safe.NewBufferAsync[float32](s, len(a)); err != nil {
				return err
			}
			defer memory[i].Close()
		}
		if err := safe.CopyFromSlice(c, memory[0], a); err != nil {
			return err
		}
		if err := safe.CopyFromSlice(c, memory[1], b); err != nil {
			return err
		}
		err := add.Launch(s, safe.Threads(len(a)), memory[0].Arg(), memory[1].Arg(), memory[2].Arg(), safe.Val(uint32(len(a))))
		if err != nil {
			return err
		}
		return safe.CopyToSlice(c, sum, memory[2])
	})
}

// again adds 1 to a total so many times, each time by memory of its own, and tells
// in how many places that was.
func again(s *safe.Stream, add *safe.Kernel, rounds int) (total float32, places int, err error) {
	result, err := safe.NewBufferAsync[float32](s, 1)
	if err != nil {
		return 0, 0, err
	}
	defer result.Close()
	if err := result.FillAsync(s, 0); err != nil {
		return 0, 0, err
	}
	seen := map[driver.CUdeviceptr]bool{}
	for range rounds {
		address, err := addOne(s, add, result)
		if err != nil {
			return 0, 0, err
		}
		seen[address] = true
	}
	var out [1]float32
	err = result.CopyToHost(out[:])
	return out[0], len(seen), err
}

// addOne adds 1 to result, and tells where in memory that 1 was.
func addOne(s *safe.Stream, add *safe.Kernel, result *safe.Buffer[float32]) (driver.CUdeviceptr, error) {
	one, err := safe.NewBufferAsync[float32](s, 1)
	if err != nil {
		return 0, err
	}
	defer one.Close()
	if err := one.FillAsync(s, 1); err != nil {
		return 0, err
	}
	return one.Raw(), add.Launch(s, safe.Threads(1), result.Arg(), one.Arg(), result.Arg(), safe.Val(uint32(1)))
}
