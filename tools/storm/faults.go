//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

func init() {
	add("device", []kind{
		{name: "device.peer", weight: 3, run: peers, allow: append([]error{driver.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, driver.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, driver.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, driver.CUDA_ERROR_INVALID_DEVICE}, contexts...)},
		{name: "device.copy", weight: 8, run: func(t *task) error {
			return t.buffers.get(t.rng).CopyFromAsync(t.stream(), t.buffers.get(t.rng))
		}, allow: placed},
		{name: "device.copynow", weight: 4, run: func(t *task) error { return t.buffers.get(t.rng).CopyFrom(t.buffers.get(t.rng)) }, allow: placed},
		{name: "device.wait", weight: 6, run: func(t *task) error { return t.stream().WaitEvent(t.events.get(t.rng)) }, allow: isolated},
		{name: "device.own", weight: 8, run: func(t *task) error { return t.own.across() }},
	})
	add("raw", []kind{
		{name: "raw.stream", weight: 4, run: rawStream},
		{name: "raw.capture", weight: 6, run: rawCapture},
		{name: "raw.event", weight: 2, run: rawEvent},
		{name: "raw.graph", weight: 3, run: rawGraph},
		{name: "raw.memory", weight: 4, run: rawMemory, allow: placed},
		{name: "raw.mode", weight: 2, run: rawMode},
	})
	add("fault", []kind{{name: "fault.trap", weight: 3, run: func(t *task) error {
		t.gone.Store(true)
		s := t.stream()
		return t.deviceOf(s).trap.Launch(s, one)
	}}})
}

// peers enables peer access, and never disables it: running kernels may need it.
func peers(t *task) error {
	a, b := t.device().x, t.device().x
	if a == b {
		return nil
	}
	return a.EnablePeerAccess(b)
}

// across copies own values to another device and back, ordered by events.
func (o *own) across() error {
	if o.capture != nil || len(o.devices) < 2 {
		return nil
	}
	other := o.devices[(o.index+1)%2]
	s, err := safe.NewStreamWith(other.x, safe.StreamOptions{NonBlocking: o.yes(50)})
	if err != nil {
		return o.strict(err)
	}
	defer s.Close()
	e, err := safe.NewEvent(other.x)
	if err != nil {
		return o.strict(err)
	}
	defer e.Close()
	b, err := safe.NewBuffer[float32](other.x, length)
	if err != nil {
		return o.strict(err)
	}
	defer b.Close()
	v := o.buffers[o.n(len(o.buffers))]
	for _, f := range []func() error{
		func() error { return o.streams[0].Record(o.events[0]) },
		func() error { return s.WaitEvent(o.events[0]) },
		func() error { return b.CopyFromAsync(s, v.buffer) },
		func() error { return s.Record(e) },
		func() error { return o.streams[0].WaitEvent(e) },
		func() error { return v.buffer.FillAsync(o.streams[0], 0) },
		func() error { return v.buffer.CopyFromAsync(o.streams[0], b) },
	} {
		if err := f(); err != nil {
			return o.strict(err)
		}
	}
	return nil
}

// raw creates a stream with raw calls, calls f, its only user, and destroys it.
func (t *task) raw(f func(raw driver.CUstream, s *safe.Stream) error) error {
	x := t.device().x
	var raw driver.CUstream
	err := x.WithCurrent(func() error { return driver.CuStreamCreate(&raw, driver.CU_STREAM_NON_BLOCKING) })
	if err != nil {
		return failf(wrong, "raw: %v", err)
	}
	s, err := safe.BorrowStream(raw, x, nil)
	if err == nil {
		err = f(raw, s)
	}
	return errors.Join(err, s.Close(), x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) }))
}

// rawStream uses a stream through both layers.
func rawStream(t *task) error {
	d := t.device()
	return t.raw(func(raw driver.CUstream, s *safe.Stream) error {
		if err := t.deviceOf(s).nothing.Launch(s, one); err != nil {
			return failf(wrong, "on a borrowed stream: %v", err)
		}
		if err := d.x.WithCurrent(func() error { return relaxed(func() error { return driver.CuStreamSynchronize(raw) }) }); err != nil {
			return failf(wrong, "raw: %v", err)
		}
		return s.Synchronize()
	})
}

// relaxed calls f on a thread in RELAXED mode, so that raw calls invalidate no capture.
func relaxed(f func() error) error {
	return safe.WithCaptureMode(safe.CaptureRelaxed, f)
}

// rawCapture begins and ends a capture with raw calls. Calls of package safe must not disturb it.
func rawCapture(t *task) error {
	x := t.device().x
	return t.raw(func(raw driver.CUstream, s *safe.Stream) error {
		return x.WithCurrent(func() error {
			if err := driver.CuStreamBeginCapture(raw, driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); err != nil {
				return failf(wrong, "raw: %v", err)
			}
			var errs []error
			if err := t.deviceOf(s).nothing.Launch(s, one); err != nil {
				errs = append(errs, failf(wrong, "in a raw capture: %v", err))
			}
			_, err := s.Query()
			if !errors.Is(err, safe.ErrCapturing) {
				errs = append(errs, failf(wrong, "Query in a raw capture: %v", err))
			}
			if err := s.Synchronize(); !errors.Is(err, safe.ErrCapturing) {
				errs = append(errs, failf(wrong, "Synchronize in a raw capture: %v", err))
			}
			var g driver.CUgraph
			if err := t.counts.captured(driver.CuStreamEndCapture(raw, &g)); err != nil {
				return errors.Join(append(errs, failf(lost, "raw: %v", err))...)
			}
			return errors.Join(append(errs, driver.CuGraphDestroy(g))...)
		})
	})
}

func rawEvent(t *task) error {
	x := t.device().x
	err := x.WithCurrent(func() error {
		var e driver.CUevent
		if err := driver.CuEventCreate(&e, 0); err != nil {
			return err
		}
		return relaxed(func() error { return errors.Join(driver.CuEventQuery(e), driver.CuEventDestroy(e)) })
	})
	if err != nil {
		return failf(wrong, "raw: %v", err)
	}
	return nil
}

// rawGraph inspects a graph of package safe with raw calls.
func rawGraph(t *task) error {
	g, err := t.own.chain(t.own.deviceActs(3))
	if err != nil {
		return t.own.strict(err)
	}
	var n uint64
	if err := driver.CuGraphGetNodes(g.graph.Raw(), nil, &n); err != nil || int(n) != len(g.nodes) {
		return failf(wrong, "raw: %d nodes, %v", n, err)
	}
	return t.own.strict(g.close())
}

func rawMemory(t *task) error {
	if t.own.capture != nil {
		return nil // it would be in the graph, which has nothing that keeps raw memory
	}
	x := t.own.dev.x
	return x.WithCurrent(func() error {
		return relaxed(func() error {
			var p driver.CUdeviceptr
			if err := driver.CuMemAlloc(&p, size*4); err != nil {
				return failf(wrong, "raw: %v", err)
			}
			b, err := safe.BorrowBuffer[float32](x, p, size, nil)
			if err == nil {
				err = b.FillAsync(t.own.streams[1], 1)
			}
			return errors.Join(err, t.own.streams[1].Synchronize(), b.Close(), driver.CuMemFree(p))
		})
	})
}

func rawMode(t *task) error {
	return relaxed(func() error { return t.own.do(false, t.own.act()) })
}
