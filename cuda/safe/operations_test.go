//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// The table of every exported operation that calls the driver, for tests that try them
// all. Runs on any driver.

package safe_test

import (
	"context"
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A world has one object of each kind, for tests that try every operation.
type world struct {
	x, y    *safe.Context
	s, t    *safe.Stream
	e, f    *safe.Event
	a, b    *safe.Buffer[int32]
	plain   *safe.Buffer[int32]
	async   *safe.Buffer[int32]
	managed *safe.Buffer[int32]
	pool    *safe.Pool
	pooled  *safe.Buffer[int32]
	h       *safe.Pinned[int32]
	r       *safe.Pinned[int32]
	m       *safe.Module
	k       *safe.Kernel
	g       *safe.Graph
	exec    *safe.GraphExec
	values  []int32
	all     []closer
	greens
}

// also closes c together with the world.
func also[T closer](w *world, c T, err error) (T, error) {
	if err == nil {
		w.all = append(w.all, c)
	}
	return c, err
}

// wide is a as values that a memset cannot set.
func (w *world) wide() *safe.Buffer[int64] {
	b, _ := safe.Cast[int64](w.a)
	return b
}

// newWorld returns a world whose stream s is non-blocking.
func newWorld() (*world, error) {
	return newWorldOf(1, func(w *world) (*safe.Stream, error) {
		return safe.NewStreamWith(w.x, safe.StreamOptions{NonBlocking: true})
	})
}

// newWorldOf returns a world with the stream s that own makes, and the context y of a device.
func newWorldOf(other int, own func(w *world) (*safe.Stream, error)) (*world, error) {
	w := &world{values: make([]int32, 64)}
	for _, step := range []func() error{
		func() (err error) { w.x, err = safe.Open(0); _, err = also(w, w.x, err); return },
		func() (err error) { w.y, err = safe.Open(other); _, err = also(w, w.y, err); return },
		func() (err error) { w.s, err = own(w); _, err = also(w, w.s, err); return },
		func() (err error) {
			w.t, err = safe.NewStream(w.x)
			_, err = also(w, w.t, err)
			return
		},
		func() (err error) {
			w.e, err = safe.NewEvent(w.x)
			_, err = also(w, w.e, err)
			return
		},
		func() (err error) {
			w.f, err = safe.NewEventWith(w.x, safe.EventOptions{Interprocess: true, DisableTiming: true})
			_, err = also(w, w.f, err)
			return
		},
		func() (err error) { w.a, err = safe.NewBuffer[int32](w.x, 64); _, err = also(w, w.a, err); return },
		func() (err error) { w.b, err = safe.NewBuffer[int32](w.y, 64); _, err = also(w, w.b, err); return },
		func() (err error) {
			w.plain, err = safe.NewBufferWith[int32](w.x, 64, safe.BufferOptions{Plain: true})
			_, err = also(w, w.plain, err)
			return
		},
		func() (err error) {
			w.async, err = safe.NewBufferAsync[int32](w.s, 64)
			_, err = also(w, w.async, err)
			return
		},
		func() (err error) {
			w.managed, err = safe.NewManagedBuffer[int32](w.x, 64)
			_, err = also(w, w.managed, err)
			return
		},
		func() (err error) { w.pool, err = safe.NewPoolWith(w.x, shared); _, err = also(w, w.pool, err); return },
		func() (err error) {
			w.pooled, err = safe.NewBufferFrom[int32](w.pool, w.s, 64)
			_, err = also(w, w.pooled, err)
			return
		},
		func() (err error) {
			w.h, err = safe.NewPinned[int32](w.x, 64)
			_, err = also(w, w.h, err)
			return
		},
		func() (err error) {
			w.r, err = safe.RegisterPinned(w.x, make([]int32, 64))
			_, err = also(w, w.r, err)
			return
		},
		func() (err error) {
			w.m, err = safe.LoadFile(w.x, "testdata/kernels.ptx")
			_, err = also(w, w.m, err)
			return
		},
		func() (err error) { w.k, err = w.m.Kernel("store"); return },
		func() (err error) {
			w.g, err = w.s.Capture(w.captured)
			_, err = also(w, w.g, err)
			return
		},
		func() (err error) { w.exec, err = w.g.Instantiate(); _, err = also(w, w.exec, err); return },
		// Buffers used by several streams.
		func() error { return w.s.Record(w.e) },
		func() error { return w.s.Synchronize() },
		w.addGreens,
		func() error { return w.async.FillAsync(w.t, 0) },
		func() error { return w.a.FillAsync(w.s, 0) },
		func() error { return w.a.CopyFromHostAsync(w.t, w.r) },
	} {
		if err := step(); err != nil {
			return w, err
		}
	}
	return w, nil
}

// captured is the work in the graph of a world.
func (w *world) captured() error {
	_, err := w.s.LaunchHostFunc(func() {})
	return errors.Join(err, w.k.Launch(w.s, one, w.a.Arg(), safe.Val(uint64(1))))
}

// close closes everything, streams in the middle.
func (w *world) close() error {
	var err error
	for _, c := range w.all {
		err = errors.Join(err, c.Close())
	}
	return err
}

type operation struct {
	name string
	do   func(w *world) error
}

// within maps an operation to operations that its function calls or ends with.
var within = map[string][]string{
	"Stream.Shutdown":          {"Stream.Close"},
	"Stream.Capture":           {"Stream.LaunchHostFunc", "Kernel.Launch"},
	"Stream.Fork":              {"Buffer.FillAsync"},
	"Stream.Time":              {"Buffer.FillAsync"},
	"Context.CloseAll":         {"Open", "NewEvent", "Event.Close", "Context.Close"},
	"Stream.CaptureTo":         {"Stream.LaunchHostFunc", "Kernel.Launch"},
	"Stream.CaptureExecutable": {"Stream.LaunchHostFunc", "Kernel.Launch", "Graph.Close"},
	"EnqueueCalls":             {"Stream.EnqueueRaw"}, // see clearByCalls
}

// operations are the exported operations that call the driver.
var operations = []operation{
	{"Devices", func(w *world) error { _, err := safe.Devices(); return err }},
	{"DeviceByPCI", func(w *world) error { _, err := safe.DeviceByPCI("0000:01:00.0"); return err }},
	{"Device.Name", func(w *world) error { _, err := w.x.Device().Name(); return err }},
	{"Device.UUID", func(w *world) error { _, err := w.x.Device().UUID(); return err }},
	{"Device.PCIAddress", func(w *world) error { _, err := w.x.Device().PCIAddress(); return err }},
	{"Device.Attribute", func(w *world) error { _, _, err := w.x.Device().ComputeCapability(); return err }},
	{"Device.Properties", func(w *world) error { _, err := w.x.Device().Properties(); return err }},
	{"Device.CanAccessPeer", func(w *world) error { _, err := w.x.Device().CanAccessPeer(w.y.Device()); return err }},
	{"Open", func(w *world) error { c, err := safe.Open(1); _, err = also(w, c, err); return err }},
	{"BorrowContext", func(w *world) error {
		c, err := safe.BorrowContext(w.x.Raw(), w.x)
		return errors.Join(err, c.Close()) // before the owner
	}},
	{"Context.WithCurrent", func(w *world) error { return w.x.WithCurrent(func() error { return nil }) }},
	{"Context.WithoutCaptures", func(w *world) error { return w.x.WithoutCaptures(driver.CuCtxSynchronize, w.y) }},
	{"Context.Limit", func(w *world) error { _, err := w.x.Limit(0); return err }},
	{"Context.SetLimit", func(w *world) error { return w.x.SetLimit(0, 2048) }},
	{"Context.MemoryInfo", func(w *world) error { _, _, err := w.x.MemoryInfo(); return err }},
	{"Context.Synchronize", func(w *world) error { return w.x.Synchronize() }},
	{"Context.EnablePeerAccess", func(w *world) error { return w.x.EnablePeerAccess(w.y) }},
	{"Context.DisablePeerAccess", func(w *world) error { return w.x.DisablePeerAccess(w.y) }},
	{"NewStream", func(w *world) error {
		c, err := safe.NewStream(w.x)
		_, err = also(w, c, err)
		return err
	}},
	{"StreamFromRaw", func(w *world) error {
		raw := w.t.Release()
		c, err := safe.StreamFromRaw(raw, w.x)
		if err != nil {
			return errors.Join(err, w.x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
		}
		_, err = also(w, c, err)
		return err
	}},
	{"BorrowStream", func(w *world) error {
		c, err := safe.BorrowStream(w.s.Raw(), w.x, w.s)
		_, err = also(w, c, err)
		return err
	}},
	{"LegacyStream", func(w *world) error { c, err := safe.LegacyStream(w.x); _, err = also(w, c, err); return err }},
	{"Stream.Borrow", func(w *world) error { c, err := w.s.Borrow(); _, err = also(w, c, err); return err }},
	{"Stream.Query", func(w *world) error { _, err := w.s.Query(); return err }},
	{"Stream.Wait", func(w *world) error { return w.s.Wait(context.Background()) }},
	{"Stream.SynchronizeBlocking", func(w *world) error { return w.s.SynchronizeBlocking() }},
	{"Stream.ID", func(w *world) error { _, err := w.s.ID(); return err }},
	{"Stream.EnqueueRaw", func(w *world) error {
		return w.s.EnqueueRaw(func(raw driver.CUstream) error { return clearRaw(w.a, raw) }, w.a.Arg())
	}},
	{"EnqueueCalls", func(w *world) error { return clearByCalls(w.a, w.s) }},
	{"EnqueueRaw", func(w *world) error {
		return safe.EnqueueRaw(func() error { return clearRaw(w.a, w.t.Raw()) }, safe.RawWork{Stream: w.s}, safe.RawWork{Stream: w.t, Uses: []safe.Arg{w.a.Arg()}})
	}},
	{"Stream.Record", func(w *world) error { return w.s.Record(w.e) }},
	{"Stream.WaitEvent", func(w *world) error { return w.t.WaitEvent(w.f) }},
	{"Stream.WaitStream", func(w *world) error { return w.t.WaitStream(w.s) }},
	{"Stream.Fork", func(w *world) error {
		return w.s.Fork(2, func(branches []*safe.Stream) error { return w.a.FillAsync(branches[1], 0) })
	}},
	{"Stream.Time", func(w *world) error {
		_, err := w.s.Time(context.Background(), func() error { return w.a.FillAsync(w.s, 0) })
		return err
	}},
	{"Context.CloseAll", func(w *world) error {
		x, err := safe.Open(1)
		if err != nil {
			return err
		}
		_, err = safe.NewEvent(x)
		return errors.Join(err, x.CloseAll(), x.Close())
	}},
	{"Upload", func(w *world) error { c, err := safe.Upload(w.x, w.values); _, err = also(w, c, err); return err }},
	{"NewZeroed", func(w *world) error { c, err := safe.NewZeroed[byte](w.x, 9); _, err = also(w, c, err); return err }},
	{"Buffer.Download", func(w *world) error { _, err := w.a.Download(); return err }},
	{"NewEvent", func(w *world) error {
		c, err := safe.NewEvent(w.x)
		_, err = also(w, c, err)
		return err
	}},
	{"OpenIPCEvent", func(w *world) error {
		c, err := safe.OpenIPCEvent(w.x, driver.CUipcEventHandle{})
		_, err = also(w, c, err)
		return err
	}},
	{"Event.Query", func(w *world) error { _, err := w.e.Query(); return err }},
	{"Event.Wait", func(w *world) error { return w.e.Wait(context.Background()) }},
	{"Event.Since", func(w *world) error { _, err := w.e.Since(w.e); return err }},
	{"Event.IPCHandle", func(w *world) error { _, err := w.f.IPCHandle(); return err }},
	{"NewBuffer", func(w *world) error { c, err := safe.NewBuffer[byte](w.x, 9); _, err = also(w, c, err); return err }},
	{"NewBufferAsync", func(w *world) error {
		c, err := safe.NewBufferAsync[byte](w.t, 9)
		_, err = also(w, c, err)
		return err
	}},
	{"BorrowBuffer", func(w *world) error {
		c, err := safe.BorrowBuffer[int16](w.x, w.a.Raw(), 9, w.a)
		_, err = also(w, c, err)
		return err
	}},
	{"NewPinned", func(w *world) error {
		c, err := safe.NewPinned[byte](w.x, 9)
		_, err = also(w, c, err)
		return err
	}},
	{"RegisterPinned", func(w *world) error {
		c, err := safe.RegisterPinned(w.x, make([]float64, 100))
		_, err = also(w, c, err)
		return err
	}},
	{"Buffer.CopyFromHost", func(w *world) error { return w.a.CopyFromHost(w.values) }},
	{"Buffer.CopyToHost", func(w *world) error { return w.a.CopyToHost(w.values) }},
	{"Buffer.CopyFrom", func(w *world) error { return w.a.CopyFrom(w.async) }},
	{"Buffer.CopyFrom", func(w *world) error { return w.a.CopyFrom(w.b) }},
	{"Buffer.CopyFromAsync", func(w *world) error { return w.a.CopyFromAsync(w.s, w.async) }},
	{"Buffer.CopyFromAsync", func(w *world) error { return w.b.CopyFromAsync(w.s, w.a) }},
	{"Buffer.CopyFromHostAsync", func(w *world) error { return w.a.CopyFromHostAsync(w.s, w.h) }},
	{"Buffer.CopyToHostAsync", func(w *world) error { return w.a.CopyToHostAsync(w.s, w.h) }},
	{"Buffer.Fill", func(w *world) error { return w.a.Fill(3) }},
	{"Buffer.FillAsync", func(w *world) error { return w.a.FillAsync(w.s, 3) }},
	{"Buffer.Fill", func(w *world) error { return w.wide().Fill(3) }}, // by a kernel
	{"Buffer.FillAsync", func(w *world) error { return w.wide().FillAsync(w.s, 3) }},
	{"Stream.CopyAttributes", func(w *world) error { return w.s.CopyAttributes(w.t) }},
	{"WaitValue", func(w *world) error {
		return safe.WaitValue(w.t, w.r.At(3), 1, driver.CU_STREAM_WAIT_VALUE_NOR) // it is 0
	}},
	{"WriteValue", func(w *world) error {
		wide, err := safe.Cast[int64](w.plain)
		if err != nil {
			return err
		}
		return safe.WriteValue(w.s, wide.At(0), 1)
	}},
	{"Stream.MemOps", func(w *world) error {
		return w.s.MemOps([]safe.MemOp{safe.NewWriteOp(w.plain.At(0), 1), safe.NewWriteOp(w.h.At(0), 1)})
	}},
	{"NewManagedBuffer", func(w *world) error {
		c, err := safe.NewManagedBuffer[byte](w.x, 9)
		_, err = also(w, c, err)
		return err
	}},
	{"Buffer.AttachAsync", func(w *world) error { return w.managed.AttachAsync(w.s, driver.CU_MEM_ATTACH_SINGLE) }},
	{"LoadFile", func(w *world) error {
		c, err := safe.LoadFile(w.x, "testdata/kernels.ptx")
		_, err = also(w, c, err)
		return err
	}},
	{"Module.Kernel", func(w *world) error {
		_, err := w.m.KernelWith("saxpy", safe.KernelOptions{Parameters: []int{4, 4, 8, 8}, MaxThreads: 256})
		return err
	}},
	{"Module.Kernel", func(w *world) error { _, err := w.m.Kernel("saxpy"); return err }},
	{"Global", func(w *world) error {
		c, err := safe.Global[float32](w.m, "table")
		_, err = also(w, c, err)
		return err
	}},
	{"Kernel.Attribute", func(w *world) error { _, err := w.k.Attribute(0); return err }},
	{"Kernel.SetAttribute", func(w *world) error {
		return w.k.SetAttribute(driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024)
	}},
	{"Kernel.MaxBlocksPerMultiprocessor", func(w *world) error { _, err := w.k.MaxBlocksPerMultiprocessor(64, 0); return err }},
	{"Kernel.Launch", func(w *world) error { return w.k.Launch(w.s, one, w.a.Arg(), safe.Val(uint64(1))) }},
	{"Kernel.Launch", func(w *world) error {
		cfg := one
		cfg.Cooperative = true
		return w.k.Launch(w.s, cfg, w.h.Arg(), safe.Val(uint64(1)))
	}},
	{"Stream.Shutdown", func(w *world) error { return w.t.Shutdown(context.Background()) }},
	{"Stream.Completion", func(w *world) error { _, err := w.s.Completion().Wait(context.Background()); return err }},
	{"Enqueue", func(w *world) error {
		_, err := safe.Enqueue(w.s, func(*safe.Stream) (int, error) { return 1, nil }).Wait(context.Background())
		return err
	}},
	{"Stream.Scope", func(w *world) error { return w.s.Scope(func(*safe.Scope) error { return nil }) }},
	{"Stream.LaunchHostFunc", func(w *world) error {
		f, err := w.s.LaunchHostFunc(func() {})
		if err == nil {
			<-f.Done()
		}
		return err
	}},
	{"Stream.AddCallback", func(w *world) error { return w.s.AddCallback(func(error) {}) }},
	{"Stream.Capture", func(w *world) error {
		c, err := w.s.Capture(w.captured)
		_, err = also(w, c, err)
		return err
	}},
	{"Stream.CaptureExecutable", func(w *world) error {
		c, err := w.s.CaptureExecutable(w.captured)
		_, err = also(w, c, err)
		return err
	}},
	{"Stream.CaptureTo", func(w *world) error { return w.s.CaptureTo(w.g, safe.CaptureToOptions{}, w.captured) }},
	{"Stream.CaptureStatus", func(w *world) error { _, err := w.s.CaptureStatus(); return err }},
	{"Stream.CaptureInfo", func(w *world) error { _, err := w.s.CaptureInfo(); return err }},
	{"WithCaptureMode", func(w *world) error { return safe.WithCaptureMode(safe.CaptureRelaxed, func() error { return nil }) }},
	{"NewGraph", func(w *world) error { c, err := safe.NewGraph(w.x); _, err = also(w, c, err); return err }},
	{"Graph.Clone", func(w *world) error { c, err := w.g.Clone(); _, err = also(w, c, err); return err }},
	{"Graph.Nodes", func(w *world) error { _, err := w.g.Nodes(); return err }},
	{"Graph.Edges", func(w *world) error { _, err := w.g.Edges(); return err }},
	{"Graph.DOT", func(w *world) error { _, err := w.g.DOT(0); return err }},
	{"Graph.Instantiate", func(w *world) error { c, err := w.g.Instantiate(); _, err = also(w, c, err); return err }},
	{"GraphExec.Launch", func(w *world) error { return w.exec.Launch(w.s) }},
	{"GraphExec.Upload", func(w *world) error { return w.exec.Upload(w.t) }},
	{"GraphExec.Update", func(w *world) error { return w.exec.Update(w.g) }},
}
