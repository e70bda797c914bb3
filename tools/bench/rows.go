package main

import (
	"errors"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
)

// queue is how much work a stream gets before it is waited for: a full queue
// would make the calls block.
const queue = 200

// emptyCall is the row that tells what cgo costs alone.
const emptyCall = "empty cgo call"

// rows is all that is measured, in this order.
func rows(g *gpu) ([]row, error) {
	all := calls(g)
	all = append(all, launches(g)...)
	all = append(all, batches(g)...)
	all = append(all, objects(g)...)
	more, err := copies(g)
	return append(all, more...), errors.Join(g.missing, err)
}

// calls are those that put no kernel on a stream.
func calls(g *gpu) []row {
	e, s := uintptr(g.event.Raw()), uintptr(g.stream.Raw())
	recordInC := loop(cloop.Record, g.fn("cuEventRecord"), e, s)
	recordRaw := times(func() error { return driver.CuEventRecord(g.event.Raw(), g.stream.Raw()) })
	record := times(func() error { return g.stream.Record(g.event) })
	eventQuery, streamQuery := g.fn("cuEventQuery"), g.fn("cuStreamQuery")
	eventInC := loop(cloop.Query, eventQuery, e)
	eventRaw := times(func() error { return driver.CuEventQuery(g.event.Raw()) })
	event := times(func() error { return done(g.event.Query()) })
	streamInC := loop(cloop.Query, streamQuery, s)
	streamRaw := times(func() error { return driver.CuStreamQuery(g.stream.Raw()) })
	stream := times(func() error { return done(g.stream.Query()) })
	calls := []safe.RawCall{{Address: safe.Symbol(driver.Library, "cuEventRecord")(), Args: [8]uint64{uint64(e), uint64(s)}}}
	prepare := func(driver.CUstream) []safe.RawCall { return calls }
	both := []target{rawCall, safeCall}
	return []row{
		{
			name: emptyCall, always: true,
			c:   loop(cloop.Nothing),
			raw: times(func() error { cloop.Empty(); return nil }),
		},
		{
			name: "driver version", targets: []target{rawCall},
			c: loop(cloop.Version, g.fn("cuDriverGetVersion")),
			raw: times(func() error {
				var version int32
				return driver.CuDriverGetVersion(&version)
			}),
		},
		{name: "event record", c: recordInC, raw: recordRaw, safe: record, batch: queue, prepare: g.idle, targets: both},
		{name: "event record, in Context.WithCurrent", c: recordInC, raw: recordRaw, safe: record, inDo: true, batch: queue, prepare: g.idle, targets: both},
		{
			name: "event record, by EnqueueRaw", batch: queue, prepare: g.idle, targets: []target{rawCall, enqueueRaw},
			c: recordInC, raw: recordRaw,
			safe: times(func() error {
				return g.stream.EnqueueRaw(func(s driver.CUstream) error { return driver.CuEventRecord(g.event.Raw(), s) })
			}),
		},
		{
			name: "event record, by EnqueueCalls", batch: queue, prepare: g.idle, targets: []target{rawCall, enqueueRaw},
			c: recordInC, raw: recordRaw,
			safe: times(func() error {
				_, err := safe.EnqueueCalls(safe.RawWork{Stream: g.stream}, prepare)
				return err
			}),
		},
		{name: "event query, done", c: eventInC, raw: eventRaw, safe: event, prepare: g.idle, targets: both},
		{name: "event query, done, in Context.WithCurrent", c: eventInC, raw: eventRaw, safe: event, inDo: true, prepare: g.idle, targets: both},
		{name: "event query, done, after a launch", c: eventInC, raw: eventRaw, safe: event, prepare: g.launched, targets: both},
		{
			name: "event query, two at once", prepare: g.idle,
			c:    loop(cloop.QueryPair, eventQuery, e, g.fn("cuCtxSetCurrent"), uintptr(g.ctx.Raw())),
			raw:  two(func(n int) error { return g.ctx.WithCurrent(func() error { return eventRaw(n) }) }),
			safe: two(event),
		},
		{name: "stream query", c: streamInC, raw: streamRaw, safe: stream, prepare: g.idle, targets: both},
		{name: "stream query, after a launch", c: streamInC, raw: streamRaw, safe: stream, prepare: g.launched, targets: both},
		{
			name: "stream wait event", batch: queue, prepare: g.idle, targets: []target{rawCall},
			c:    loop(cloop.WaitEvent, g.fn("cuStreamWaitEvent"), s, e),
			raw:  times(func() error { return driver.CuStreamWaitEvent(g.stream.Raw(), g.event.Raw(), 0) }),
			safe: times(func() error { return g.stream.WaitEvent(g.event) }),
		},
	}
}

// done is the error of a query that should find its work done.
func done(done bool, err error) error {
	if err == nil && !done {
		return driver.CUDA_ERROR_NOT_READY
	}
	return err
}

// two has two goroutines do n operations each.
func two(o op) op {
	return func(n int) error {
		errs := make(chan error)
		for range 2 {
			go func() { errs <- o(n) }()
		}
		return errors.Join(<-errs, <-errs)
	}
}

var one = safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}

