//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Bandwidth, on GPUs. On the simulated driver the same code runs briefly, and says
// nothing.

package collective

import (
	"fmt"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sizes are what all-reduce is measured with. All ranks go through them in this order.
func sizes() []size {
	if !onGPU {
		return []size{{8, 2}, {1 << 10, 2}}
	}
	return []size{{8, 2000}, {1 << 20, 1000}, {256 << 20, 50}}
}

type size struct{ bytes, times int }

// busBandwidth is the bandwidth of the links between size GPUs, as NCCL's own tests define
// it, in GB/s.
func busBandwidth(bytes, size int, each time.Duration) float64 {
	return float64(bytes) / each.Seconds() * 2 * float64(size-1) / float64(size) / 1e9
}

func TestBandwidth(t *testing.T) {
	w := newWorld(t)
	for _, size := range sizes() {
		bytes, times := size.bytes, size.times
		b := filled(t, w, bytes/4, func(int, int) float32 { return 1 })
		once := func() {
			require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Average) }))
		}
		for range 5 {
			once()
		}
		w.wait(t)
		from := time.Now()
		for range times {
			once()
		}
		w.wait(t)
		each := time.Since(from) / time.Duration(times)
		t.Logf("all-reduce of %d bytes, %d GPUs of one process: %v, bus bandwidth %.1f GB/s", bytes, len(w.comms), each, busBandwidth(bytes, len(w.comms), each))
		assert.EqualValues(t, 1, contents(t, b[0])[bytes/4-1])
	}
}

// measured is TestBandwidth for a rank in a process of its own.
func measured(c *Comm, s *safe.Stream, x *safe.Context) error {
	for _, size := range sizes() {
		bytes, times := size.bytes, size.times
		b, err := safe.NewBuffer[float32](x, bytes/4)
		if err != nil {
			return err
		}
		defer b.Close()
		var from time.Time
		for i := range 5 + times {
			if i == 5 {
				if err := s.Synchronize(); err != nil {
					return err
				}
				from = time.Now()
			}
			if err := AllReduce(c, s, b, b, Average); err != nil {
				return err
			}
		}
		if err := s.Synchronize(); err != nil {
			return err
		}
		each := time.Since(from) / time.Duration(times)
		say("measured", fmt.Sprintf("%d bytes: %v, bus bandwidth %.1f GB/s", bytes, each, busBandwidth(bytes, c.Size(), each)))
	}
	return nil
}

// TestBandwidthOfProcesses needs two GPUs: the double knows one process.
func TestBandwidthOfProcesses(t *testing.T) {
	if !onGPU {
		t.Skip("needs two GPUs")
	}
	all := start(t, "measure", "measure")
	for range sizes() {
		t.Log(all[0].says(t, "measured"))
		all[1].says(t, "measured")
	}
	for _, p := range all {
		p.says(t, "done")
	}
}
