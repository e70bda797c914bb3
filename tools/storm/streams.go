//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"context"
	"errors"
	"time"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// contexts are the errors allowed if objects of several devices are used together.
var contexts = []error{safe.ErrContextMismatch, safe.ErrInvalidArgument}

func init() {
	add("stream", []kind{
		{name: "stream.new", weight: 8, run: newStream},
		{name: "stream.legacy", weight: 3, run: func(t *task) error {
			s, err := safe.LegacyStream(t.device().x)
			return put(t, &t.streams, s, err)
		}},
		{name: "stream.borrow", weight: 5, run: func(t *task) error {
			s, err := t.stream().Borrow()
			return put(t, &t.streams, s, err)
		}},
		{name: "stream.release", weight: 4, run: releaseStream, allow: contexts},
		{name: "stream.launch", weight: 12, run: launch, allow: contexts},
		{name: "stream.fill", weight: 8, run: func(t *task) error { return t.buffers.get(t.rng).FillAsync(t.stream(), 3) }, allow: contexts},
		{name: "stream.copy", weight: 6, run: func(t *task) error {
			return t.buffers.get(t.rng).CopyFromAsync(t.stream(), t.buffers.get(t.rng))
		}, allow: append([]error{safe.ErrOverlap, safe.ErrRange}, contexts...)},
		{name: "stream.batch", weight: 2, run: batchCopy, allow: append([]error{safe.ErrOverlap, safe.ErrRange}, contexts...)},
		{name: "stream.upload", weight: 5, run: func(t *task) error {
			return t.buffers.get(t.rng).CopyFromHostAsync(t.stream(), t.hosts.get(t.rng))
		}, allow: append([]error{safe.ErrRange}, contexts...)},
		{name: "stream.download", weight: 5, run: func(t *task) error {
			return t.buffers.get(t.rng).CopyToHostAsync(t.stream(), t.hosts.get(t.rng))
		}, allow: append([]error{safe.ErrRange}, contexts...)},
		{name: "stream.stuck", weight: 2, run: func(t *task) error { return t.clock.wait(t.stream(), 1+t.n(t.profile.ticks)) }},
		{name: "stream.write", weight: 3, run: func(t *task) error {
			return safe.WriteValue(t.stream(), t.words.get(t.rng).At(t.n(size)), uint32(7))
		}, allow: append([]error{driver.CUDA_ERROR_INVALID_VALUE, safe.ErrRange}, contexts...)},
		{name: "stream.memops", weight: 2, run: memOps, allow: append([]error{driver.CUDA_ERROR_INVALID_VALUE, safe.ErrRange}, contexts...)},
		{name: "stream.ask", weight: 8, run: askStream, allow: []error{safe.ErrContextMismatch, driver.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT}},
		{name: "stream.attributes", weight: 5, run: attributes, allow: []error{safe.ErrRange, safe.ErrContextMismatch, driver.CUDA_ERROR_INVALID_VALUE}},
		{name: "stream.query", weight: 8, run: func(t *task) error { _, err := t.stream().Query(); return err }},
		{name: "stream.hostfunc", weight: 4, run: func(t *task) error {
			_, err := t.stream().LaunchHostFunc(func() {})
			return err
		}},
		{name: "stream.inside", weight: 2, run: insideHostFunc, allow: []error{safe.ErrInCallback, driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}},
		{name: "stream.callback", weight: 3, run: func(t *task) error { return t.stream().AddCallback(func(error) {}) }},
	})
	add("crowd", []kind{
		{name: "crowd.full", weight: 2, run: fullQueue},
		{name: "crowd.waits", weight: 2, run: manyWaits},
	})
}

func newStream(t *task) error {
	s, err := safe.NewStreamWith(t.device().x, safe.StreamOptions{NonBlocking: t.yes(50), Priority: -t.n(7), ClampPriority: true})
	return put(t, &t.streams, s, err)
}

// releaseStream releases a stream to a raw handle and takes it over again, sometimes after another
// Stream has borrowed it.
func releaseStream(t *task) error {
	d := t.device()
	s, err := safe.NewStreamWith(d.x, safe.StreamOptions{NonBlocking: t.yes(50)})
	if err != nil {
		return err
	}
	if err := d.nothing.Launch(s, one); err != nil {
		return errors.Join(err, s.Close())
	}
	raw := s.Release()
	if raw == 0 {
		return failf(wrong, "Release of a stream that only this goroutine has")
	}
	var used error
	if t.yes(50) {
		used = useForeign(t, raw, d.x)
	}
	s, err = safe.StreamFromRaw(raw, d.x)
	if t.yes(50) {
		return errors.Join(used, err, s.Close())
	}
	return errors.Join(used, put(t, &t.streams, s, err))
}

// useForeign works on a stream with memory that others close, which locks it.
func useForeign(t *task, raw driver.CUstream, x *safe.Context) error {
	s, err := safe.BorrowStream(raw, x, nil)
	if err != nil {
		return err
	}
	return errors.Join(t.buffers.get(t.rng).FillAsync(s, 3), s.Close())
}

