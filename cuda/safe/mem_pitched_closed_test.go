package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
)

// boxUses are calls of boxes, arrays and what is made of them, which must fail in the
// same way on nil pointers, zero values and closed objects.
func boxUses(x *safe.Context, s *safe.Stream, b *safe.Buffer[int32], h *safe.Pinned[int32], box *safe.Pitched[int32], a *safe.Array[int32]) map[string]func() error {
	values := make([]int32, 4)
	e := safe.Extent{Width: 1}
	var none safe.TextureOptions
	return map[string]func() error{
		"NewPitched":                func() error { _, err := safe.NewPitched[int32](x, e); return err },
		"Buffer.Pitched":            func() error { _, err := b.Pitched(e, 0); return err },
		"Pinned.Pitched":            func() error { _, err := h.Pitched(e, 0); return err },
		"Pitched.Sub":               func() error { _, err := box.Sub(safe.Position{}, e); return err },
		"Pitched.CopyFrom":          func() error { return box.CopyFrom(box) },
		"Pitched.CopyFromAsync":     func() error { return box.CopyFromAsync(s, box) },
		"Pitched.CopyFromHost":      func() error { return box.CopyFromHost(values) },
		"Pitched.CopyToHost":        func() error { return box.CopyToHost(values) },
		"Pitched.CopyFromHostAsync": func() error { return box.CopyFromHostAsync(s, h) },
		"Pitched.CopyToHostAsync":   func() error { return box.CopyToHostAsync(s, h) },
		"Pitched.Zero":              box.Zero,
		"Pitched.ZeroAsync":         func() error { return box.ZeroAsync(s) },
		"Pitched.Fill":              func() error { return box.Fill(1) },
		"Pitched.FillAsync":         func() error { return box.FillAsync(s, 1) },
		"Stream.BatchCopies":        func() error { return s.BatchCopies([]safe.CopyOp{safe.NewCopyOp(b, b)}, safe.BatchCopyOptions{}) },
		"Buffer.PrefetchAsync":      func() error { return b.PrefetchAsync(s, safe.HostLocation) },
		"Buffer.Advise":             func() error { return b.Advise(1, safe.HostLocation) },
		"Buffer.RangeAttributes":    func() error { _, err := b.RangeAttributes(); return err },
		"NewArray":                  func() error { _, err := safe.NewArray[int32](x, e, safe.ArrayOptions{}); return err },
		"NewTexture":                func() error { _, err := safe.NewTexture(a, none); return err },
		"NewLinearTexture":          func() error { _, err := safe.NewLinearTexture(b, none); return err },
		"NewPitchedTexture":         func() error { _, err := safe.NewPitchedTexture(box, none); return err },
		"NewSurface":                func() error { _, err := safe.NewSurface(a); return err },
	}
}

type closable interface {
	Close() error
}

func TestBoxNil(t *testing.T) {
	refusedAll(t, boxUses(nil, nil, nil, nil, nil, nil))
	var b *safe.Pitched[int32]
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
	assert.Nil(t, a.Pitched())
	assert.Zero(t, u.Raw())
	assert.Zero(t, s.Raw())
}

func TestBoxZeroValues(t *testing.T) {
	b, a, u, s := &safe.Pitched[int32]{}, &safe.Array[int32]{}, &safe.Texture{}, &safe.Surface{}
	refusedAll(t, boxUses(&safe.Context{}, &safe.Stream{}, &safe.Buffer[int32]{}, &safe.Pinned[int32]{}, b, a))
	for _, c := range []closable{b, a, u, s} {
		assert.NoError(t, c.Close())
	}
	assert.Zero(t, b.Raw())
	assert.Nil(t, a.Pitched())
	assert.Zero(t, u.Raw())
	assert.Zero(t, s.Raw())
}
