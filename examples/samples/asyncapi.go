package main

import (
	"fmt"
	"io"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// asyncAPI has the host work while the device does. Events measure the device's
// time, which the host's clock would see only together with the calls.
func asyncAPI(x *safe.Context, m *safe.Module, w io.Writer) error {
	const n = 1 << 20
	add, err := m.Kernel("add")
	if err != nil {
		return err
	}
	spin, err := m.Kernel("spin")
	if err != nil {
		return err
	}
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	defer s.Close()
	events, err := newEvents(x, 2, safe.EventOptions{})
	defer closeAll(events)
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
	for i := range host.Data() {
		host.Data()[i] = 1
	}

	start := time.Now()
	if err := s.Record(events[0]); err != nil {
		return err
	}
	if err := double(s, add, host, device); err != nil {
		return err
	}
	// A kernel that takes 20 ms, so that there is something to work beside.
	if err := spin.Launch(s, one, safe.Val(uint64(20*time.Millisecond))); err != nil {
		return err
	}
	if err := s.Record(events[1]); err != nil {
		return err
	}
	calls := time.Since(start)
	squares, err := workBeside(s)
	if err != nil {
		return err
	}
	took, err := events[1].Since(events[0])
	if err != nil {
		return err
	}

	for i, got := range host.Data() {
		if got != 2 {
			return fmt.Errorf("value %d is %v, not 2", i, got)
		}
	}
	fmt.Fprintf(w, "asyncAPI: %d values doubled, while the host worked, took %v on the device and %v in the calls, and the host added %d squares\n",
		n, took, calls, squares)
	return nil
}

// workBeside adds up squares until the work on the stream is done, and returns how many.
func workBeside(s *safe.Stream) (squares int, err error) {
	work := s.Completion()
	for total := 0; ; squares++ {
		select {
		case <-work.Done():
			return squares, work.Err()
		default:
			total += squares * squares
		}
	}
}
