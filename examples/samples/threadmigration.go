package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/cudabind/cudabind/cuda/safe"
)

// threadMigration uses one context and one kernel in many goroutines, which the Go
// scheduler moves between threads. Nothing has to be locked or made current.
func threadMigration(x *safe.Context, m *safe.Module, w io.Writer) error {
	const goroutines = 500
	add, err := m.Kernel("add")
	if err != nil {
		return err
	}
	results := make(chan error, goroutines)
	for i := range goroutines {
		go func() { results <- addOnce(x, add, float32(i)) }()
	}
	for range goroutines {
		if e := <-results; err == nil {
			err = e
		}
	}
	if err == nil {
		fmt.Fprintf(w, "threadMigration: %d goroutines used one kernel\n", goroutines)
	}
	return err
}

// addOnce adds two vectors on the device, and lets go of the thread between the calls.
func addOnce(x *safe.Context, add *safe.Kernel, value float32) error {
	values := slices.Repeat([]float32{value}, 1000)
	b, err := safe.Upload(x, values)
	if err != nil {
		return err
	}
	defer b.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	defer s.Close()
	runtime.Gosched()
	if err := add.Launch(s, safe.Threads(b.Len()), b.Arg(), b.Arg(), b.Arg(), safe.Val(uint32(b.Len()))); err != nil {
		return err
	}
	runtime.Gosched()
	if err := b.CopyToHost(values); err != nil {
		return err
	}
	if want := 2 * value; !slices.Equal(values, slices.Repeat([]float32{want}, b.Len())) {
		return fmt.Errorf("the sums are not all %v", want)
	}
	return nil
}
