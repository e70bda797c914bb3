//go:build cgo && linux && amd64 && !race && !cudabind_lockorder

// What operations cost beside NCCL: here the double does nothing.

package collective

import (
	"context"
	"os"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/require"
)

// TestCounts compares what operations take with testdata/counts.txt. Where a change is meant, -update writes the file.
func TestCounts(t *testing.T) {
	needsDouble(t)
	_, err := sim.Attach(os.Getenv("CUDABIND_SIM"))
	require.NoError(t, err)
	calls, idle := costs(t)
	drivertest.Counts(t, idle, calls)
}

// costs are calls of one rank. An operation was captured before: else each asks whether its stream captures.
func costs(t testing.TB) (calls []drivertest.Counted, idle func() error) {
	t.Helper()
	w := newWorld(t)
	tell(t, &told.Nothing, 1)
	ctx, c, s := context.Background(), w.comms[0], w.streams[0]
	b := filled(t, w, 2, func(int, int) float32 { return 1 })[0]
	sum := func() error { return AllReduce(c, s, b, b, Sum) }
	group := func() error {
		return Group(func(g *Calls) error {
			for range 5 {
				if err := AllReduce(c.In(g), s, b, b, Sum); err != nil {
					return err
				}
			}
			return nil
		})
	}
	e, err := s.CaptureExecutable(sum)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return []drivertest.Counted{
		{Name: "AllReduce", F: sum},
		{Name: "Group of 5 AllReduces", F: group},
		{Name: "GraphExec.Launch of a graph with an AllReduce", F: func() error { return e.Launch(s) }},
		{Name: "Comm.Wait for nothing", F: func() error { return c.Wait(ctx, s) }},
	}, func() error { return c.Wait(ctx, s) }
}

// BenchmarkCosts measures them on one goroutine.
func BenchmarkCosts(b *testing.B) {
	if onGPU {
		b.Skip("needs the double of NCCL")
	}
	calls, _ := costs(b)
	for _, c := range calls {
		b.Run(c.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.F(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
