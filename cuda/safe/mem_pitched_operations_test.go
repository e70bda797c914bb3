//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These are the operations on pitched memory, arrays and textures for the sweeps over
// every operation. They need the simulated driver.

package safe_test

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// pitched returns three views of the world's memory: two of device memory, one of pinned.
func (w *world) pitched() (a, b, h *safe.Pitched[int32]) {
	e := safe.Extent{Width: 4, Height: 3, Depth: 2}
	a, err1 := w.a.Pitched(e, 20)
	b, err2 := w.b.Pitched(e, 0)
	h, err3 := w.h.Pitched(e, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		panic(err) // views need no driver call
	}
	return a, b, h
}

// array makes an array for operations that need one.
func (w *world) array() (*safe.Array[float32], error) {
	a, err := safe.NewArray[float32](w.x, safe.Extent{Width: 4, Height: 4}, safe.ArrayOptions{Surface: true})
	return also(w, a, err)
}

func init() {
	within["NewTexture"] = []string{"NewArray"}
	within["NewSurface"] = []string{"NewArray"}
	within["NewPitchedTexture"] = []string{"NewPitched"}
	within["Pitched.CopyFromHost"] = []string{"NewArray"}
	operations = append(operations, []operation{
		{"NewPitched", func(w *world) error {
			c, err := safe.NewPitched[byte](w.x, safe.Extent{Width: 9, Height: 9})
			_, err = also(w, c, err)
			return err
		}},
		{"Pitched.CopyFrom", func(w *world) error { a, _, h := w.pitched(); return a.CopyFrom(h) }},
		{"Pitched.CopyFrom", func(w *world) error { a, b, _ := w.pitched(); return a.CopyFrom(b) }},
		{"Pitched.CopyFromAsync", func(w *world) error { a, _, h := w.pitched(); return h.CopyFromAsync(w.s, a) }},
		{"Pitched.CopyFromAsync", func(w *world) error { a, b, _ := w.pitched(); return b.CopyFromAsync(w.s, a) }},
		{"Pitched.CopyFromHost", func(w *world) error { a, _, _ := w.pitched(); return a.CopyFromHost(w.values[:24]) }},
		{"Pitched.CopyFromHost", func(w *world) error {
			a, err := w.array()
			if err != nil {
				return err
			}
			return a.Pitched().CopyFromHost(make([]float32, 16))
		}},
		{"Pitched.CopyToHost", func(w *world) error { a, _, _ := w.pitched(); return a.CopyToHost(w.values) }},
		{"Pitched.CopyFromHostAsync", func(w *world) error {
			a, _, _ := w.pitched()
			h, err := w.h.Slice(0, 24)
			return errors.Join(err, a.CopyFromHostAsync(w.t, h))
		}},
		{"Pitched.CopyToHostAsync", func(w *world) error { a, _, _ := w.pitched(); return a.CopyToHostAsync(w.t, w.r) }},
		{"Pitched.Fill", func(w *world) error {
			a, _, _ := w.pitched()
			part, err := a.Sub(safe.Position{Y: 1}, safe.Extent{Width: 2, Height: 2, Depth: 2})
			return errors.Join(err, part.Fill(1))
		}},
		{"Pitched.FillAsync", func(w *world) error { a, _, _ := w.pitched(); return a.FillAsync(w.s, 1) }},
		{"Stream.CopyAll", func(w *world) error {
			return w.s.CopyAll([]safe.CopyOp{safe.NewCopyOp[int32](w.a, w.h), safe.NewCopyOp[int32](w.r, w.async)})
		}},
		{"Buffer.PrefetchAsync", func(w *world) error { return w.managed.PrefetchAsync(w.s, safe.HostLocation) }},
		{"Buffer.Advise", func(w *world) error {
			return w.managed.Advise(driver.CU_MEM_ADVISE_SET_READ_MOSTLY, safe.Location{})
		}},
		{"NewArray", func(w *world) error { _, err := w.array(); return err }},
		{"NewTexture", func(w *world) error {
			a, err := w.array()
			if err != nil {
				return err
			}
			c, err := safe.NewTexture(a, safe.TextureOptions{})
			_, err = also(w, c, err)
			return err
		}},
		{"NewLinearTexture", func(w *world) error {
			f, err := safe.Cast[float32](w.a)
			if err != nil {
				return err
			}
			c, err := safe.NewLinearTexture(f, safe.TextureOptions{})
			_, err = also(w, c, err)
			return err
		}},
		{"NewPitchedTexture", func(w *world) error {
			b, err := safe.NewPitched[float32](w.x, safe.Extent{Width: 4, Height: 4})
			if b, err = also(w, b, err); err != nil {
				return err
			}
			c, err := safe.NewPitchedTexture(b, safe.TextureOptions{})
			_, err = also(w, c, err)
			return err
		}},
		{"NewSurface", func(w *world) error {
			a, err := w.array()
			if err != nil {
				return err
			}
			c, err := safe.NewSurface(a)
			_, err = also(w, c, err)
			return err
		}},
	}...)
}
