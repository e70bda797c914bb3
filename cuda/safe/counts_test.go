//go:build cgo && linux && amd64 && !race

package safe_test

// What calls cost that does not depend on the machine. Runs on the simulated driver.

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/require"
)

// TestCounts compares the crossings into C, the allocations and the calls of the driver that hot calls take with
// testdata/counts.txt. Where a change is meant, -update writes the file.
func TestCounts(t *testing.T) {
	needsSimulated(t)
	needsFiles(t)
	x := open(t, 0)
	s, other, e := stream(t, x), stream(t, x), event(t, x)
	b, c, h, h2 := buffer[float32](t, x, 100), buffer[float32](t, x, 100), host[float32](t, x, 100), host[float32](t, x, 100)
	values, fill := make([]float32, 100), kernel(t, x, "fill")
	launch := func() error {
		return fill.Launch(s, perValue(100), safe.Val(uint32(100)), safe.Val(float32(1)), b.Arg())
	}
	g, err := s.Capture(launch)
	require.NoError(t, err)
	closing(t, g)
	exec, batch := executable(t, g), newBatch(t, x)
	for range 10 {
		require.NoError(t, batch.Launch(fill, perValue(100), safe.Val(uint32(100)), safe.Val(float32(1)), b.Arg()))
	}
	many := newGraph(t, x)
	for range 100 {
		addNode(t, many, safe.KernelNode(fill, perValue(100), safe.Val(uint32(100)), safe.Val(float32(1)), b.Arg()))
	}
	idle := func() error { return errors.Join(s.Synchronize(), other.Synchronize()) }
	drivertest.Counts(t, idle, []drivertest.Counted{
		{Name: "Kernel.Launch", F: launch},
		{Name: "Stream.Synchronize of an idle stream", F: s.Synchronize}, // with work it depends on times
		{Name: "Stream.Record", F: func() error { return s.Record(e) }},
		{Name: "Stream.WaitEvent", F: func() error { return other.WaitEvent(e) }},
		{Name: "Stream.Query", F: func() error { _, err := s.Query(); return err }},
		{Name: "Event.Query", F: func() error { _, err := e.Query(); return err }},
		{Name: "Buffer.CopyFromAsync", F: func() error { return b.CopyFromAsync(s, c) }},
		{Name: "Buffer.CopyFromHostAsync", F: func() error { return b.CopyFromHostAsync(s, h) }},
		{Name: "Buffer.CopyFromHost", F: func() error { return b.CopyFromHost(values) }},
		{Name: "Buffer.CopyToHost", F: func() error { return b.CopyToHost(values) }},
		{Name: "Pinned.CopyFromAsync", F: func() error { return h.CopyFromAsync(s, h2) }},
		{Name: "Buffer.FillAsync", F: func() error { return b.FillAsync(s, 1) }},
		{Name: "Stream.EnqueueRaw", F: func() error { return s.EnqueueRaw(func(driver.CUstream) error { return nil }, b.Arg()) }},
		{Name: "EnqueueCalls", F: func() error { return clearByCalls(b, s) }},
		{Name: "GraphExec.Launch", F: func() error { return exec.Launch(s) }},
		{Name: "Batch.Submit of 10 launches", F: func() error { return batch.Submit(s) }},
		{Name: "Stream.Capture of a launch, then Graph.Close", F: func() error {
			g, err := s.Capture(launch)
			if err != nil {
				return err
			}
			return g.Close()
		}},
		{Name: "Graph.Instantiate of 100 kernels, then GraphExec.Close", F: func() error {
			x, err := many.Instantiate()
			if err != nil {
				return err
			}
			return x.Close()
		}},
		{Name: "NewBufferAsync, then Buffer.Close", F: func() error {
			b, err := safe.NewBufferAsync[float32](s, 100)
			if err != nil {
				return err
			}
			return b.Close()
		}},
	})
}
