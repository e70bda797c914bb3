package main

import (
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
)

// batched is how many launches a Batch has.
const batched = 100

// batches are launches by a Batch, beside as many single ones in C.
func batches(g *gpu) []row {
	once := loop(cloop.Launch3, g.fn("cuLaunchKernel"), uintptr(g.three.Raw()), uintptr(g.stream.Raw()), uintptr(g.memory.Raw()))
	c := func(n int) error { return once(batched * n) }
	record := func(b *safe.Batch) error {
		return times(func() error {
			return b.Launch(g.three, one, g.memory.Arg(), safe.Val(uint32(1)), safe.Val(float32(2)))
		})(batched)
	}
	return []row{
		{
			name: "100 launches in a Batch", batch: queue / batched, prepare: g.idle, c: c,
			safe: g.withBatch(func(b *safe.Batch) error {
				b.Reset()
				if err := record(b); err != nil {
					return err
				}
				return b.Submit(g.stream)
			}),
			targets: []target{batch},
		},
		{
			name: "100 launches in a Batch, replayed", batch: queue / batched, prepare: g.idle, c: c,
			safe: g.withBatch(func(b *safe.Batch) error {
				if b.Len() == 0 {
					if err := record(b); err != nil {
						return err
					}
				}
				return b.Submit(g.stream)
			}),
			targets: []target{batch},
		},
	}
}

// withBatch is an op with a Batch of its own.
func (g *gpu) withBatch(f func(b *safe.Batch) error) op {
	var b *safe.Batch
	return times(func() (err error) {
		if b == nil {
			if b, err = safe.NewBatch(g.ctx); err != nil {
				return err
			}
		}
		return f(b)
	})
}
