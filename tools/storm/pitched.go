//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

var extent = safe.Extent{Width: 16, Height: size / 16}

func init() {
	add("pitched", []kind{
		{name: "pitched.new", weight: 5, run: func(t *task) error {
			b, err := safe.NewPitched[float32](t.device().x, extent)
			return put(t, &t.pitched, b, err)
		}},
		{name: "pitched.of", weight: 3, run: func(t *task) error {
			b, err := t.buffers.get(t.rng).Pitched(extent, 0)
			return put(t, &t.pitched, b, err)
		}, allow: placed},
		{name: "pitched.part", weight: 3, run: func(t *task) error {
			b, err := t.pitched.get(t.rng).Sub(safe.Position{X: t.n(4)}, safe.Extent{Width: 12, Height: 8})
			return put(t, &t.pitched, b, err)
		}, allow: placed},
		{name: "pitched.copy", weight: 6, run: func(t *task) error {
			return t.pitched.get(t.rng).CopyFromAsync(t.stream(), t.pitched.get(t.rng))
		}, allow: placed},
		{name: "pitched.copynow", weight: 3, run: func(t *task) error { return t.pitched.get(t.rng).CopyFrom(t.pitched.get(t.rng)) }, allow: placed},
		{name: "pitched.host", weight: 4, run: pitchedAndHost, allow: placed},
		{name: "pitched.fill", weight: 5, run: func(t *task) error {
			if t.yes(40) {
				return t.pitched.get(t.rng).Fill(0)
			}
			return t.pitched.get(t.rng).FillAsync(t.stream(), 1)
		}, allow: placed},
		{name: "pitched.close", weight: 2, run: func(t *task) error { return t.pitched.get(t.rng).Close() }},
		{name: "pitched.array", weight: 4, run: func(t *task) error {
			a, err := safe.NewArray[float32](t.device().x, extent, safe.ArrayOptions{Surface: true})
			return put(t, &t.arrays, a, err)
		}},
		{name: "pitched.ofarray", weight: 3, run: func(t *task) error {
			a := t.arrays.get(t.rng)
			if a == nil {
				return nil
			}
			return put(t, &t.pitched, a.Pitched(), nil)
		}, allow: placed},
		{name: "pitched.texture", weight: 5, run: newTexture, allow: placed},
		{name: "pitched.lookup", weight: 5, run: lookup, allow: placed},
		{name: "pitched.surface", weight: 3, run: func(t *task) error {
			s, err := safe.NewSurface(t.arrays.get(t.rng))
			return put(t, &t.surfaces, s, err)
		}, allow: placed},
		{name: "pitched.draw", weight: 3, run: draw, allow: placed},
		{name: "pitched.range", weight: 4, run: newRange, allow: placed},
		{name: "pitched.map", weight: 5, run: mapRange, allow: placed},
		{name: "pitched.mapped", weight: 4, run: func(t *task) error {
			b, err := safe.NewMappedBuffer[float32](t.ranges.get(t.rng), 0, size)
			return put(t, &t.buffers, b, err)
		}, allow: placed},
	})
}

func pitchedAndHost(t *task) error {
	b, data := t.pitched.get(t.rng), make([]float32, size)
	switch t.n(4) {
	case 0:
		return b.CopyFromHost(data)
	case 1:
		return b.CopyToHost(data)
	case 2:
		return b.CopyFromHostAsync(t.stream(), t.hosts.get(t.rng))
	}
	return b.CopyToHostAsync(t.stream(), t.hosts.get(t.rng))
}

func newTexture(t *task) error {
	var u *safe.Texture
	var err error
	switch t.n(3) {
	case 0:
		u, err = safe.NewTexture(t.arrays.get(t.rng), safe.TextureOptions{})
	case 1:
		u, err = safe.NewLinearTexture(t.buffers.get(t.rng), safe.TextureOptions{})
	default:
		u, err = safe.NewPitchedTexture(t.pitched.get(t.rng), safe.TextureOptions{})
	}
	return put(t, &t.textures, u, err)
}

func lookup(t *task) error {
	s, out := t.stream(), t.buffers.get(t.rng)
	return t.deviceOf(s).lookup.Launch(s, perValue(size), out.Arg(), t.textures.get(t.rng).Arg(), safe.Val(uint32(out.Len())))
}

func draw(t *task) error {
	s := t.stream()
	return t.deviceOf(s).draw.Launch(s, perValue(size), t.surfaces.get(t.rng).Arg(), safe.Val(uint32(extent.Width)), safe.Val(uint32(extent.Height)))
}

func newRange(t *task) error {
	x := t.device().x
	granule, _, err := x.Granularity(safe.PhysicalMemoryOptions{})
	if err != nil {
		return err
	}
	if t.yes(50) {
		p, err := safe.NewPhysicalMemory(x, granule, safe.PhysicalMemoryOptions{})
		return put(t, &t.physical, p, err)
	}
	r, err := safe.ReserveAddress(x, 2*granule, safe.ReserveOptions{})
	return put(t, &t.ranges, r, err)
}

func mapRange(t *task) error {
	r, p := t.ranges.get(t.rng), t.physical.get(t.rng)
	granule := r.Size() / 2
	if granule == 0 {
		return nil
	}
	offset := granule * uint64(t.n(2))
	switch t.n(4) {
	case 0:
		return r.Unmap(offset, granule)
	case 1:
		_, err := r.Access(offset, t.device().x.Device())
		return err
	}
	if err := r.Map(offset, p); err != nil {
		return err
	}
	err := r.SetAccess(offset, granule, driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
	if errors.Is(err, safe.ErrRange) {
		return nil // others have unmapped it
	}
	return err
}
