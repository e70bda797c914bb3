package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Attributes of a stream affect work that is put on it later, and every Stream
// that uses the same stream of CUDA's: those of [LegacyStream] are everybody's.
// A kernel that is launched with the same attribute goes by its own.
// Capturing streams take them too, and what they capture keeps them.

// Attribute is any attribute of the stream, such as one that has no method of
// its own here. One that streams of this driver do not have is
// driver.CUDA_ERROR_INVALID_VALUE. Source: cuStreamGetAttribute.
func (s *Stream) Attribute(id driver.CUstreamAttrID) (driver.CUstreamAttrValue, error) {
	return s.attribute("Stream.Attribute", id)
}

// SetAttribute sets any attribute of the stream. Source: cuStreamSetAttribute.
func (s *Stream) SetAttribute(id driver.CUstreamAttrID, v driver.CUstreamAttrValue) error {
	return s.setAttribute("Stream.SetAttribute", id, v)
}

func (s *Stream) attribute(op string, id driver.CUstreamAttrID) (v driver.CUstreamAttrValue, err error) {
	err = s.with(op, func(c *streamCore) error { return c.fetch(op, id, &v) })
	return v, err
}

// fetch asks for an attribute. The context is current.
func (s *streamCore) fetch(op string, id driver.CUstreamAttrID, v *driver.CUstreamAttrValue) error {
	if err := hasAttribute(op, id); err != nil {
		return err
	}
	return driver.CuStreamGetAttribute(s.raw, id, v)
}

func (s *Stream) setAttribute(op string, id driver.CUstreamAttrID, v driver.CUstreamAttrValue) error {
	return s.with(op, func(c *streamCore) error { return c.put(op, id, v) })
}

// put sets an attribute. The context is current.
func (s *streamCore) put(op string, id driver.CUstreamAttrID, v driver.CUstreamAttrValue) error {
	if err := hasAttribute(op, id); err != nil {
		return err
	}
	return driver.CuStreamSetAttribute(s.raw, id, &v)
}

// with calls f with the stream entered and its context current.
func (s *Stream) with(op string, f func(c *streamCore) error) error {
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	capture, err := c.enter(op)
	if err != nil {
		return err
	}
	defer c.leave(capture)
	return wrap(op, c.ctx.withCurrent(func() error { return f(c) }))
}

// hasAttribute refuses an attribute of streams that the driver is too old for.
func hasAttribute(op string, id driver.CUstreamAttrID) error {
	switch id {
	case driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	default:
		return nil
	}
	const since = 12000
	if v := rt.Version; v < since {
		return refuse(op, ErrNotSupported, "%v of a stream needs a driver of CUDA 12.0, and this one is of %d.%d", id, v/1000, v%1000/10)
	}
	return nil
}

// needs is an attribute of the device that is 0 where the device cannot do
// something, which is then refused.
func (d Device) needs(op string, id driver.CUdevice_attribute) (int, error) {
	n, err := d.known(id)
	if err == nil && n == 0 {
		err = refuse(op, ErrNotSupported, "%v of %v is 0", id, d)
	}
	return n, wrap(op, err)
}

// CopyAttributes gives the stream all attributes of another one, which must be
// of the same context, else the error is [ErrContextMismatch]. Whether a stream is
// blocking is none of them. Two streams of different captures return [ErrCapturing].
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
		return refuse(op, ErrContextMismatch, "one stream is of %v, the other of %v", f.ctx.device, c.ctx.device)
	}
	if f.queue == c.queue {
		return nil
	}
	first, second := c, f // by their handles, so that nobody waits for the other way round
	if first.raw > second.raw {
		first, second = second, first
	}
	for _, e := range []*streamCore{first, second} {
		if err := lock(op, e.mu.second()); err != nil {
			return err
		}
		defer e.mu.Unlock()
		if e.legacy() {
			if !e.ctx.shared.legacy.enter() {
				return refuse(op, ErrCapturing, "a blocking stream of the context captures")
			}
			defer e.ctx.shared.legacy.leave()
		}
	}
	capture, other := c.capture.Load(), f.capture.Load()
	if capture == nil {
		capture = other
	} else if other != nil && other != capture {
		return refuse(op, ErrCapturing, "both streams capture, and not the same")
	}
	if capture != nil {
		if err := lock(op, capture.graph.mu); err != nil {
			return err
		}
		defer capture.graph.mu.Unlock()
	}
	return wrap(op, c.ctx.withCurrent(func() error { return driver.CuStreamCopyAttributes(c.raw, f.raw) }))
}

