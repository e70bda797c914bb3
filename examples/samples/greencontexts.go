package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// greenContexts keeps some multiprocessors free for short kernels, which are done
// one by one while a long kernel has more blocks than all others can run at once.
func greenContexts(x *safe.Context, m *safe.Module, w io.Writer) error {
	const n, rounds, each = 10000, 20, 20 * time.Millisecond
	add, err := m.Kernel("add")
	if err != nil {
		return err
	}
	spin, err := m.Kernel("spin")
	if err != nil {
		return err
	}
	all, err := x.Device().SMResource()
	if errors.Is(err, safe.ErrNotSupported) {
		fmt.Fprintln(w, "greenContexts: not here:", err)
		return nil
	} else if err != nil {
		return err
	}
	short, long, err := partition(x, all.Count()/8)
	if err != nil {
		return err
	}
	defer short.Close()
	defer long.Close()
	values, err := safe.NewBuffer[float32](x, n)
	if err != nil {
		return err
	}
	defer values.Close()
	if err := values.Fill(1); err != nil {
		return err
	}
	double := func() error {
		return errors.Join(add.Launch(short, safe.Threads(n), values.Arg(), values.Arg(), values.Arg(), safe.Val(uint32(n))), short.Synchronize())
	}
	if err := double(); err != nil { // it is loaded before the device is busy
		return err
	}

	start := time.Now()
	blocks := safe.LaunchConfig{Grid: safe.Dim{X: uint32(8 * all.Count())}, Block: safe.Dim{X: 1024}}
	if err := spin.Launch(long, blocks, safe.Val(uint64(each))); err != nil {
		return err
	}
	for range rounds - 1 {
		if err := double(); err != nil {
			return err
		}
	}
	shortTook := time.Since(start)
	if err := long.Synchronize(); err != nil {
		return err
	}
	longTook := time.Since(start)
	got := make([]float32, n)
	if err := values.CopyToHost(got); err != nil {
		return err
	}
	for i, v := range got {
		if v != 1<<rounds {
			return fmt.Errorf("value %d is %v, not %v", i, v, 1<<rounds)
		}
	}
	few, err := short.SMResource()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "greenContexts: %d short kernels beside a long one, took %v on %d multiprocessors of %d, and the long one %v\n",
		rounds, shortTook, few.Count(), all.Count(), longTook)
	return nil
}

// partition creates two streams. Kernels of the first run on at least few
// multiprocessors, those of the second on all others.
func partition(x *safe.Context, few int) (first, second *safe.Stream, err error) {
	groups, rest, err := x.Device().Split(safe.SplitOptions{Groups: 1, Min: few})
	if err != nil {
		return nil, nil, err
	}
	if first, err = streamOn(x, groups[0]); err != nil {
		return nil, nil, err
	}
	if second, err = streamOn(x, rest); err != nil {
		return nil, nil, errors.Join(err, first.Close())
	}
	return first, second, nil
}

// streamOn creates a stream whose kernels run on a part of the device.
func streamOn(x *safe.Context, part safe.SMResource) (*safe.Stream, error) {
	g, err := safe.NewGreenContext(x, part)
	if err != nil {
		return nil, err
	}
	defer g.Close() // deferred until the stream is closed
	return g.NewStreamWith(safe.StreamOptions{NonBlocking: true})
}
