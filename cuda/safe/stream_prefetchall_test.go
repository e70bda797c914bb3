//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Batches of prefetches and discards. The tests run on the simulated driver and on a GPU
// with concurrent managed access.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	ops := func(w *world) []safe.PrefetchOp {
		return []safe.PrefetchOp{safe.NewPrefetchOp(w.managed, safe.HostLocation)}
	}
	operations = append(operations,
		operation{"Stream.PrefetchAll", func(w *world) error { return w.s.PrefetchAll(ops(w)) }},
		operation{"Stream.DiscardAll", func(w *world) error { return w.s.DiscardAll(ops(w)) }},
	)
}

func TestPrefetchAll(t *testing.T) {
	x := open(t, 0)
	concurrent(t, x)
	s, fill := stream(t, x), kernel(t, x, "fill")
	device := safe.DeviceLocation(x.Device())
	var all []*safe.Buffer[float32]
	for range 4 {
		b := managed[float32](t, x, pages/4)
		copy(b.Data(), count(pages/4))
		all = append(all, b)
	}
	require.NoError(t, s.PrefetchAll(nil))
	none, err := all[0].Slice(5, 5)
	require.NoError(t, err)
	require.NoError(t, s.PrefetchAll([]safe.PrefetchOp{safe.NewPrefetchOp(none, device)}))
	require.NoError(t, fill.Launch(s, perValue(10), safe.Val(uint32(10)), safe.Val(float32(-1)), all[3].Arg()))
	require.NoError(t, s.PrefetchAll([]safe.PrefetchOp{
		safe.NewPrefetchOp(none, safe.HostLocation), safe.NewPrefetchOp(all[0], device), safe.NewPrefetchOp(all[1], device), safe.NewPrefetchOp(all[2], safe.HostLocation),
		safe.NewPrefetchOp(all[3], device),
	}))
	require.NoError(t, s.Synchronize())
	on := x.Device().Raw()
	for i, want := range []driver.CUdevice{on, on, driver.CU_DEVICE_CPU, on} {
		assert.Equal(t, want, lastPrefetch(t, all[i]), "%d", i)
		assert.EqualValues(t, pages/4-1, all[i].Data()[pages/4-1])
	}
	assert.EqualValues(t, -1, all[3].Data()[9])
}

// TestDiscardAll: discarded memory has the values that are written later, and other memory
// keeps its own.
func TestDiscardAll(t *testing.T) {
	x := open(t, 0)
	concurrent(t, x)
	device := safe.DeviceLocation(x.Device())
	s, b, kept := stream(t, x), managed[float32](t, x, pages/4), managed[float32](t, x, pages/4)
	copy(kept.Data(), count(pages/4))
	ops := []safe.PrefetchOp{safe.NewPrefetchOp(b, device)}
	if driver.Find("cuMemDiscardBatchAsync") != nil {
		assert.ErrorIs(t, s.DiscardAll(ops), safe.ErrNotSupported)
		return
	}
	var got float32
	for range 3 { // on a GPU, CUDA loses one write in thousands: see DiscardAll
		require.NoError(t, b.FillAsync(s, 1))
		require.NoError(t, s.DiscardAll(ops))
		require.NoError(t, s.PrefetchAll(ops))
		require.NoError(t, b.FillAsync(s, 2))
		require.NoError(t, s.Synchronize())
		if got = b.Data()[pages/4-1]; got == 2 || !onGPU {
			break
		}
	}
	assert.EqualValues(t, 2, got)
	assert.EqualValues(t, pages/4-1, kept.Data()[pages/4-1])
	assert.Equal(t, x.Device().Raw(), lastPrefetch(t, b))
	require.NoError(t, s.DiscardAll([]safe.PrefetchOp{safe.NewPrefetchOp(b, safe.Location{})}))
}

func TestPrefetchAllRefuse(t *testing.T) {
	x := open(t, 0)
	concurrent(t, x)
	s, b, plain := stream(t, x), managed[float32](t, x, pages/4), buffer[float32](t, x, 10)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	good := safe.NewPrefetchOp(b, safe.HostLocation)
	for _, c := range []struct {
		name string
		s    *safe.Stream
		op   safe.PrefetchOp
		want error
		says string
	}{
		{"not managed", s, safe.NewPrefetchOp(plain, safe.HostLocation), safe.ErrInvalidArgument, "operation 1"},
		{"no location", s, safe.NewPrefetchOp(b, safe.Location{}), safe.ErrInvalidArgument, "operation 1"},
		{"no buffer", s, safe.NewPrefetchOp[float32](nil, safe.HostLocation), safe.ErrClosed, "operation 1"},
		{"the zero value", s, safe.PrefetchOp{}, safe.ErrClosed, "operation 1"},
		{"the legacy stream", legacy, good, safe.ErrInvalidArgument, "legacy"},
		{"no stream", nil, good, safe.ErrClosed, "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.s.PrefetchAll([]safe.PrefetchOp{good, c.op})
			assert.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.says)
		})
	}
	g, err := s.Capture(func() error {
		for _, f := range []func([]safe.PrefetchOp) error{s.PrefetchAll, s.DiscardAll} {
			assert.ErrorIs(t, f([]safe.PrefetchOp{good}), safe.ErrCapturing)
		}
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
}

// TestPrefetchAllParts: each range moves to its own location, whatever part of the list the driver gets at once, and takes
// as much room as a single prefetch.
func TestPrefetchAllParts(t *testing.T) {
	x := open(t, 0)
	concurrent(t, x)
	const n = 30
	s := stream(t, x)
	places := []safe.Location{safe.HostLocation, safe.DeviceLocation(x.Device()), safe.DeviceLocation(x.Device())}
	raw := []driver.CUdevice{driver.CU_DEVICE_CPU, x.Device().Raw(), x.Device().Raw()}
	all, ops := make([]*safe.Buffer[float32], n), make([]safe.PrefetchOp, n)
	for i := range all {
		all[i] = managed[float32](t, x, pages/4)
		ops[i] = safe.NewPrefetchOp(all[i], places[i%7%3])
	}
	unstick, before := stick(t, x, s), safe.Pending(s)
	require.NoError(t, all[0].PrefetchAsync(s, safe.HostLocation))
	single := safe.Pending(s) - before
	require.NoError(t, s.PrefetchAll(ops))
	assert.Equal(t, before+(n+1)*single, safe.Pending(s))
	unstick()
	require.NoError(t, s.Synchronize())
	for i, b := range all {
		assert.Equal(t, raw[i%7%3], lastPrefetch(t, b), "%d", i)
	}
}
