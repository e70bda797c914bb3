package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
)

// boxUses are calls of boxes, arrays and what is made of them, which must fail in the
// same way on nil pointers, zero values and closed objects.
func boxUses(x *safe.Context, s *safe.Stream, b *safe.Buffer[int32], h *safe.HostBuffer[int32], box *safe.Box[int32], a *safe.Array[int32]) map[string]func() error {
	values := make([]int32, 4)
	e := safe.Extent{Width: 1}
	var none safe.TextureOptions
	return map[string]func() error{
		"NewBox":                 func() error { _, err := safe.NewBox[int32](x, e); return err },
		"Buffer.Box":             func() error { _, err := b.Box(e, 0); return err },
		"HostBuffer.Box":         func() error { _, err := h.Box(e, 0); return err },
		"Box.Part":               func() error { _, err := box.Part(safe.Position{}, e); return err },
		"Box.CopyFrom":           func() error { return box.CopyFrom(box) },
		"Box.CopyFromAsync":      func() error { return box.CopyFromAsync(s, box) },
		"Box.CopyFromHost":       func() error { return box.CopyFromHost(values) },
		"Box.CopyToHost":         func() error { return box.CopyToHost(values) },
		"Box.CopyFromHostAsync":  func() error { return box.CopyFromHostAsync(s, h) },
		"Box.CopyToHostAsync":    func() error { return box.CopyToHostAsync(s, h) },
		"Box.Zero":               box.Zero,
		"Box.ZeroAsync":          func() error { return box.ZeroAsync(s) },
		"Box.Fill":               func() error { return box.Fill(1) },
		"Box.FillAsync":          func() error { return box.FillAsync(s, 1) },
		"Stream.CopyBatch":       func() error { return s.CopyBatch([]safe.BatchCopy{safe.CopyOp(b, b)}, safe.BatchOptions{}) },
		"Buffer.PrefetchAsync":   func() error { return b.PrefetchAsync(s, safe.HostLocation) },
		"Buffer.Advise":          func() error { return b.Advise(1, safe.HostLocation) },
		"Buffer.RangeAttributes": func() error { _, err := b.RangeAttributes(); return err },
		"NewArray":               func() error { _, err := safe.NewArray[int32](x, e, safe.ArrayOptions{}); return err },
		"NewTexture":             func() error { _, err := safe.NewTexture(a, none); return err },
		"NewLinearTexture":       func() error { _, err := safe.NewLinearTexture(b, none); return err },
		"NewPitchedTexture":      func() error { _, err := safe.NewPitchedTexture(box, none); return err },
		"NewSurface":             func() error { _, err := safe.NewSurface(a); return err },
	}
}

type closable interface {
	Close() error
}

func TestBoxNil(t *testing.T) {
	refusedAll(t, boxUses(nil, nil, nil, nil, nil, nil))
	var b *safe.Box[int32]
	var a *safe.Array[int32]
	var u *safe.Texture
	var s *safe.Surface
	for _, c := range []closable{b, a, u, s} {
		assert.NoError(t, c.Close())
	}
	assert.Zero(t, b.Extent())
	assert.Zero(t, b.Pitch())
	assert.Zero(t, b.SlicePitch())
	assert.Zero(t, b.Raw())
	assert.Zero(t, a.Extent())
	assert.Zero(t, a.Raw())
	assert.Nil(t, a.Box())
	assert.Zero(t, u.Raw())
	assert.Zero(t, s.Raw())
}

func TestBoxZeroValues(t *testing.T) {
	b, a, u, s := &safe.Box[int32]{}, &safe.Array[int32]{}, &safe.Texture{}, &safe.Surface{}
	refusedAll(t, boxUses(&safe.Context{}, &safe.Stream{}, &safe.Buffer[int32]{}, &safe.HostBuffer[int32]{}, b, a))
	for _, c := range []closable{b, a, u, s} {
		assert.NoError(t, c.Close())
	}
	assert.Zero(t, b.Raw())
	assert.Nil(t, a.Box())
	assert.Zero(t, u.Raw())
	assert.Zero(t, s.Raw())
}
