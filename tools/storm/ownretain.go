//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// retention is memory that was closed and is kept by safe.Retain. It has the values of the
// pattern.
type retention struct {
	address driver.CUdeviceptr
	release func()
}

func init() {
	add("ownretain", []kind{
		{name: "own.retain", weight: 4, run: func(t *task) error { return t.own.retain() }},
		{name: "own.release", weight: 4, run: func(t *task) error { return t.own.release() }},
	})
}

// retain keeps memory and closes or drops it.
func (o *own) retain() error {
	if o.capture != nil || len(o.retained) == 8 {
		return nil
	}
	b, err := o.memory()
	if err != nil || b == nil {
		return o.strict(err)
	}
	r := retention{address: b.Raw()}
	err = b.CopyFromHostAsync(o.streams[0], o.pattern.host)
	if err == nil {
		r.release, err = safe.Retain(b.Arg())
	}
	if err != nil {
		return o.strict(errors.Join(err, b.Close()))
	}
	o.retained = append(o.retained, r)
	if o.yes(o.profile.drops) {
		return nil
	}
	if err := b.Close(); err != nil {
		return o.strict(err)
	}
	if _, err := safe.Retain(b.Arg()); !errors.Is(err, safe.ErrClosed) {
		return failf(wrong, "Retain of closed memory: %v", err)
	}
	return nil
}

// release copies retained memory to a buffer, whose values are checked later, and gives the
// memory back.
func (o *own) release() error {
	if o.capture != nil || len(o.retained) == 0 {
		return nil
	}
	i, v := o.n(len(o.retained)), o.buffers[o.n(len(o.buffers))]
	r, s, to := o.retained[i], o.streams[0], v.buffer.Raw()
	err := s.EnqueueRaw(func(raw driver.CUstream) error {
		return driver.CuMemcpyDtoDAsync(to, r.address, v.buffer.Size(), raw)
	}, v.buffer.Arg())
	if err == nil {
		copy(v.want, o.pattern.want)
		err = s.Synchronize() // Retain orders nothing
	}
	if err != nil {
		return o.strict(err)
	}
	o.retained[i] = o.retained[len(o.retained)-1]
	o.retained = o.retained[:len(o.retained)-1]
	r.release()
	if o.yes(20) {
		r.release() // which does nothing
	}
	return nil
}
