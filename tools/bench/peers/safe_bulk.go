package main

import "github.com/cudabind/cudabind/cuda/safe"

// newBulk is the contestant that does many operations with one call of package safe.
func newBulk() *ours {
	p := openSafe()
	p.batch = must(safe.NewBatch(p.ctx))
	p.arena = must(safe.NewArena(p.stream, queue*4096))
	all := map[string]item{
		"launch_100": {prepare: func(int) func() {
			return func() {
				p.batch.Reset()
				p.recordLaunches(p.batch)
				check(p.batch.Submit(p.stream))
			}
		}, queue: func(int) int { return 2 }},
		"async_alloc": {prepare: func(int) func() { return p.fromArena() }, queue: func(int) int { return queue }},
		"pipe_1m":     lazily(func() func() { return p.pipeInBulk(256, 1<<20) }),
		"pipe_16k":    lazily(func() func() { return p.pipeInBulk(2048, 16<<10) }),
	}
	for name, it := range p.graphItemsInBulk() {
		all[name] = it
	}
	return p.ours("cudabind, package safe, many at once", all)
}

// newReplay is the contestant that records operations once, and then submits them.
func newReplay() *ours {
	p := openSafe()
	p.batch = must(safe.NewBatch(p.ctx))
	p.recordLaunches(p.batch)
	return p.ours("cudabind, package safe, replayed", map[string]item{
		"launch_100": {
			prepare: func(int) func() { return func() { check(p.batch.Submit(p.stream)) } },
			queue:   func(int) int { return 2 },
		},
		"pipe_1m":  lazily(func() func() { return p.pipeReplayed(256, 1<<20) }),
		"pipe_16k": lazily(func() func() { return p.pipeReplayed(2048, 16<<10) }),
	})
}

func (p *safely) recordLaunches(b *safe.Batch) {
	for range 100 {
		check(b.Launch(p.three, one, p.memory.Arg(), safe.Val(uint32(1)), safe.Val(float32(2))))
	}
}

// fromArena allocates from an arena, which it resets where the queue of others is full.
func (p *safely) fromArena() func() {
	n := 0
	return func() {
		if n == queue {
			check(p.arena.Reset())
			n = 0
		}
		n++
		check(must(safe.NewBufferIn[byte](p.arena, 4096)).Close())
	}
}

// together is how many pieces of a size are submitted at once: few large ones, as the other streams
// wait for their first meanwhile.
func together(size int) int { return max(1, min(32, 1<<20/size)) }

// record puts pieces of one stream into a batch: together of them, or as many as are left.
// First is the number of the first.
func (p *safely) record(b *safe.Batch, c *pieces, first int) {
	at := c.at[first%streams]
	for i := first; i < min(c.count, first+c.together*streams); i += streams {
		check(safe.BatchCopy(b, safe.Memory[byte](at), safe.Memory[byte](c.in[i%len(c.in)])))
		check(b.Launch(p.mulby, c.config, at.Arg(), safe.Val(c.floats), safe.Val(float32(2))))
		check(safe.BatchCopy(b, safe.Memory[byte](c.out[i%len(c.out)]), safe.Memory[byte](at)))
	}
}

// firsts calls f with the number of the first piece of each submission.
func (c *pieces) firsts(f func(first int)) {
	for from := 0; from < c.count; from += c.together * streams {
		for q := range streams {
			f(from + q)
		}
	}
}

// pipeInBulk is pipe by a Batch that is recorded and submitted for some pieces at a time.
func (p *safely) pipeInBulk(count, size int) func() {
	c := p.pieces(count, size)
	b := must(safe.NewBatch(p.ctx))
	return func() {
		c.firsts(func(first int) {
			b.Reset()
			p.record(b, c, first)
			check(b.Submit(c.streams[first%streams]))
		})
		c.wait()
	}
}

// pipeReplayed is the same with batches that were recorded before.
func (p *safely) pipeReplayed(count, size int) func() {
	c := p.pieces(count, size)
	var all []*safe.Batch
	c.firsts(func(first int) {
		b := must(safe.NewBatch(p.ctx))
		p.record(b, c, first)
		all = append(all, b)
	})
	return func() {
		for i, b := range all {
			check(b.Submit(c.streams[i%streams]))
		}
		c.wait()
	}
}
