//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/safe"
)

// insert adds to the capture what no work on a stream can express: a child graph, a
// conditional node, or memory.
func (o *own) insert() error {
	c := o.capture
	if c == nil {
		return nil
	}
	var acts []act
	var err error
	switch o.n(3) {
	case 0:
		acts, err = o.insertChild()
	case 1:
		if c.has == "memory" || o.dev.condition == nil {
			return nil
		}
		c.has = "conditions"
		acts, err = o.insertIf()
	default:
		if c.has == "conditions" || o.pool == nil {
			return nil
		}
		c.has = "memory"
		acts, err = o.insertMemory()
	}
	if err == nil {
		c.acts = append(c.acts, acts...)
	}
	return o.strict(err)
}

func (o *own) insertChild() ([]act, error) {
	inner, err := o.chain(o.acts(3))
	if err != nil {
		return nil, err
	}
	_, err = o.streams[0].AddNode(safe.ChildGraphNode(inner.graph))
	return inner.acts, errors.Join(err, inner.graph.Close())
}

// insertIf adds a body that runs once or not at all. It is filled by hand or by a capture.
func (o *own) insertIf() ([]act, error) {
	times, acts := o.n(2), o.deviceActs(3)
	c, err := o.streams[0].NewCondition(safe.ConditionOptions{Assign: true, Default: uint32(times)})
	if err != nil {
		return nil, err
	}
	body, err := o.streams[0].AddIf(c)
	if err != nil {
		return nil, err
	}
	if o.yes(50) {
		_, err = o.addChain(body, acts)
		return acts[:times*len(acts)], err
	}
	s, err := safe.NewStreamWith(o.dev.x, safe.StreamOptions{NonBlocking: o.yes(50)})
	if err != nil {
		return nil, err
	}
	err = s.CaptureTo(body, safe.CaptureToOptions{Mode: modes[o.n(3)]}, func() error {
		for _, a := range acts {
			if err := o.enqueue(s, a); err != nil {
				return err
			}
		}
		return nil
	})
	return acts[:times*len(acts)], errors.Join(err, s.Close())
}

// insertMemory computes in memory that the graph allocates, and frees it in a random way.
func (o *own) insertMemory() ([]act, error) {
	s, a := o.streams[0], act{what: "fill", to: o.buffers[o.n(len(o.buffers))], hi: length, v: float32(o.n(100))}
	room, err := safe.NewBufferAsync[float32](s, length)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(room.FillAsync(s, a.v), a.to.buffer.CopyFromAsync(s, room)); err != nil {
		return nil, err
	}
	switch o.n(4) {
	case 0:
		err = room.Close()
	case 1:
		err = room.FreeAsync(s)
	case 2:
		_, err = s.AddNode(safe.FreeNode(room))
	}
	return []act{a}, err
}
