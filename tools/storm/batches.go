//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"
	"slices"

	"github.com/cudabind/cudabind/cuda/safe"
)

// batchy are the errors allowed for batches of objects that other goroutines change.
var batchy = slices.Concat([]error{safe.ErrRange, safe.ErrOverlap}, contexts, isolated)

func init() {
	add("own", []kind{{name: "own.batch", weight: 10, run: func(t *task) error { return t.own.batch() }}})
	add("stream", []kind{
		{name: "batch.new", weight: 3, run: func(t *task) error {
			b, err := safe.NewBatch(t.device().x)
			if err != nil {
				return err
			}
			for range t.n(8) {
				if err := recordShared(t, b); !explained(err, batchy) {
					return err
				}
			}
			t.batches.swap(t.rng, b)
			return nil
		}, allow: batchy},
		{name: "batch.record", weight: 4, run: func(t *task) error { return recordShared(t, t.batches.get(t.rng)) }, allow: batchy},
		{name: "batch.submit", weight: 8, run: func(t *task) error { return t.batches.get(t.rng).Submit(t.stream()) }, allow: batchy},
		{name: "batch.set", weight: 3, run: setShared, allow: batchy},
		{name: "batch.reset", weight: 1, run: func(t *task) error { t.batches.get(t.rng).Reset(); return nil }},
	})
}

// recordShared records a random operation that cannot fault.
func recordShared(t *task, b *safe.Batch) error {
	d, m, o := t.device(), t.buffers.get(t.rng), t.buffers.get(t.rng)
	switch t.n(9) {
	case 0:
		return safe.BatchCopy(b, m, o)
	case 1:
		return safe.BatchCopy[float32](b, m, t.hosts.get(t.rng))
	case 2:
		return safe.BatchFill(b, m, 2)
	case 3:
		return safe.BatchFill(b, m, 0)
	case 4:
		return b.Record(t.events.get(t.rng))
	case 5:
		return b.WaitEvent(t.events.get(t.rng))
	case 6:
		return b.LaunchGraph(t.execs.get(t.rng))
	case 7:
		return b.LaunchHostFunc(func() {})
	}
	return b.Launch(d.fill, perValue(size), safe.Val(uint32(m.Len())), safe.Val(float32(1)), m.Arg())
}

func setShared(t *task) error {
	b, m := t.batches.get(t.rng), t.buffers.get(t.rng)
	n := t.n(b.Len())
	switch t.n(3) {
	case 0:
		return safe.SetBatchCopy(b, n, m, t.buffers.get(t.rng))
	case 1:
		return safe.SetBatchFill(b, n, m, 4)
	}
	return b.SetLaunch(n, t.device().nothing, one)
}

// batch submits acts as a Batch, several times with changes in between.
func (o *own) batch() error {
	acts := o.acts(6)
	b, err := safe.NewBatch(o.dev.x)
	if err != nil {
		return err
	}
	for i := range acts {
		if err := acts[i].record(o, b); err != nil {
			return o.strict(err)
		}
	}
	for range 1 + o.n(3) {
		if err := o.strict(b.Submit(o.streams[0])); err != nil {
			return err
		}
		for _, a := range acts {
			if o.capture != nil {
				o.capture.acts = append(o.capture.acts, a)
			} else {
				a.apply(o)
			}
		}
		i := o.n(len(acts))
		if err := acts[i].change(o, b, i); err != nil {
			return o.strict(err)
		}
	}
	if o.yes(30) {
		b.Reset()
	}
	return nil
}

// record records the act in a batch.
func (a *act) record(o *own, b *safe.Batch) error {
	switch a.what {
	case "host":
		return b.LaunchHostFunc(o.counted())
	case "kernel", "add", "saxpy":
		k, args, err := a.launch(o)
		return errors.Join(err, b.Launch(k, perValue(length), args...))
	case "read", "fillhost":
		to, err := o.back.host.Slice(a.lo, a.hi)
		if err != nil {
			return err
		}
		if a.what == "fillhost" {
			return safe.BatchFill(b, to, a.v)
		}
		from, err := a.part(a.a)
		return errors.Join(err, safe.BatchCopy[float32](b, to, from))
	}
	to, err := a.part(a.to)
	if err != nil {
		return err
	}
	switch a.what {
	case "fill":
		return safe.BatchFill(b, to, a.v)
	case "zero":
		return safe.BatchFill(b, to, 0)
	case "upload":
		from, err := o.pattern.host.Slice(a.lo, a.hi)
		return errors.Join(err, safe.BatchCopy[float32](b, to, from))
	}
	from, err := a.part(a.a)
	return errors.Join(err, safe.BatchCopy(b, to, from))
}

// change changes operation n of a batch, which is the act, if there is another value for it.
func (a *act) change(o *own, b *safe.Batch, n int) error {
	v := *a
	v.to = o.buffers[o.n(len(o.buffers))]
	to, err := v.part(v.to)
	if err != nil {
		return err
	}
	switch a.what {
	case "fill":
		v.v = float32(o.n(100))
		err = safe.SetBatchFill(b, n, to, v.v)
	case "kernel", "saxpy", "add":
		v.what, v.v = "kernel", float32(o.n(100))
		k, args, failed := v.launch(o)
		err = errors.Join(failed, b.SetLaunch(n, k, perValue(length), args...))
	case "copy":
		if v.to == v.a {
			return nil
		}
		from, failed := v.part(v.a)
		err = errors.Join(failed, safe.SetBatchCopy(b, n, to, from))
	default:
		return nil
	}
	if err == nil {
		*a = v
	}
	return err
}
