package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/cudabind/cudabind/cuda/safe"
)

// An item is doubled by the device, and then looked at by the host.
type item struct {
	number int
	stream *safe.Stream
	host   *safe.Pinned[float32]
	device *safe.Buffer[float32]
	err    error // of its work on the device
}

// simpleCallback gives each item a pipeline: copies and a kernel on a stream, and
// then a goroutine, which a callback hands the item to.
func simpleCallback(x *safe.Context, m *safe.Module, w io.Writer) error {
	const items, n = 8, 10_000
	add, err := m.Kernel("add")
	if err != nil {
		return err
	}
	done := make(chan *item, items) // has room for all, so that no callback waits
	for i := range items {
		it, err := newItem(x, i+1, n)
		if err != nil {
			return err
		}
		defer it.close()
		if err := begin(it, add, done); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	var totals [items]float64
	for range items {
		it := <-done
		all.Go(func() {
			for _, v := range it.host.Data() {
				totals[it.number-1] += float64(v)
			}
		})
		if err == nil {
			err = it.err
		}
	}
	all.Wait()
	if err != nil {
		return err
	}
	for i, got := range totals {
		if want := float64(2 * (i + 1) * n); got != want {
			return fmt.Errorf("item %d has %v, not %v", i+1, got, want)
		}
	}
	fmt.Fprintf(w, "simpleCallback: %d items went through the device and a goroutine each, the last with a total of %v\n", items, totals[items-1])
	return nil
}

// begin puts an item's work on its stream. When that is done, a thread of the
// driver's calls the function, which does no more than to pass the item on:
// callbacks of all streams share that thread, and cannot use CUDA.
func begin(it *item, add *safe.Kernel, done chan<- *item) error {
	if err := double(it.stream, add, it.host, it.device); err != nil {
		return err
	}
	return it.stream.AddCallback(func(err error) {
		it.err = err
		done <- it
	})
}

// newItem makes an item of n values, which are its number.
func newItem(x *safe.Context, number, n int) (*item, error) {
	it := &item{number: number}
	var err error
	if it.stream, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
		return nil, err
	}
	if it.host, err = safe.NewPinned[float32](x, n); err != nil {
		it.close()
		return nil, err
	}
	if it.device, err = safe.NewBuffer[float32](x, n); err != nil {
		it.close()
		return nil, err
	}
	for i := range it.host.Data() {
		it.host.Data()[i] = float32(number)
	}
	return it, nil
}

// close closes what has been made; buffers wait for the work that uses them.
func (it *item) close() {
	it.device.Close()
	it.host.Close()
	it.stream.Close()
}
