package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/profile"
)

// lane has the memory of one item on its way through the device.
type lane struct {
	*safe.Stream
	host   *safe.Pinned[float32]
	device *safe.Buffer[float32]
}

// simpleMultiCopy sends 32 items through the device, first on one lane and then on four,
// where the copies of one item to and from the device overlap with the kernel of another.
func simpleMultiCopy(x *safe.Context, m *safe.Module, w io.Writer) error {
	const n, items = 1 << 20, 32
	x, err := safe.Open(x.Device().Ordinal()) // of its own, so that CloseAll closes the sample's objects alone
	if err != nil {
		return err
	}
	defer x.Close()
	defer x.CloseAll()
	add, err := m.Kernel("add")
	if err != nil {
		return err
	}
	lanes, err := newLanes(x, 4, n)
	if err != nil {
		return err
	}
	var alone time.Duration
	for _, lanes := range [][]lane{lanes[:1], lanes[:1], lanes} { // the first pass also loads the kernel
		took, err := throughLanes(lanes, add, items)
		if err != nil {
			return err
		}
		if len(lanes) == 1 {
			alone = took
			continue
		}
		fmt.Fprintf(w, "simpleMultiCopy: %d items are right, took %v on one lane, %v on %d\n", items, alone, took, len(lanes))
	}
	return nil
}

func newLanes(x *safe.Context, lanes, n int) ([]lane, error) {
	all := make([]lane, lanes)
	for i := range all {
		var err error
		if all[i].Stream, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
			return nil, err
		}
		if err := profile.NameStream(all[i].Stream, fmt.Sprint("lane ", i)); err != nil {
			return nil, err
		}
		if all[i].host, err = safe.NewPinned[float32](x, n); err != nil {
			return nil, err
		}
		if all[i].device, err = safe.NewBuffer[float32](x, n); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// throughLanes sends items through the lanes in turn, and returns how long that took.
func throughLanes(lanes []lane, add *safe.Kernel, items int) (time.Duration, error) {
	start := time.Now()
	for i := range items + len(lanes) {
		l := lanes[i%len(lanes)]
		if i >= len(lanes) { // the lane has an item
			if err := l.check(float32(i - len(lanes))); err != nil {
				return 0, err
			}
		}
		if i < items {
			if err := l.send(add, float32(i)); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(start), nil
}

// send enqueues the way of an item: to the device, through the kernel and back.
func (l lane) send(add *safe.Kernel, item float32) error {
	defer profile.Begin(context.Background(), "send").End()
	l.host.Data()[0] = item
	return double(l.Stream, add, l.host, l.device)
}

// check waits for the lane's item and checks it.
func (l lane) check(item float32) error {
	defer profile.Begin(context.Background(), "check").End()
	if err := l.Wait(context.Background()); err != nil {
		return err
	}
	if got, want := l.host.Data()[0], 2*item; got != want {
		return fmt.Errorf("item %v came back as %v, not %v", item, got, want)
	}
	return nil
}
