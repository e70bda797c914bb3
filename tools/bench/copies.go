package main

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/cloop"
)

// copies are between pinned memory and the device, both ways.
func copies(g *gpu) ([]row, error) {
	var all []row
	for _, size := range []struct {
		name    string
		bytes   int
		targets []target
	}{
		{"4 B", 4, nil},
		{"4 KiB", 4 << 10, nil},
		{"64 MiB", largest, []target{bandwidth}},
	} {
		device, err := g.memory.Slice(0, size.bytes)
		if err != nil {
			return nil, err
		}
		host, err := g.pinned.Slice(0, size.bytes)
		if err != nil {
			return nil, err
		}
		for _, r := range append(toDevice(g, device, host), toHost(g, device, host)...) {
			r.name = "copy " + size.name + " " + r.name
			r.bytes, r.targets, r.prepare = size.bytes, size.targets, g.idle
			all = append(all, r)
		}
	}
	return all, nil
}

func toDevice(g *gpu, device *safe.Buffer[byte], host *safe.Pinned[byte]) []row {
	dst, n := device.Raw(), device.Size()
	src := unsafe.Pointer(&host.Data()[0])
	enqueue := func() error { return device.CopyFromHostAsync(g.stream, host) }
	now := row{
		name: "to device, synchronous",
		c:    loop(cloop.Copy, g.fn("cuMemcpyHtoD_v2"), uintptr(dst), uintptr(src), uintptr(n)),
		raw:  times(func() error { return driver.CuMemcpyHtoD(dst, src, n) }),
		safe: times(func() error { return device.CopyFromHost(host.Data()) }),
	}
	return append(waited(g, row{
		name: "to device",
		c:    loop(cloop.CopyAndWait, g.fn("cuMemcpyHtoDAsync_v2"), g.fn("cuStreamSynchronize"), uintptr(dst), uintptr(src), uintptr(n), uintptr(g.stream.Raw())),
		raw:  then(func() error { return driver.CuMemcpyHtoDAsync(dst, src, n, g.stream.Raw()) }, g.synchronizeRaw),
	}, enqueue), now)
}

func toHost(g *gpu, device *safe.Buffer[byte], host *safe.Pinned[byte]) []row {
	src, n := device.Raw(), device.Size()
	dst := unsafe.Pointer(&host.Data()[0])
	enqueue := func() error { return device.CopyToHostAsync(g.stream, host) }
	now := row{
		name: "to host, synchronous",
		c:    loop(cloop.Copy, g.fn("cuMemcpyDtoH_v2"), uintptr(dst), uintptr(src), uintptr(n)),
		raw:  times(func() error { return driver.CuMemcpyDtoH(dst, src, n) }),
		safe: times(func() error { return device.CopyToHost(host.Data()) }),
	}
	return append(waited(g, row{
		name: "to host",
		c:    loop(cloop.CopyAndWait, g.fn("cuMemcpyDtoHAsync_v2"), g.fn("cuStreamSynchronize"), uintptr(dst), uintptr(src), uintptr(n), uintptr(g.stream.Raw())),
		raw:  then(func() error { return driver.CuMemcpyDtoHAsync(dst, src, n, g.stream.Raw()) }, g.synchronizeRaw),
	}, enqueue), now)
}

// waited are the rows of an asynchronous copy, one for each of the safe waits.
func waited(g *gpu, r row, enqueue func() error) []row {
	blocking, parked := r, r
	blocking.name += ", async + SynchronizeBlocking"
	blocking.safe = then(enqueue, g.stream.SynchronizeBlocking)
	parked.name += ", async + Synchronize"
	parked.safe = then(enqueue, g.stream.Synchronize)
	return []row{blocking, parked}
}

func (g *gpu) synchronizeRaw() error { return driver.CuStreamSynchronize(g.stream.Raw()) }

// then is an op of two steps.
func then(first, second func() error) op {
	return times(func() error {
		if err := first(); err != nil {
			return err
		}
		return second()
	})
}
