package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// concurrentKernels runs a slow kernel on each of several streams, which takes the
// device hardly longer than one of them. A last stream waits for all and adds up
// what they have left.
func concurrentKernels(x *safe.Context, m *safe.Module, w io.Writer) error {
	const n, each = 8, 10 * time.Millisecond
	spin, err := m.Kernel("spin")
	if err != nil {
		return err
	}
	sum, err := m.Kernel("sum")
	if err != nil {
		return err
	}
	streams, err := newStreams(x, n+1)
	defer closeAll(streams)
	if err != nil {
		return err
	}
	events, err := newEvents(x, n, safe.EventOptions{DisableTiming: true})
	defer closeAll(events)
	if err != nil {
		return err
	}
	parts, err := safe.NewBuffer[float32](x, n)
	if err != nil {
		return err
	}
	defer parts.Close()
	total, err := safe.NewPinned[float32](x, 1)
	if err != nil {
		return err
	}
	defer total.Close()

	start := time.Now()
	for i, s := range streams[:n] {
		part, err := parts.Slice(i, i+1)
		if err != nil {
			return err
		}
		if err := spin.Launch(s, one, safe.Val(uint64(each))); err != nil {
			return err
		}
		if err := part.FillAsync(s, float32(i+1)); err != nil {
			return err
		}
		if err := s.Record(events[i]); err != nil {
			return err
		}
	}
	got, err := sumBehind(streams[n], events, sum, parts, total).Wait(context.Background())
	if err != nil {
		return err
	}
	if want := float32(n * (n + 1) / 2); got[0] != want {
		return fmt.Errorf("the sum is %v, not %v", got[0], want)
	}
	fmt.Fprintf(w, "concurrentKernels: %d kernels of %v on a stream each left a sum of %v, took %v\n", n, each, got[0], time.Since(start))
	return nil
}

// sumBehind is the sum of values that are there when the events are.
func sumBehind(s *safe.Stream, events []*safe.Event, sum *safe.Kernel, values *safe.Buffer[float32], out *safe.Pinned[float32]) *safe.Future[[]float32] {
	return safe.Enqueue(s, func(s *safe.Stream) ([]float32, error) {
		for _, e := range events {
			if err := s.WaitEvent(e); err != nil {
				return nil, err
			}
		}
		// The kernel writes to the host's memory: pinned memory is the device's too.
		err := sum.Launch(s, one, out.Arg(), values.Arg(), safe.Val(uint32(values.Len())))
		return out.Data(), err
	})
}
