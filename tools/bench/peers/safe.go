package main

import (
	"math"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
)

// safely is what the contestants that call package safe use.
type safely struct {
	ctx    *safe.Context
	stream *safe.Stream
	event  *safe.Event
	memory *safe.Buffer[byte]
	host   *safe.Pinned[byte] // the first half is copied to the device, the second from it

	nothing, three, sixteen, spin, mulby *safe.Kernel

	chain safeChain
	batch *safe.Batch
	arena *safe.Arena
}

var one = safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}

func openSafe() *safely {
	p := &safely{}
	p.ctx = must(safe.Open(0))
	p.stream = p.newStream()
	p.event = must(safe.NewEventWith(p.ctx, safe.EventOptions{DisableTiming: true}))
	check(p.stream.Record(p.event))
	module := must(safe.Load(p.ctx, kernels))
	for name, kernel := range map[string]**safe.Kernel{
		"nothing": &p.nothing, "three": &p.three, "sixteen": &p.sixteen, "spin": &p.spin, "mulby": &p.mulby,
	} {
		*kernel = must(module.Kernel(name))
	}
	p.memory = must(safe.NewBuffer[byte](p.ctx, largest))
	p.host = must(safe.NewPinned[byte](p.ctx, largest))
	floats := p.floats()
	for i := range floats {
		floats[i] = 1
	}
	check(must(safe.DefaultPool(p.ctx)).SetAttribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, math.MaxUint64))
	return p
}

func (p *safely) floats() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&p.host.Data()[0])), largest/4)
}

func (p *safely) newStream() *safe.Stream {
	return must(safe.NewStreamWith(p.ctx, safe.StreamOptions{NonBlocking: true}))
}

// ours is a contestant with these items.
func (p *safely) ours(name string, items map[string]item) *ours {
	_, cuda, err := driver.Library()
	check(err)
	return &ours{
		ready: reply{Ready: name, GPU: must(p.ctx.Device().Name()), CUDA: cuda}, items: items,
		idle:  func() { check(p.ctx.Synchronize()) },
		check: func() bool { return doubled(p.floats()) },
	}
}

// newSafe is the contestant that makes one call after the other.
func newSafe() *ours {
	p := openSafe()
	all := map[string]item{
		"crossing":      always(cloop.Empty),
		"event_record":  queued(func() { check(p.stream.Record(p.event)) }),
		"event_query":   always(func() { must(p.event.Query()) }),
		"stream_query":  always(func() { must(p.stream.Query()) }),
		"launch_0":      queued(func() { check(p.nothing.Launch(p.stream, one)) }),
		"launch_3":      queued(p.launch3),
		"launch_16":     queued(p.launch16),
		"launch_100":    {prepare: p.launches, queue: func(int) int { return 2 }},
		"stream_create": always(func() { check(p.newStream().Close()) }),
		"async_alloc":   queued(func() { check(must(safe.NewBufferAsync[byte](p.stream, 4096)).Close()) }),
		"buf_alloc": {prepare: func(size int) func() {
			return func() { check(must(safe.NewBuffer[byte](p.ctx, size)).Close()) }
		}, queue: func(int) int { return queue }},
		"h2d":      {prepare: p.copyIn},
		"d2h":      {prepare: p.copyOut},
		"pipe_1m":  lazily(func() func() { return p.pipe(256, 1<<20) }),
		"pipe_16k": lazily(func() func() { return p.pipe(2048, 16<<10) }),
	}
	for name, it := range p.graphItems() {
		all[name] = it
	}
	o := p.ours("cudabind, package safe", all)
	o.once, o.worker = p.once, p.worker
	return o
}

func (p *safely) launch3() {
	check(p.three.Launch(p.stream, one, p.memory.Arg(), safe.Val(uint32(1)), safe.Val(float32(2))))
}

func (p *safely) launch16() {
	check(p.sixteen.Launch(p.stream, one,
		safe.Val(uint64(0)), safe.Val(uint64(1)), safe.Val(uint64(2)), safe.Val(uint64(3)),
		safe.Val(uint64(4)), safe.Val(uint64(5)), safe.Val(uint64(6)), safe.Val(uint64(7)),
		safe.Val(uint64(8)), safe.Val(uint64(9)), safe.Val(uint64(10)), safe.Val(uint64(11)),
		safe.Val(uint64(12)), safe.Val(uint64(13)), safe.Val(uint64(14)), safe.Val(uint64(15))))
}

func (p *safely) launches(int) func() {
	return func() {
		for range 100 {
			p.launch3()
		}
	}
}

func (p *safely) copyIn(size int) func() {
	device, host := must(p.memory.Slice(0, size)), must(p.host.Slice(0, size))
	return func() {
		check(device.CopyFromHostAsync(p.stream, host))
		check(p.stream.Synchronize())
	}
}

func (p *safely) copyOut(size int) func() {
	device, host := must(p.memory.Slice(0, size)), must(p.host.Slice(0, size))
	return func() {
		check(device.CopyToHostAsync(p.stream, host))
		check(p.stream.Synchronize())
	}
}

func (p *safely) once(us int) {
	if us == 0 {
		check(p.nothing.Launch(p.stream, one))
	} else {
		check(p.spin.Launch(p.stream, one, safe.Val(uint64(us)*1000)))
	}
	check(p.stream.Synchronize())
}

func (p *safely) worker(w, reps int) (work func(int), end func()) {
	own := make([]*safe.Stream, w)
	for i := range own {
		own[i] = p.newStream()
		check(p.spin.Launch(own[i], one, safe.Val(uint64(1000))))
	}
	check(p.ctx.Synchronize())
	work = func(i int) {
		for range reps {
			check(p.spin.Launch(own[i], one, safe.Val(uint64(500_000))))
			check(own[i].Synchronize())
		}
	}
	return work, func() {
		for _, s := range own {
			check(s.Close())
		}
	}
}

// pieces are what a pipeline works on.
type pieces struct {
	count   int
	streams [streams]*safe.Stream
	at      [streams]*safe.Buffer[byte]
	in, out []*safe.Pinned[byte]
	config  safe.LaunchConfig
	floats  uint32 // of a piece

	together int // pieces of a stream that are submitted at once
}

func (p *safely) pieces(count, size int) *pieces {
	c := &pieces{
		count: count, floats: uint32(size / 4), together: together(size),
		config: safe.LaunchConfig{Grid: safe.Blocks(size/4, 256), Block: safe.Dim{X: 256}},
	}
	for i := range streams {
		c.streams[i], c.at[i] = p.newStream(), must(p.memory.Slice(i*size, (i+1)*size))
	}
	for from := 0; from < largest/2; from += size {
		c.in = append(c.in, must(p.host.Slice(from, from+size)))
		c.out = append(c.out, must(p.host.Slice(largest/2+from, largest/2+from+size)))
	}
	return c
}

func (c *pieces) wait() {
	for _, s := range c.streams {
		check(s.Synchronize())
	}
}

// pipe copies pieces to the device, doubles them and copies them back, on 8 streams in turns.
func (p *safely) pipe(count, size int) func() {
	c := p.pieces(count, size)
	return func() {
		for i := range c.count {
			s, at := c.streams[i%streams], c.at[i%streams]
			check(at.CopyFromHostAsync(s, c.in[i%len(c.in)]))
			check(p.mulby.Launch(s, c.config, at.Arg(), safe.Val(c.floats), safe.Val(float32(2))))
			check(at.CopyToHostAsync(s, c.out[i%len(c.out)]))
		}
		c.wait()
	}
}
