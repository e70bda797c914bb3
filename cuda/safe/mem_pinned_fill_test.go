//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Pinned memory as the target of fills, copies and nodes. The tests run on the simulated
// driver and on a GPU.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	operations = append(operations,
		operation{"Pinned.Fill", func(w *world) error { return w.r.Fill(1) }},
		operation{"Pinned.FillAsync", func(w *world) error { return w.r.FillAsync(w.s, 1) }},
		operation{"Pinned.CopyFrom", func(w *world) error { return w.h.CopyFrom(w.r) }},
		operation{"Pinned.CopyFromAsync", func(w *world) error { return w.r.CopyFromAsync(w.s, w.h) }},
	)
}

// kinds returns allocated and registered memory of 10 values each.
func kinds(t *testing.T, x *safe.Context) map[string]*safe.Pinned[uint16] {
	r, err := safe.RegisterPinned(x, make([]uint16, 10))
	require.NoError(t, err)
	closing(t, r)
	return map[string]*safe.Pinned[uint16]{"allocated": host[uint16](t, x, 10), "registered": r}
}

func TestPinnedFill(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	for name, h := range kinds(t, x) {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, h.Fill(0))
			part, err := h.Slice(2, 4)
			require.NoError(t, err)
			require.NoError(t, part.Fill(0x1234))
			assert.Equal(t, []uint16{0, 0, 0x1234, 0x1234, 0, 0, 0, 0, 0, 0}, h.Data())
			require.NoError(t, h.FillAsync(s, 7))
			require.NoError(t, part.FillAsync(s, 0))
			require.NoError(t, s.Synchronize())
			assert.Equal(t, []uint16{7, 7, 0, 0, 7, 7, 7, 7, 7, 7}, h.Data())
		})
	}
	for _, n := range []int{0, 3} {
		empty := host[uint16](t, x, n)
		empty, err := empty.Slice(n, n)
		require.NoError(t, err)
		require.NoError(t, empty.Fill(1))
		require.NoError(t, empty.FillAsync(s, 1))
		require.NoError(t, empty.Fill(0))
		require.NoError(t, empty.CopyFrom(empty))
		require.NoError(t, empty.CopyFromAsync(s, empty))
	}
	var none *safe.Pinned[int32]
	assert.ErrorIs(t, none.Fill(1), safe.ErrClosed)
	assert.ErrorIs(t, none.FillAsync(s, 0), safe.ErrClosed)
	assert.ErrorIs(t, host[uint64](t, x, 1).FillAsync(nil, 0), safe.ErrClosed)
}

// TestPinnedFillWaits: a fill waits for the work that uses the memory, and a release for
// the fill.
func TestPinnedFillWaits(t *testing.T) {
	x := open(t, 0)
	s, gate := stream(t, x), newGate(t, x)
	h, err := safe.NewPinned[uint32](x, 10)
	require.NoError(t, err)
	gate.shut(t, s)
	require.NoError(t, h.FillAsync(s, 1))
	over := make(chan error)
	go func() { over <- h.Fill(2) }()
	gate.open()
	require.NoError(t, <-over)
	assert.EqualValues(t, 2, h.Data()[9])
	require.NoError(t, h.FillAsync(s, 0))
	require.NoError(t, h.Close())
	c, err := s.BeginCapture()
	require.NoError(t, err)
	other := host[uint32](t, x, 10)
	require.NoError(t, other.FillAsync(s, 1))
	assert.ErrorIs(t, other.Fill(2), safe.ErrCapturing)
	g, err := c.End()
	require.NoError(t, err)
	closing(t, g)
}

func TestPinnedCopy(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	all := kinds(t, x)
	a, b := all["allocated"], all["registered"]
	copy(a.Data(), []uint16{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	require.NoError(t, b.CopyFrom(a))
	assert.Equal(t, a.Data(), b.Data())
	require.NoError(t, b.Fill(3))
	require.NoError(t, a.CopyFromAsync(s, b))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, a.Data(), b.Data())

	part, err := a.Slice(1, 9)
	require.NoError(t, err)
	assert.ErrorIs(t, part.CopyFrom(b), safe.ErrRange)
	assert.ErrorIs(t, a.CopyFrom(part), safe.ErrOverlap)
	assert.ErrorIs(t, a.CopyFromAsync(s, a), safe.ErrOverlap)
	assert.ErrorIs(t, a.CopyFromAsync(nil, b), safe.ErrClosed)
	assert.ErrorIs(t, a.CopyFrom(nil), safe.ErrClosed)

	own := created(t, x, safe.ContextOptions{})
	there := stream(t, own)
	require.NoError(t, a.FillAsync(there, 4), "pinned memory is portable")
	require.NoError(t, b.CopyFromAsync(there, a))
	require.NoError(t, there.Synchronize())
	assert.EqualValues(t, 4, b.Data()[9])
}

// TestPinnedNodes: nodes fill pinned memory and copy it, added by hand or captured.
func TestPinnedNodes(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	all := kinds(t, x)
	a, b := all["allocated"], all["registered"]
	byHand := newGraph(t, x)
	zero := addNode(t, byHand, safe.FillNode(b, 0))
	fill := addNode(t, byHand, safe.FillNode(a, 9), zero)
	addNode(t, byHand, safe.CopyNode(b, a), fill)
	captured, err := s.Capture(func() error {
		require.NoError(t, b.FillAsync(s, 0))
		require.NoError(t, a.FillAsync(s, 9))
		return b.CopyFromAsync(s, a)
	})
	require.NoError(t, err)
	closing(t, captured)
	for name, g := range map[string]*safe.Graph{"by hand": byHand, "captured": captured} {
		t.Run(name, func(t *testing.T) {
			clear(a.Data())
			clear(b.Data())
			launch(t, executable(t, g), s)
			assert.EqualValues(t, 9, a.Data()[0])
			assert.EqualValues(t, 9, b.Data()[9])
		})
	}
	e := executable(t, byHand)
	require.NoError(t, e.Set(fill, safe.FillNode(a, 8)))
	launch(t, e, s)
	assert.EqualValues(t, 8, b.Data()[0])
	_, err = byHand.Add(safe.FillNode[uint16](nil, 8))
	assert.ErrorIs(t, err, safe.ErrClosed)
}