// launches are of kernels that do nothing.
func launches(g *gpu) []row {
	fn, s := g.fn("cuLaunchKernel"), uintptr(g.stream.Raw())
	raw := func(k *safe.Kernel, params *unsafe.Pointer) error {
		return driver.CuLaunchKernel(k.Raw(), 1, 1, 1, 1, 1, 1, 0, g.stream.Raw(), params, nil)
	}
	return []row{
		{
			name: "launch, no arguments", batch: queue, prepare: g.idle, targets: []target{rawCall, launch},
			c:    loop(cloop.Launch0, fn, uintptr(g.nothing.Raw()), s),
			raw:  times(func() error { return raw(g.nothing, nil) }),
			safe: times(func() error { return g.nothing.Launch(g.stream, one) }),
		},
		{
			name: "launch, 3 arguments", batch: queue, prepare: g.idle, targets: []target{rawCall, launch3},
			c: loop(cloop.Launch3, fn, uintptr(g.three.Raw()), s, uintptr(g.memory.Raw())),
			raw: times(func() error {
				address, count, value := g.memory.Raw(), uint32(1), float32(2)
				params := [...]unsafe.Pointer{unsafe.Pointer(&address), unsafe.Pointer(&count), unsafe.Pointer(&value)}
				return raw(g.three, &params[0])
			}),
			safe: times(func() error {
				return g.three.Launch(g.stream, one, g.memory.Arg(), safe.Val(uint32(1)), safe.Val(float32(2)))
			}),
		},
		{
			name: "launch, 16 arguments", batch: queue, prepare: g.idle, targets: []target{rawCall, launch},
			c: loop(cloop.Launch16, fn, uintptr(g.sixteen.Raw()), s),
			raw: times(func() error {
				var values [16]uint64
				var params [16]unsafe.Pointer
				for i := range values {
					values[i] = uint64(i)
					params[i] = unsafe.Pointer(&values[i])
				}
				return raw(g.sixteen, &params[0])
			}),
			safe: times(func() error {
				return g.sixteen.Launch(g.stream, one,
					safe.Val(uint64(0)), safe.Val(uint64(1)), safe.Val(uint64(2)), safe.Val(uint64(3)),
					safe.Val(uint64(4)), safe.Val(uint64(5)), safe.Val(uint64(6)), safe.Val(uint64(7)),
					safe.Val(uint64(8)), safe.Val(uint64(9)), safe.Val(uint64(10)), safe.Val(uint64(11)),
					safe.Val(uint64(12)), safe.Val(uint64(13)), safe.Val(uint64(14)), safe.Val(uint64(15)))
			}),
		},
	}
}

// objects are made and given back at once.
func objects(g *gpu) []row {
	return []row{
		{
			name: "stream create and close", prepare: g.idle,
			c: loop(cloop.CreateDestroy, g.fn("cuStreamCreate"), g.fn("cuStreamDestroy_v2"), uintptr(driver.CU_STREAM_NON_BLOCKING)),
			raw: times(func() error {
				var s driver.CUstream
				if err := driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING); err != nil {
					return err
				}
				return driver.CuStreamDestroy(s)
			}),
			safe: times(func() error {
				s, err := safe.NewStreamWith(g.ctx, safe.StreamOptions{NonBlocking: true})
				if err != nil {
					return err
				}
				return s.Close()
			}),
		},
		g.allocates("async alloc and free, 4 KiB", 4<<10, func() (*safe.Buffer[byte], error) { return safe.NewBufferAsync[byte](g.stream, 4<<10) }),
		g.allocates("alloc and free, 4 KiB", 4<<10, func() (*safe.Buffer[byte], error) { return safe.NewBuffer[byte](g.ctx, 4<<10) }),
		g.allocates("alloc and free, 1 MiB", 1<<20, func() (*safe.Buffer[byte], error) { return safe.NewBuffer[byte](g.ctx, 1<<20) }),
		g.allocates("alloc in an arena, 4 KiB", 4<<10, g.fromArena(4<<10)),
	}
}

// allocates is a row that allocates memory and frees it: in C and raw from the current pool,
// in the order of the stream.
func (g *gpu) allocates(name string, size uint64, allocate func() (*safe.Buffer[byte], error)) row {
	return row{
		name: name, batch: queue, prepare: g.idle,
		c: loop(cloop.AllocFree, g.fn("cuMemAllocAsync"), g.fn("cuMemFreeAsync"), uintptr(size), uintptr(g.stream.Raw())),
		raw: times(func() error {
			var p driver.CUdeviceptr
			if err := driver.CuMemAllocAsync(&p, size, g.stream.Raw()); err != nil {
				return err
			}
			return driver.CuMemFreeAsync(p, g.stream.Raw())
		}),
		safe: times(func() error {
			b, err := allocate()
			if err != nil {
				return err
			}
			return b.Close()
		}),
	}
}

// fromArena allocates from an arena, which it resets after 1,000 buffers.
func (g *gpu) fromArena(size int) func() (*safe.Buffer[byte], error) {
	const room = 1000
	n := 0
	return func() (b *safe.Buffer[byte], err error) {
		switch {
		case g.arena == nil:
			g.arena, err = safe.NewArena(g.stream, room*size)
		case n%room == 0:
			err = g.arena.Reset()
		}
		if err != nil {
			return nil, err
		}
		n++
		return safe.NewBufferIn[byte](g.arena, size)
	}
}
