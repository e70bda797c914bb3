//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// placed are the errors allowed for memory of various kinds, places and sizes.
var placed = append([]error{safe.ErrRange, safe.ErrOverlap, driver.CUDA_ERROR_INVALID_VALUE, driver.CUDA_ERROR_INVALID_DEVICE}, contexts...)

func init() {
	add("memory", []kind{
		{name: "memory.new", weight: 8, run: newBuffer},
		{name: "memory.words", weight: 3, run: func(t *task) error {
			b, err := safe.NewBuffer[uint32](t.device().x, size)
			return put(t, &t.words, b, err)
		}},
		{name: "memory.async", weight: 6, run: func(t *task) error {
			s := t.stream()
			b, err := safe.NewBufferAsync[float32](s, size)
			return t.putOrdered(s, b, err)
		}},
		{name: "memory.pooled", weight: 5, run: func(t *task) error {
			s := t.stream()
			b, err := safe.NewBufferFrom[float32](t.pools.get(t.rng), s, size)
			return t.putOrdered(s, b, err)
		}, allow: placed},
		{name: "memory.host", weight: 4, run: newHost, allow: []error{driver.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED}},
		{name: "memory.slice", weight: 4, run: func(t *task) error {
			i := t.n(size - 1)
			b, err := t.buffers.get(t.rng).Slice(i, i+1+t.n(size-i-1))
			return put(t, &t.buffers, b, err)
		}, allow: placed},
		{name: "memory.close", weight: 4, run: func(t *task) error { return t.buffers.get(t.rng).Close() }},
		{name: "memory.fill", weight: 4, run: func(t *task) error { return t.buffers.get(t.rng).Fill(2) }},
		{name: "memory.copy", weight: 4, run: func(t *task) error { return t.buffers.get(t.rng).CopyFrom(t.buffers.get(t.rng)) }, allow: placed},
		{name: "memory.read", weight: 6, run: func(t *task) error {
			b := t.buffers.get(t.rng)
			return b.CopyToHost(make([]float32, b.Len()))
		}, allow: placed},
		{name: "memory.write", weight: 5, run: func(t *task) error {
			b := t.buffers.get(t.rng)
			return b.CopyFromHost(make([]float32, b.Len()))
		}, allow: placed},
		{name: "memory.ask", weight: 3, run: askMemory, allow: placed},
		{name: "memory.managed", weight: 2, run: useManaged, allow: placed},
		{name: "memory.pool", weight: 3, run: func(t *task) error {
			p, err := safe.NewPool(t.device().x, safe.PoolOptions{})
			return put(t, &t.pools, p, err)
		}},
		{name: "memory.usepool", weight: 3, run: usePool, allow: placed},
		{name: "memory.scope", weight: 3, run: func(t *task) error {
			b := t.buffers.get(t.rng)
			return t.stream().Scope(func(c *safe.Scope) error {
				return safe.CopyFromSlice(c, b, make([]float32, b.Len()))
			})
		}, allow: placed},
	})
}

// putOrdered is put for stream-ordered memory: other streams may use it once it is allocated.
func (t *task) putOrdered(s *safe.Stream, b *safe.Buffer[float32], err error) error {
	if err != nil {
		return err
	}
	if err := s.Synchronize(); err != nil {
		return errors.Join(err, b.Close())
	}
	return put(t, &t.buffers, b, nil)
}

func newBuffer(t *task) error {
	x := t.device().x
	if t.yes(15) {
		b, err := safe.NewManagedBuffer[float32](x, size)
		return put(t, &t.buffers, b, err)
	}
	b, err := safe.NewBuffer[float32](x, size)
	return put(t, &t.buffers, b, err)
}

// newHost allocates pinned memory, or registers Go memory, which may share a page with more of
// that kind.
func newHost(t *task) error {
	x := t.device().x
	if t.yes(60) {
		h, err := safe.NewPinned[float32](x, size, safe.PinnedOptions{})
		return put(t, &t.hosts, h, err)
	}
	h, err := safe.RegisterPinned(x, make([]float32, 4096)[:size], safe.PinnedOptions{})
	return put(t, &t.hosts, h, err)
}

func askMemory(t *task) error {
	b := t.buffers.get(t.rng)
	var err error
	switch t.n(4) {
	case 0:
		_, err = t.device().x.PointerInfo(b.Raw())
	case 1:
		_, err = b.RangeAttributes()
	case 2:
		_, _, err = t.device().x.MemoryInfo()
	default:
		_, err = t.hosts.get(t.rng).Slice(0, size/2)
	}
	return err
}

func useManaged(t *task) error {
	b := t.buffers.get(t.rng)
	switch t.n(3) {
	case 0:
		return b.AttachAsync(t.stream(), driver.CU_MEM_ATTACH_GLOBAL)
	case 1:
		return b.PrefetchAsync(t.stream(), safe.DeviceLocation(t.device().x.Device()))
	}
	return b.Advise(driver.CU_MEM_ADVISE_SET_READ_MOSTLY, safe.DeviceLocation(t.device().x.Device()))
}

func usePool(t *task) error {
	p := t.pools.get(t.rng)
	switch t.n(5) {
	case 0:
		return p.Trim(0)
	case 1:
		_, err := p.Usage()
		return err
	case 2:
		return p.SetReleaseThreshold(uint64(t.n(1 << 20)))
	case 3:
		d, err := safe.DefaultPool(t.device().x)
		return errors.Join(err, d.Trim(0), d.Close())
	}
	return p.Close()
}
