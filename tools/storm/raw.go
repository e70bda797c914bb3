//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"
	"math"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

func init() {
	add("own", []kind{
		{name: "own.raw", weight: 8, run: func(t *task) error { return t.own.do(t.yes(40), t.own.rawActs(4)...) }},
	})
	add("stream", []kind{
		{name: "stream.raw", weight: 6, run: enqueueRaw, allow: contexts},
		{name: "stream.rawtwo", weight: 3, run: enqueueRawOnTwo, allow: contexts},
	})
	// These wait for whole contexts, which must not meet captures by raw calls.
	add("whole", []kind{
		{name: "whole.wait", weight: 2, run: func(t *task) error {
			return t.device().x.WithoutCaptures(driver.CuCtxSynchronize, t.device().x)
		}},
		{name: "whole.synchronize", weight: 4, run: func(t *task) error { return t.device().x.Synchronize() }},
	})
	add("ownwhole", []kind{{name: "ownwhole.fill", weight: 4, run: func(t *task) error { return t.own.withoutCaptures() }}})
}

// rawActs returns random acts that are enqueued by raw calls.
func (o *own) rawActs(most int) []act {
	all := o.acts(most)
	for i := range all {
		switch all[i].what {
		case "fill", "zero", "copy":
		default:
			all[i].what = "kernel"
		}
		all[i].raw = 1 + o.n(2)
	}
	return all
}

// enqueueRaw enqueues the act on a stream by a raw call.
func (a *act) enqueueRaw(o *own, s *safe.Stream) error {
	uses := []safe.Arg{a.to.buffer.Arg(), a.a.buffer.Arg()}
	if a.with != nil {
		uses = append(uses, a.with.args()...)
	}
	call := func(raw driver.CUstream) error { return errors.Join(a.call(o, raw), a.with.mark(raw)) }
	if a.raw == 1 {
		return s.EnqueueRaw(call, uses...)
	}
	other := o.streams[0]
	if s == other {
		other = o.streams[1]
	}
	if o.capture != nil {
		other = s // the other stream may not have joined
	}
	return safe.EnqueueRaw(func() error { return call(s.Raw()) }, safe.RawWork{Stream: other}, safe.RawWork{Stream: s, Uses: uses})
}

// call makes the raw call of the act.
func (a *act) call(o *own, raw driver.CUstream) error {
	at := func(v *values) driver.CUdeviceptr { return v.buffer.Raw() + driver.CUdeviceptr(4*a.lo) }
	to, n := at(a.to), uint32(a.hi-a.lo)
	switch a.what {
	case "fill":
		return driver.CuMemsetD32Async(to, math.Float32bits(a.v), uint64(n), raw)
	case "zero":
		return driver.CuMemsetD8Async(to, 0, 4*uint64(n), raw)
	case "copy":
		return driver.CuMemcpyDtoDAsync(to, at(a.a), 4*uint64(n), raw)
	}
	v := a.v
	params := []unsafe.Pointer{unsafe.Pointer(&n), unsafe.Pointer(&v), unsafe.Pointer(&to)}
	return driver.CuLaunchKernel(o.dev.fill.Raw(), 1, 1, 1, 128, 1, 1, 0, raw, &params[0], nil)
}

// withoutCaptures fills a buffer on the legacy stream, and waits for the whole context.
func (o *own) withoutCaptures() error {
	a := o.act()
	a.what = "fill"
	err := o.dev.x.WithoutCaptures(func() error {
		err := driver.CuCtxSynchronize()
		if err == nil {
			err = a.call(o, driver.CU_STREAM_LEGACY)
		}
		return errors.Join(err, driver.CuCtxSynchronize())
	})
	switch {
	case errors.Is(err, safe.ErrCapturing): // some stream of the context
		return nil
	case err == nil && o.capture != nil:
		return failf(wrong, "WithoutCaptures during a capture")
	case err == nil:
		a.apply(o)
	}
	return o.strict(err)
}

// rawCall returns a function that makes raw calls, and one call of this package that must be
// refused.
func (t *task) rawCall(s *safe.Stream, b *safe.Buffer[float32]) func(raw driver.CUstream) error {
	address, bytes, refused := b.Raw(), b.Size(), t.yes(20)
	function := t.deviceOf(s).nothing.Raw()
	return func(raw driver.CUstream) error {
		if refused {
			if err := s.Synchronize(); !explained(err, []error{safe.ErrInCallback}) || err == nil {
				return failf(wrong, "a call that can wait was not refused: %v", err)
			}
		}
		err := driver.CuMemsetD8Async(address, 1, bytes, raw)
		return errors.Join(err, driver.CuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, raw, nil, nil))
	}
}

func enqueueRaw(t *task) error {
	s, b := t.stream(), t.buffers.get(t.rng)
	return s.EnqueueRaw(t.rawCall(s, b), b.Arg())
}

func enqueueRawOnTwo(t *task) error {
	s, other, b := t.stream(), t.stream(), t.buffers.get(t.rng)
	call := t.rawCall(s, b)
	raw := s.Raw()
	work := safe.RawWork{Stream: s, Uses: []safe.Arg{b.Arg()}} // the first, whose context is current
	return safe.EnqueueRaw(func() error { return call(raw) }, work, safe.RawWork{Stream: other})
}

// fromRaw gives an error of a raw call the type that errors of package safe have.
func fromRaw(op string, err error) error {
	var code driver.CUresult
	if e := (*safe.Error)(nil); errors.As(err, &e) || !errors.As(err, &code) {
		return err
	}
	return &safe.Error{Op: op, Code: code, Err: code}
}
