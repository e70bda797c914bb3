//go:build cgo && linux && (amd64 || arm64)

package safe_test

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// boxes are three boxes of the world's memory: two of a device and a pinned one.
func (w *world) boxes() (a, b, h *safe.Box[int32]) {
	e := safe.Extent{Width: 4, Height: 3, Depth: 2}
	a, err1 := w.a.Box(e, 20)
	b, err2 := w.b.Box(e, 0)
	h, err3 := w.h.Box(e, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		panic(err) // they ask no driver
	}
	return a, b, h
}

// array makes an array, for operations that need one.
func (w *world) array() (*safe.Array[float32], error) {
	a, err := safe.NewArray[float32](w.x, safe.Extent{Width: 4, Height: 4}, safe.ArrayOptions{Surface: true})
	return also(w, a, err)
}

func init() {
	within["NewTexture"] = []string{"NewArray"}
	within["NewSurface"] = []string{"NewArray"}
	within["NewPitchedTexture"] = []string{"NewBox"}
	within["Box.CopyFromHost"] = []string{"NewArray"}
	operations = append(operations, []operation{
		{"NewBox", func(w *world) error {
			c, err := safe.NewBox[byte](w.x, safe.Extent{Width: 9, Height: 9})
			_, err = also(w, c, err)
			return err
		}},
		{"Box.CopyFrom", func(w *world) error { a, _, h := w.boxes(); return a.CopyFrom(h) }},
		{"Box.CopyFrom", func(w *world) error { a, b, _ := w.boxes(); return a.CopyFrom(b) }},
		{"Box.CopyFromAsync", func(w *world) error { a, _, h := w.boxes(); return h.CopyFromAsync(w.s, a) }},
		{"Box.CopyFromAsync", func(w *world) error { a, b, _ := w.boxes(); return b.CopyFromAsync(w.s, a) }},
		{"Box.CopyFromHost", func(w *world) error { a, _, _ := w.boxes(); return a.CopyFromHost(w.values[:24]) }},
		{"Box.CopyFromHost", func(w *world) error {
			a, err := w.array()
			if err != nil {
				return err
			}
			return a.Box().CopyFromHost(make([]float32, 16))
		}},
		{"Box.CopyToHost", func(w *world) error { a, _, _ := w.boxes(); return a.CopyToHost(w.values) }},
		{"Box.CopyFromHostAsync", func(w *world) error {
			a, _, _ := w.boxes()
			h, err := w.h.Slice(0, 24)
			return errors.Join(err, a.CopyFromHostAsync(w.t, h))
		}},
		{"Box.CopyToHostAsync", func(w *world) error { a, _, _ := w.boxes(); return a.CopyToHostAsync(w.t, w.r) }},
		{"Box.Zero", func(w *world) error { a, _, _ := w.boxes(); return a.Zero() }},
		{"Box.ZeroAsync", func(w *world) error { a, _, _ := w.boxes(); return a.ZeroAsync(w.s) }},
		{"Box.Fill", func(w *world) error {
			a, _, _ := w.boxes()
			part, err := a.Part(safe.Position{Y: 1}, safe.Extent{Width: 2, Height: 2, Depth: 2})
			return errors.Join(err, part.Fill(1))
		}},
		{"Box.FillAsync", func(w *world) error { a, _, _ := w.boxes(); return a.FillAsync(w.s, 1) }},
		{"Stream.CopyBatch", func(w *world) error {
			return w.s.CopyBatch([]safe.BatchCopy{safe.CopyOp[int32](w.a, w.h), safe.CopyOp[int32](w.r, w.async)}, safe.BatchOptions{})
		}},
		{"Buffer.PrefetchAsync", func(w *world) error { return w.managed.PrefetchAsync(w.s, safe.HostLocation) }},
		{"Buffer.Advise", func(w *world) error {
			return w.managed.Advise(driver.CU_MEM_ADVISE_SET_READ_MOSTLY, safe.Location{})
		}},
		{"Buffer.RangeAttributes", func(w *world) error { _, err := w.managed.RangeAttributes(); return err }},
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
			b, err := safe.NewBox[float32](w.x, safe.Extent{Width: 4, Height: 4})
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