func launch(t *task) error {
	s := t.stream()
	d := t.deviceOf(s)
	a, b, c := t.buffers.get(t.rng), t.buffers.get(t.rng), t.buffers.get(t.rng)
	switch t.n(5) {
	case 0:
		return d.nothing.Launch(s, one)
	case 1:
		return d.spin.Launch(s, one, safe.Val(uint64(t.n(200_000))))
	case 2:
		n := min(a.Len(), b.Len(), c.Len())
		return d.add.Launch(s, perValue(size), a.Arg(), b.Arg(), c.Arg(), safe.Val(uint32(n)))
	case 3:
		n := min(a.Len(), b.Len())
		return d.saxpy.Launch(s, perValue(size), safe.Val(uint32(n)), safe.Val(float32(2)), a.Arg(), b.Arg())
	}
	return d.fill.Launch(s, perValue(size), safe.Val(uint32(a.Len())), safe.Val(float32(2)), a.Arg())
}

func batchCopy(t *task) error {
	var ops []safe.CopyOp
	for range 1 + t.n(4) {
		a, b := t.buffers.get(t.rng), t.buffers.get(t.rng)
		if t.yes(50) {
			ops = append(ops, safe.NewCopyOp[float32](a, b))
		} else {
			ops = append(ops, safe.NewCopyOp[float32](a, t.hosts.get(t.rng)))
		}
	}
	return t.stream().CopyAll(ops)
}

func memOps(t *task) error {
	w := t.words.get(t.rng)
	return t.stream().MemOps([]safe.MemOp{safe.NewWriteOp(w.At(t.n(size)), uint32(1)), safe.NewWriteOp(w.At(t.n(size)), uint32(2))})
}

// askStream makes queries of a stream.
func askStream(t *task) error {
	s := t.stream()
	var err error
	switch t.n(8) {
	case 0:
		_, err = s.ID()
	case 1:
		_, err = s.CaptureStatus()
	case 2:
		_, err = s.CaptureInfo()
	case 3:
		_, err = s.GreenContext()
	case 4:
		_, err = s.SMResource()
	case 5:
		_, err = s.Attribute(driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
	case 6:
		_, err = s.Attribute(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)
	default:
		s.Priority()
		s.Raw()
		_ = s.String()
	}
	return err
}

func attributes(t *task) error {
	s := t.stream()
	var v driver.CUstreamAttrValue
	switch t.n(6) {
	case 0:
		*v.Priority() = int32(-t.n(6))
		return s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, v)
	case 1:
		*v.SyncPolicy() = driver.CU_SYNC_POLICY_AUTO
		return s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, v)
	case 2:
		return s.CopyAttributes(t.stream())
	case 3:
		*v.MemSyncDomain() = driver.CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT
		return s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, v)
	case 4:
		b := t.buffers.get(t.rng)
		*v.AccessPolicyWindow() = driver.CUaccessPolicyWindow{Base_ptr: ffi.Pointer(b.Raw()), Num_bytes: b.Size(), HitRatio: 0.5, MissProp: driver.CU_ACCESS_PROPERTY_STREAMING}
		return s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, v)
	}
	v, err := s.Attribute(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP)
	if err != nil {
		return err
	}
	return s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, v)
}

// insideHostFunc makes calls that could wait inside a host function: they must be refused without
// waiting.
func insideHostFunc(t *task) error {
	s, other, b := t.stream(), t.stream(), t.buffers.get(t.rng)
	told := make(chan error, 4)
	tell := func(err error) {
		select {
		case told <- err:
		default: // it was captured, and the graph is launched again and again
		}
	}
	f, err := s.LaunchHostFunc(func() {
		tell(other.Synchronize())
		if b.Len() > 0 { // else there is nothing to wait for
			tell(b.Fill(1))
		}
		_, err := other.BeginCapture()
		tell(err)
		other.Query()
		other.LaunchHostFunc(func() {})
	})
	if err != nil || f == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := f.Wait(ctx); err != nil {
		return nil // captured, or late
	}
	var errs []error
	for len(told) > 0 {
		err := <-told
		if err == nil {
			return failf(wrong, "a call that can wait was not refused in a host function")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fullQueue enqueues more on a stuck stream than its queue holds.
func fullQueue(t *task) error {
	d := t.device()
	s, err := safe.NewStreamWith(d.x, safe.StreamOptions{NonBlocking: t.yes(50)})
	if err != nil {
		return err
	}
	if err := put(t, &t.streams, s, nil); err != nil {
		return err
	}
	if err := t.clock.wait(s, 4+t.n(t.profile.ticks)); err != nil {
		return err
	}
	for range 1020 + t.n(60) {
		if err := d.nothing.Launch(s, one); err != nil {
			return err
		}
	}
	return nil
}

// manyWaits makes thousands of goroutines wait for a stuck stream.
func manyWaits(t *task) error {
	s := t.stream()
	err := t.clock.wait(s, 2+t.n(t.profile.ticks))
	if err != nil {
		return err
	}
	n := 500 + t.n(2500)
	futures := make([]*safe.Future[struct{}], n)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range futures {
		futures[i] = s.Completion()
		if i%8 == 0 && !t.profile.ends {
			go s.Wait(ctx)
		}
	}
	if t.yes(30) {
		return nil // dropped
	}
	for _, f := range futures {
		if _, err := f.Wait(context.Background()); err != nil {
			return err
		}
	}
	return nil
}
