package safe

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Attributes of a stream affect work that is enqueued later, through every Stream of the
// same CUDA stream: those of [LegacyStream] affect all users of it. A launch attribute
// overrides the stream's. Capturing streams accept attributes too, and captured work
// retains them.

// Attribute returns an attribute of the stream, such as its memory synchronization domain:
//
//	v, err := s.Attribute(driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)
//	domain := *v.MemSyncDomain()
//
// It returns driver.CUDA_ERROR_INVALID_VALUE if streams of this driver do not have the attribute,
// and [ErrNotSupported] for those that need a newer one. The synchronization policy is negative
// until one is set. Source: cuStreamGetAttribute.
func (s *Stream) Attribute(id driver.CUstreamAttrID) (driver.CUstreamAttrValue, error) {
	return s.attribute("Stream.Attribute", id)
}

// SetAttribute sets an attribute of the stream, such as the policy by which [Stream.SynchronizeBlocking] waits. It
// affects work that is enqueued later, through every [Stream] of the same CUDA stream:
//
//	var v driver.CUstreamAttrValue
//	*v.SyncPolicy() = driver.CU_SYNC_POLICY_BLOCKING_SYNC
//	err := s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, v)
//
// The errors are those of [Stream.Attribute]. Source: cuStreamSetAttribute.
func (s *Stream) SetAttribute(id driver.CUstreamAttrID, v driver.CUstreamAttrValue) error {
	const op = "Stream.SetAttribute"
	return s.with(op, func(c *streamCore) error { return c.put(op, id, v) })
}

func (s *Stream) attribute(op string, id driver.CUstreamAttrID) (v driver.CUstreamAttrValue, err error) {
	err = s.with(op, func(c *streamCore) error { return c.fetch(op, id, &v) })
	return v, err
}

// fetch reads an attribute. The context must be current.
func (s *streamCore) fetch(op string, id driver.CUstreamAttrID, v *driver.CUstreamAttrValue) error {
	if err := hasAttribute(op, id); err != nil {
		return err
	}
	return driver.CuStreamGetAttribute(s.raw, id, v)
}

// put sets an attribute. The context must be current.
func (s *streamCore) put(op string, id driver.CUstreamAttrID, v driver.CUstreamAttrValue) error {
	if err := hasAttribute(op, id); err != nil {
		return err
	}
	s.reveal()
	return driver.CuStreamSetAttribute(s.raw, id, &v)
}

// with calls f while the stream is admitted for a call and its context is current.
func (s *Stream) with(op string, f func(c *streamCore) error) error {
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	a := admission{op: op, stream: c}
	if err := a.admit(); err != nil {
		return err
	}
	defer a.leave(true)
	if err := c.unseen(op); err != nil {
		return err
	}
	return wrap(op, c.ctx.withCurrent(func() error { return f(c) }))
}

// unseen returns an error if a call on the stream would invalidate captures that this package
// did not begin: on the legacy stream, even a call that reads an attribute invalidates those of
// blocking streams. The stream is admitted for a call.
func (s *streamCore) unseen(op string) error {
	if s.legacy() && s.capturing() {
		return refuse(op, ErrCapturing, "a blocking stream of the context is capturing")
	}
	return nil
}

// hasAttribute returns an error if the driver is too old for the stream attribute.
func hasAttribute(op string, id driver.CUstreamAttrID) error {
	switch id {
	case driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	default:
		return nil
	}
	const since = 12000
	if v := rt.Version; v < since {
		return refuse(op, ErrNotSupported, "stream attribute %v needs a driver for CUDA 12.0; this one is for %d.%d", id, v/1000, v%1000/10)
	}
	return nil
}

// CopyAttributes sets all attributes of the stream to those of from. It does not change
// whether the stream is blocking. It returns [ErrContextMismatch] if the streams belong
// to different contexts or green contexts, and [ErrCapturing] if they take part in different
// captures.
// Source: cuStreamCopyAttributes.
func (s *Stream) CopyAttributes(from *Stream) error {
	const op = "Stream.CopyAttributes"
	f, err := from.acquire(op)
	if err != nil {
		return err
	}
	defer f.Release()
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if !f.ctx.same(c.ctx) {
		return refuse(op, ErrContextMismatch, "the streams belong to contexts of %v and %v", f.ctx.device, c.ctx.device)
	}
	if f.green != c.green || f.onGreen != c.onGreen {
		return refuse(op, ErrContextMismatch, "the streams do not belong to the same green context")
	}
	if f.queue == c.queue {
		return nil
	}
	for _, e := range inOrder([]*streamCore{c, f}) {
		if err := lock(op, &e.mu); err != nil {
			return err
		}
		defer e.mu.Unlock()
	}
	if c.legacy() || f.legacy() { // with both locked, as a capture that begins waits for who has entered
		if !c.ctx.shared.legacy.Enter() {
			return refuse(op, ErrCapturing, "a blocking stream of the context is capturing")
		}
		defer c.ctx.shared.legacy.Leave()
	}
	if err := errors.Join(c.unseen(op), f.unseen(op)); err != nil {
		return err
	}
	capture, other := c.capture.Load(), f.capture.Load()
	if capture == nil {
		capture = other
	} else if other != nil && other != capture {
		return refuse(op, ErrCapturing, "the streams take part in different captures")
	}
	if capture != nil {
		if err := lock(op, capture.graph.mu); err != nil {
			return err
		}
		defer capture.graph.mu.Unlock()
		if capture.endless.Load() {
			return capture.refuses(op, "")
		}
	}
	c.reveal()
	return wrap(op, c.ctx.withCurrent(func() error { return driver.CuStreamCopyAttributes(c.raw, f.raw) }))
}

// priorityNow asks the driver for the priority, which code outside this package may
// have set too.
func (s *Stream) priorityNow() int {
	const op = "Stream.Priority"
	v, err := s.attribute(op, driver.CU_LAUNCH_ATTRIBUTE_PRIORITY)
	if err != nil { // for instance a driver before CUDA 12.0
		return s.core.priority
	}
	return int(*v.Priority())
}
