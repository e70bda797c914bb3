//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

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
			b, err := safe.NewBufferWith[uint32](t.device().x, size, safe.BufferOptions{Plain: true})
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
		{name: "memory.arena", weight: 3, run: func(t *task) error {
			s := t.stream()
			a, err := safe.NewArena(s, 8*size)
			return put(t, &t.arenas, &streamArena{a, s}, err)
		}},
		{name: "memory.usearena", weight: 6, run: func(t *task) error { return t.arenas.get(t.rng).use(t) }, allow: placed},
		{name: "memory.trim", weight: 2, run: func(t *task) error { return t.device().x.TrimMemory() }},
		{name: "memory.host", weight: 4, run: newHost, allow: []error{driver.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED}},
		{name: "memory.raw", weight: 2, run: foreignBuffer},
		{name: "memory.onhost", weight: 4, run: useHost, allow: placed},
		{name: "memory.batch", weight: 2, run: useBatch, allow: placed},
		{name: "memory.slice", weight: 4, run: func(t *task) error {
			i := t.n(size)
			b, err := t.buffers.get(t.rng).Slice(i, i+t.n(size-i)) // which may be empty
			return put(t, &t.buffers, b, err)
		}, allow: placed},
		{name: "memory.close", weight: 4, run: func(t *task) error { return t.buffers.get(t.rng).Close() }},
		{name: "memory.fill", weight: 4, run: func(t *task) error { return t.buffers.get(t.rng).Fill(2) }},
		{name: "memory.fillwide", weight: 3, run: func(t *task) error { // by a kernel
			b, err := safe.Cast[complex64](t.buffers.get(t.rng))
			if err != nil {
				return err
			}
			if t.yes(50) {
				return b.Fill(2)
			}
			return b.FillAsync(t.stream(), 2)
		}, allow: append([]error{safe.ErrInvalidArgument}, placed...)},
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
			p, err := safe.NewPool(t.device().x)
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

// putOrdered shares stream-ordered memory, which other streams may use once it is allocated.
func (t *task) putOrdered(s *safe.Stream, b *safe.Buffer[float32], err error) error {
	if err != nil {
		return err
	}
	if err := b.FreeAsync(s); !errors.Is(err, safe.ErrInvalidArgument) { // a capture has allocated it
		if errors.Is(err, safe.ErrNotAllocated) {
			err = nil
		}
		return errors.Join(err, b.Close())
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
	b, err := safe.NewBufferWith[float32](x, size, safe.BufferOptions{Plain: t.yes(15)})
	return put(t, &t.buffers, b, err)
}

// A streamArena is an arena and its stream.
type streamArena struct {
	*safe.Arena
	s *safe.Stream
}

func (a *streamArena) Close() error {
	if a == nil {
		return nil
	}
	return a.Arena.Close()
}

// use allocates from the arena, and works with the memory on its stream.
func (a *streamArena) use(t *task) error {
	if a == nil {
		return nil
	}
	b, err := safe.NewBufferIn[float32](a.Arena, t.n(2*size))
	if err == nil {
		err = a.s.Synchronize() // a graph with the memory may run on another stream
	}
	if err == nil {
		err = errors.Join(b.FillAsync(a.s, 2), t.buffers.get(t.rng).CopyFromAsync(a.s, b))
	}
	if t.yes(30) {
		err = errors.Join(err, a.Reset())
	}
	return err
}

// newHost allocates pinned memory, or registers Go memory, which may share a page with more of
// that kind.
func newHost(t *task) error {
	x := t.device().x
	if t.yes(60) {
		h, err := safe.NewPinned[float32](x, size)
		return put(t, &t.hosts, h, err)
	}
	h, err := safe.RegisterPinned(x, make([]float32, 4096)[:size])
	return put(t, &t.hosts, h, err)
}

// foreignBuffer takes over memory of a raw call.
func foreignBuffer(t *task) error {
	x := t.device().x
	var raw driver.CUdeviceptr
	err := safe.WithCaptureMode(safe.CaptureRelaxed, func() error { // or it would end captures
		return x.WithCurrent(func() error { return driver.CuMemAlloc(&raw, 4*size) })
	})
	if err != nil {
		return fromRaw("cuMemAlloc", err)
	}
	b, err := safe.BufferFromRaw[float32](x, raw, size)
	return put(t, &t.buffers, b, err)
}

// useHost has the device write to pinned memory.
func useHost(t *task) error {
	h, s := t.hosts.get(t.rng), t.stream()
	switch t.n(6) {
	case 0:
		return h.Fill(3)
	case 1:
		return h.FillAsync(s, 3)
	case 2:
		return h.Fill(0)
	case 3:
		return h.FillAsync(s, 0)
	case 4:
		return h.CopyFrom(t.hosts.get(t.rng))
	}
	return h.CopyFromAsync(s, t.hosts.get(t.rng))
}

func useBatch(t *task) error {
	to := safe.DeviceLocation(t.device().x.Device())
	ops := []safe.PrefetchOp{safe.NewPrefetchOp(t.buffers.get(t.rng), to), safe.NewPrefetchOp(t.buffers.get(t.rng), safe.HostLocation)}
	if t.n(2) == 0 {
		return t.stream().PrefetchAll(ops)
	}
	return t.stream().DiscardAll(ops)
}

func askMemory(t *task) error {
	var err error
	switch t.n(2) {
	case 0:
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
		_, err := p.Attribute(driver.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		return err
	case 2:
		return p.SetAttribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, uint64(t.n(1<<20)))
	case 3:
		d, err := safe.DefaultPool(t.device().x)
		return errors.Join(err, d.Trim(0), d.Close())
	}
	return p.Close()
}