// SynchronizationPolicy is how a thread waits in [Stream.SynchronizeBlocking],
// 0 as long as it was not set: then the context's flags decide. The other waits
// of this package hold no thread and do not go by it.
// Source: cuStreamGetAttribute.
func (s *Stream) SynchronizationPolicy() (driver.CUsynchronizationPolicy, error) {
	v, err := s.attribute("Stream.SynchronizationPolicy", driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
	policy := *v.SyncPolicy()
	if int32(policy) < 0 { // what the driver says where none was set
		policy = 0
	}
	return policy, err
}

// SetSynchronizationPolicy sets [Stream.SynchronizationPolicy]. There is no way
// back to none. Source: cuStreamSetAttribute.
func (s *Stream) SetSynchronizationPolicy(p driver.CUsynchronizationPolicy) error {
	var v driver.CUstreamAttrValue
	*v.SyncPolicy() = p
	return s.setAttribute("Stream.SetSynchronizationPolicy", driver.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, v)
}

// SetPriority changes the priority of the kernels that are put on the stream
// from now on: see [StreamOptions]. Outside of [Context.StreamPriorityRange] it is
// [ErrRange]. It needs a driver of CUDA 12.0; on older ones a stream keeps the
// priority it was made with. Source: cuStreamSetAttribute.
func (s *Stream) SetPriority(priority int) error {
	const op = "Stream.SetPriority"
	return s.with(op, func(c *streamCore) error {
		var least, greatest int32
		if err := driver.CuCtxGetStreamPriorityRange(&least, &greatest); err != nil {
			return err
		}
		if priority < int(greatest) || priority > int(least) {
			return refuse(op, ErrRange, "priority %d is not between %d (greatest) and %d (least)", priority, greatest, least)
		}
		var v driver.CUstreamAttrValue
		*v.Priority() = int32(priority)
		return c.put(op, driver.CU_LAUNCH_ATTRIBUTE_PRIORITY, v)
	})
}

// priorityNow is the priority that what is put on the stream now gets. It may
// have been set since the stream was made, also by other means.
func (s *Stream) priorityNow() int {
	const op = "Stream.Priority"
	v, err := s.attribute(op, driver.CU_LAUNCH_ATTRIBUTE_PRIORITY)
	if err != nil { // as on a driver where it cannot be set
		return s.core.priority
	}
	return int(*v.Priority())
}

// MemSyncDomain is the domain in which the memory fences of the stream's kernels
// count. It needs a driver of CUDA 12.0. Source: cuStreamGetAttribute.
func (s *Stream) MemSyncDomain() (driver.CUlaunchMemSyncDomain, error) {
	v, err := s.attribute("Stream.MemSyncDomain", driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)
	return *v.MemSyncDomain(), err
}

// SetMemSyncDomain sets [Stream.MemSyncDomain]: kernels that write to other
// devices, in the remote domain, then do not make the fences of others slow.
// Source: cuStreamSetAttribute.
func (s *Stream) SetMemSyncDomain(d driver.CUlaunchMemSyncDomain) error {
	var v driver.CUstreamAttrValue
	*v.MemSyncDomain() = d
	return s.setAttribute("Stream.SetMemSyncDomain", driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, v)
}

// MemSyncDomainMap says which of the device's domains the two of
// [Stream.MemSyncDomain] are. They are numbered from 0; the device has
// MemorySyncDomains of [Properties].
type MemSyncDomainMap struct{ Default, Remote uint8 }

// MemSyncDomainMap is the stream's map, 0 and 1 as long as none was set. It
// needs a driver of CUDA 12.0. Source: cuStreamGetAttribute.
func (s *Stream) MemSyncDomainMap() (MemSyncDomainMap, error) {
	v, err := s.attribute("Stream.MemSyncDomainMap", driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP)
	m := v.MemSyncDomainMap()
	return MemSyncDomainMap{Default: m.Default_, Remote: m.Remote}, err
}

// SetMemSyncDomainMap sets [Stream.MemSyncDomainMap]. A domain that the device
// does not have is [ErrRange]. Source: cuStreamSetAttribute.
func (s *Stream) SetMemSyncDomainMap(m MemSyncDomainMap) error {
	const op = "Stream.SetMemSyncDomainMap"
	return s.with(op, func(c *streamCore) error {
		n, err := c.ctx.device.known(driver.CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT)
		if err != nil {
			return err
		}
		if last := max(m.Default, m.Remote); int(last) >= n {
			return refuse(op, ErrRange, "domain %d, where the device has %d", last, n)
		}
		var v driver.CUstreamAttrValue
		*v.MemSyncDomainMap() = driver.CUlaunchMemSyncDomainMap{Default_: m.Default, Remote: m.Remote}
		return c.put(op, driver.CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, v)
	})
}

// AccessPolicyWindow is a range of a device's memory that the L2 cache treats in
// a way of its own. It changes how fast kernels are, never what they compute,
// and keeps no memory from being given back.
type AccessPolicyWindow struct {
	Address  driver.CUdeviceptr // as of [Buffer.Raw]
	Size     uint64             // bytes, as of [Buffer.Size]; 0 for no window
	HitRatio float32            // how much of it has the property Hit, from 0 to 1; the rest has Miss
	Hit      driver.CUaccessProperty
	Miss     driver.CUaccessProperty // not CU_ACCESS_PROPERTY_PERSISTING
}

// AccessPolicyWindow is the stream's window, without a size if it has none.
// Source: cuStreamGetAttribute.
func (s *Stream) AccessPolicyWindow() (AccessPolicyWindow, error) {
	v, err := s.attribute("Stream.AccessPolicyWindow", driver.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
	w := v.AccessPolicyWindow()
	address := *(*driver.CUdeviceptr)(unsafe.Pointer(&w.Base_ptr)) // no pointer for Go
	return AccessPolicyWindow{Address: address, Size: w.Num_bytes, HitRatio: w.HitRatio, Hit: w.HitProp, Miss: w.MissProp}, err
}

// SetAccessPolicyWindow sets the stream's window; the zero value takes it away.
// Lines that persist need a part of the cache that is set aside for them, by
// [Context.SetPersistingL2], and stay when the window is gone, until
// [Context.ResetPersistingL2].
//
// A window that is larger than the device's largest, MaxAccessPolicyWindow of
// [Properties], a ratio outside of 0 to 1, and lines that persist where nothing is
// set aside are [ErrRange]. Source: cuStreamSetAttribute.
func (s *Stream) SetAccessPolicyWindow(w AccessPolicyWindow) error {
	const op = "Stream.SetAccessPolicyWindow"
	return s.with(op, func(c *streamCore) error {
		if err := w.check(op, c.ctx.device); err != nil {
			return err
		}
		var v driver.CUstreamAttrValue
		raw := v.AccessPolicyWindow()
		*(*driver.CUdeviceptr)(unsafe.Pointer(&raw.Base_ptr)) = w.Address
		raw.Num_bytes, raw.HitRatio, raw.HitProp, raw.MissProp = w.Size, w.HitRatio, w.Hit, w.Miss
		return c.put(op, driver.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, v)
	})
}

// check refuses a window that the device cannot have. The context is current.
func (w *AccessPolicyWindow) check(op string, d Device) error {
	if w.Size == 0 {
		return nil
	}
	n, err := d.needs(op, driver.CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE)
	if err != nil {
		return err
	}
	if w.Size > uint64(n) {
		return refuse(op, ErrRange, "a window of %d bytes, and %v has at most %d", w.Size, d, n)
	}
	if !(w.HitRatio >= 0 && w.HitRatio <= 1) {
		return refuse(op, ErrRange, "a hit ratio of %v is not between 0 and 1", w.HitRatio)
	}
	if w.Miss == driver.CU_ACCESS_PROPERTY_PERSISTING {
		return refuse(op, ErrInvalidArgument, "misses cannot persist")
	}
	if most := driver.CU_ACCESS_PROPERTY_PERSISTING; w.Hit > most || w.Miss > most { // CUDA does not look
		return refuse(op, ErrInvalidArgument, "properties %d and %d: the largest is %d", w.Hit, w.Miss, most)
	}
	if w.Hit != driver.CU_ACCESS_PROPERTY_PERSISTING {
		return nil
	}
	var aside uint64
	if err := driver.CuCtxGetLimit(&aside, driver.CU_LIMIT_PERSISTING_L2_CACHE_SIZE); err != nil {
		return err
	}
	if aside == 0 {
		return refuse(op, ErrRange, "no part of the L2 cache is set aside for lines that persist: see Context.SetPersistingL2")
	}
	return nil
}

// PersistingL2 is how much of the L2 cache is set aside for lines that persist,
// in bytes. Source: cuCtxGetLimit.
func (x *Context) PersistingL2() (uint64, error) {
	var n uint64
	err := x.do("Context.PersistingL2", func() error {
		return driver.CuCtxGetLimit(&n, driver.CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
	})
	return n, err
}

// SetPersistingL2 sets so many bytes of the L2 cache aside for lines that
// persist, which all other data then has less of. The driver may round that;
// [Context.PersistingL2] tells. More than MaxPersistingL2 of [Properties] is
// [ErrRange], and a device that has none is [ErrNotSupported].
// Source: cuCtxSetLimit.
func (x *Context) SetPersistingL2(bytes uint64) error {
	const op = "Context.SetPersistingL2"
	return x.do(op, func() error {
		d := x.core.device
		n, err := d.needs(op, driver.CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE)
		if err != nil {
			return err
		}
		if bytes > uint64(n) {
			return refuse(op, ErrRange, "%d bytes, and %v can set aside %d", bytes, d, n)
		}
		return driver.CuCtxSetLimit(driver.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, bytes)
	})
}

// ResetPersistingL2 makes all lines of the L2 cache that persist normal ones, at
// once. Kernels that run make new ones: wait for them first.
// Source: cuCtxResetPersistingL2Cache.
func (x *Context) ResetPersistingL2() error {
	return x.do("Context.ResetPersistingL2", driver.CuCtxResetPersistingL2Cache)
}
