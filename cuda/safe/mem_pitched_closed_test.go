// These tests use pitched memory, arrays and textures that are nil or zero values. They
// need no driver.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
)

// pitchedUses are calls on pitched memory, arrays, textures and surfaces. They must fail
// alike on nil pointers, zero values and closed objects.
func pitchedUses(x *safe.Context, s *safe.Stream, b *safe.Buffer[int32], h *safe.Pinned[int32], view *safe.Pitched[int32], a *safe.Array[int32]) map[string]func() error {
	values := make([]int32, 4)
	e := safe.Extent{Width: 1}
	var none safe.TextureOptions
	return map[string]func() error{
		"NewPitched":                func() error { _, err := safe.NewPitched[int32](x, e); return err },
		"Buffer.Pitched":            func() error { _, err := b.Pitched(e, 0); return err },
		"Pinned.Pitched":            func() error { _, err := h.Pitched(e, 0); return err },
		"Pitched.Sub":               func() error { _, err := view.Sub(safe.Position{}, e); return err },
		"Pitched.CopyFrom":          func() error { return view.CopyFrom(view) },
		"Pitched.CopyFromAsync":     func() error { return view.CopyFromAsync(s, view) },
		"Pitched.CopyFromHost":      func() error { return view.CopyFromHost(values) },
		"Pitched.CopyToHost":        func() error { return view.CopyToHost(values) },
		"Pitched.CopyFromHostAsync": func() error { return view.CopyFromHostAsync(s, h) },
		"Pitched.CopyToHostAsync":   func() error { return view.CopyToHostAsync(s, h) },
		"Pitched.Fill":              func() error { return view.Fill(1) },
		"Pitched.FillAsync":         func() error { return view.FillAsync(s, 1) },
		"Stream.CopyAll":            func() error { return s.CopyAll([]safe.CopyOp{safe.NewCopyOp(b, b)}) },
		"Buffer.PrefetchAsync":      func() error { return b.PrefetchAsync(s, safe.HostLocation) },
		"Buffer.Advise":             func() error { return b.Advise(1, safe.HostLocation) },
		"NewArray":                  func() error { _, err := safe.NewArray[int32](x, e, safe.ArrayOptions{}); return err },
		"NewTexture":                func() error { _, err := safe.NewTexture(a, none); return err },
		"NewLinearTexture":          func() error { _, err := safe.NewLinearTexture(b, none); return err },
		"NewPitchedTexture":         func() error { _, err := safe.NewPitchedTexture(view, none); return err },
		"NewSurface":                func() error { _, err := safe.NewSurface(a); return err },
	}
}

type closable interface {
	Close() error
}

func TestPitchedNil(t *testing.T) {
	refusedAll(t, pitchedUses(nil, nil, nil, nil, nil, nil))
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

func TestPitchedZeroValues(t *testing.T) {
	b, a, u, s := &safe.Pitched[int32]{}, &safe.Array[int32]{}, &safe.Texture{}, &safe.Surface{}
	refusedAll(t, pitchedUses(&safe.Context{}, &safe.Stream{}, &safe.Buffer[int32]{}, &safe.Pinned[int32]{}, b, a))
	for _, c := range []closable{b, a, u, s} {
		assert.NoError(t, c.Close())
	}
	assert.Zero(t, b.Raw())
	assert.Nil(t, a.Pitched())
	assert.Zero(t, u.Raw())
	assert.Zero(t, s.Raw())
}
