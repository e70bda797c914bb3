//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"github.com/cudabind/cudabind/cuda/safe"
)

// An act is an operation whose effect the model knows. It can be enqueued on a stream, captured,
// or added to a graph as a node.
type act struct {
	what    string
	to      *values
	a, b    *values
	lo, hi  int // of to
	v       float32
	raw     int       // enqueued by raw calls: 1 admits one stream, 2 both
	with    *resource // that raw calls use, nil for none
	library string    // what a library does, "" for package safe
}

// act returns a random act.
func (o *own) act() act {
	a := act{
		what: []string{"fill", "zero", "kernel", "add", "saxpy", "copy", "upload", "read", "host", "fillhost"}[o.n(10)],
		to:   o.buffers[o.n(len(o.buffers))], a: o.buffers[o.n(len(o.buffers))], b: o.buffers[o.n(len(o.buffers))],
		hi: length, v: float32(o.n(100)),
	}
	if o.yes(50) {
		a.lo = o.n(length - 1)
		a.hi = a.lo + 1 + o.n(length-a.lo)
	}
	if a.what == "saxpy" { // of such factors the products are exact, however they are computed
		a.v = []float32{-1, 1, 2}[o.n(3)]
	}
	for a.what == "copy" && a.to == a.a { // no overlaps
		a.a = o.buffers[o.n(len(o.buffers))]
	}
	return a
}

// acts returns random acts.
func (o *own) acts(most int) []act {
	all := make([]act, 1+o.n(most))
	for i := range all {
		all[i] = o.act()
	}
	return all
}

// deviceActs returns random acts that a conditional body may contain: no host functions.
func (o *own) deviceActs(most int) []act {
	all := o.acts(most)
	for i := range all {
		if all[i].what == "host" {
			all[i].what = "kernel"
		}
	}
	return all
}

// apply applies the act to the model.
func (a *act) apply(o *own) {
	to := a.to.want[a.lo:a.hi]
	switch a.what {
	case "fill", "kernel", "zero":
		v := a.v
		if a.what == "zero" {
			v = 0
		}
		for i := range to {
			to[i] = v
		}
	case "add":
		for i := range a.to.want {
			a.to.want[i] = a.a.want[i] + a.b.want[i]
		}
	case "saxpy":
		for i := range to {
			to[i] += a.v * a.a.want[a.lo+i]
		}
	case "copy":
		copy(to, a.a.want[a.lo:a.hi])
	case "upload":
		copy(to, o.pattern.want[a.lo:a.hi])
	case "read":
		copy(o.back.want[a.lo:a.hi], a.a.want[a.lo:a.hi])
	case "fillhost":
		for i := a.lo; i < a.hi; i++ {
			o.back.want[i] = a.v
		}
	case "host":
		o.wantCalls.Add(1)
	default:
		a.applyLibrary()
	}
}

// part is values lo to hi of a buffer. It retains the memory, so the buffer may be dropped.
func (a *act) part(v *values) (*safe.Buffer[float32], error) { return v.buffer.Slice(a.lo, a.hi) }

// launch is a kernel with its arguments.
func (a *act) launch(o *own) (*safe.Kernel, []safe.Arg, error) {
	n := safe.Val(uint32(a.hi - a.lo))
	to, err := a.part(a.to)
	if err != nil {
		return nil, nil, err
	}
	switch a.what {
	case "kernel":
		return o.dev.fill, []safe.Arg{n, safe.Val(a.v), to.Arg()}, nil
	case "saxpy":
		from, err := a.part(a.a)
		return o.dev.saxpy, []safe.Arg{n, safe.Val(a.v), from.Arg(), to.Arg()}, err
	}
	return o.dev.add, []safe.Arg{a.a.buffer.Arg(), a.b.buffer.Arg(), a.to.buffer.Arg(), safe.Val(uint32(length))}, nil
}

// enqueue enqueues the act on a stream.
func (a *act) enqueue(o *own, s *safe.Stream) error {
	if a.raw > 0 {
		return a.enqueueRaw(o, s)
	}
	if a.library != "" {
		return a.enqueueLibrary(o, s)
	}
	switch a.what {
	case "host":
		_, err := s.LaunchHostFunc(o.counted())
		return err
	case "read":
		from, err := a.part(a.a)
		if err != nil {
			return err
		}
		to, err := o.back.host.Slice(a.lo, a.hi)
		if err != nil {
			return err
		}
		return from.CopyToHostAsync(s, to)
	case "fillhost":
		to, err := o.back.host.Slice(a.lo, a.hi)
		if err != nil {
			return err
		}
		return to.FillAsync(s, a.v)
	case "kernel", "add", "saxpy":
		k, args, err := a.launch(o)
		if err != nil {
			return err
		}
		return k.Launch(s, perValue(length), args...)
	}
	to, err := a.part(a.to)
	if err != nil {
		return err
	}
	switch a.what {
	case "fill":
		return to.FillAsync(s, a.v)
	case "zero":
		return to.FillAsync(s, 0)
	case "upload":
		from, err := o.pattern.host.Slice(a.lo, a.hi)
		if err != nil {
			return err
		}
		return to.CopyFromHostAsync(s, from)
	}
	from, err := a.part(a.a)
	if err != nil {
		return err
	}
	return to.CopyFromAsync(s, from)
}

// work returns the act as the parameters of a node.
func (a *act) work(o *own) (safe.NodeParams, error) {
	switch a.what {
	case "host":
		return safe.HostFuncNode(o.counted()), nil
	case "read":
		from, err := a.part(a.a)
		if err != nil {
			return safe.NodeParams{}, err
		}
		to, err := o.back.host.Slice(a.lo, a.hi)
		return safe.CopyNode[float32](to, from), err
	case "fillhost":
		to, err := o.back.host.Slice(a.lo, a.hi)
		return safe.FillNode[float32](to, a.v), err
	case "kernel", "add", "saxpy":
		k, args, err := a.launch(o)
		return safe.KernelNode(k, perValue(length), args...), err
	}
	to, err := a.part(a.to)
	if err != nil {
		return safe.NodeParams{}, err
	}
	switch a.what {
	case "fill":
		return safe.FillNode(to, a.v), nil
	case "zero":
		return safe.FillNode(to, 0), nil
	case "upload":
		from, err := o.pattern.host.Slice(a.lo, a.hi)
		return safe.CopyNode[float32](to, from), err
	}
	from, err := a.part(a.a)
	return safe.CopyNode[float32](to, from), err
}

func perValue(n int) safe.LaunchConfig {
	return safe.LaunchConfig{Grid: safe.Blocks(n, 128), Block: safe.Dim{X: 128}}
}

var one = safe.LaunchConfig{Grid: safe.Dim{X: 1}, Block: safe.Dim{X: 1}}

// counted returns a host function that counts its calls.
func (o *own) counted() func() {
	calls := o.calls
	return func() { calls.Add(1) }
}
