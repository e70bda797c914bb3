package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Attribute is any attribute of the pool, such as one that has no method of its own
// here. One that the driver does not know is driver.CUDA_ERROR_INVALID_VALUE. Source:
// cuMemPoolGetAttribute.
func (p *Pool) Attribute(id driver.CUmemPool_attribute) (uint64, error) {
	return p.attribute("Pool.Attribute", id)
}

// SetAttribute sets any attribute of the pool that can be set.
// Source: cuMemPoolSetAttribute.
func (p *Pool) SetAttribute(id driver.CUmemPool_attribute, v uint64) error {
	return p.setAttribute("Pool.SetAttribute", id, v)
}

func (p *Pool) attribute(op string, id driver.CUmemPool_attribute) (v uint64, err error) {
	err = p.do(op, func(c *poolCore) error { return c.fetch(id, &v) })
	return v, err
}

// fetch asks for an attribute. Some have 32 bits, which are the low ones of v. The
// context is current.
func (p *poolCore) fetch(id driver.CUmemPool_attribute, v *uint64) error {
	return driver.CuMemPoolGetAttribute(p.raw, id, unsafe.Pointer(v))
}

func (p *Pool) setAttribute(op string, id driver.CUmemPool_attribute, v uint64) error {
	return p.do(op, func(c *poolCore) error { return c.put(id, v) })
}

// put sets an attribute. The context is current.
func (p *poolCore) put(id driver.CUmemPool_attribute, v uint64) error {
	return driver.CuMemPoolSetAttribute(p.raw, id, unsafe.Pointer(&v))
}

// ReleaseThreshold is how many bytes the pool keeps for later allocations when it
// could give them back to the system, which it does when the program waits for the
// device: 0 as long as nobody has set it. Source: cuMemPoolGetAttribute.
func (p *Pool) ReleaseThreshold() (uint64, error) {
	return p.attribute("Pool.ReleaseThreshold", driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
}

// SetReleaseThreshold sets [Pool.ReleaseThreshold]. A program that allocates again and
// again is faster with a high one; math.MaxUint64 keeps everything.
// Source: cuMemPoolSetAttribute.
func (p *Pool) SetReleaseThreshold(bytes uint64) error {
	return p.setAttribute("Pool.SetReleaseThreshold", driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
}

// ReusePolicy says when memory that one stream has freed may go to another one. All of
// it is true unless somebody has set something else.
type ReusePolicy struct {
	// FollowEventDependencies: when events put the other stream behind the release.
	FollowEventDependencies bool
	// Opportunistic: when the release happens to be done already. What comes from where
	// then differs from run to run.
	Opportunistic bool
	// InternalDependencies: the pool may have the other stream wait for the release.
	InternalDependencies bool
}

type reuseRule struct {
	value *bool
	id    driver.CUmemPool_attribute
}

func (r *ReusePolicy) rules() []reuseRule {
	return []reuseRule{
		{&r.FollowEventDependencies, driver.CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES},
		{&r.Opportunistic, driver.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC},
		{&r.InternalDependencies, driver.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES},
	}
}

// ReusePolicy is the pool's. Source: cuMemPoolGetAttribute.
func (p *Pool) ReusePolicy() (ReusePolicy, error) {
	var r ReusePolicy
	err := p.do("Pool.ReusePolicy", func(c *poolCore) error {
		for _, rule := range r.rules() {
			var v uint64
			if err := c.fetch(rule.id, &v); err != nil {
				return err
			}
			*rule.value = v != 0
		}
		return nil
	})
	return r, err
}

// SetReusePolicy sets all of [Pool.ReusePolicy], for allocations made from now on.
// Source: cuMemPoolSetAttribute.
func (p *Pool) SetReusePolicy(r ReusePolicy) error {
	return p.do("Pool.SetReusePolicy", func(c *poolCore) error {
		for _, rule := range r.rules() {
			var v uint64
			if *rule.value {
				v = 1
			}
			if err := c.put(rule.id, v); err != nil {
				return err
			}
		}
		return nil
	})
}

// PoolUsage is how much memory a pool has, in bytes.
type PoolUsage struct {
	Reserved     uint64 // of the system
	ReservedPeak uint64 // the most of it since [Pool.ResetPeaks]
	Used         uint64 // by buffers
	UsedPeak     uint64 // the most of it since [Pool.ResetPeaks]
}

// Usage is how much memory the pool has just now. A buffer is used until the host
// has noticed that the device has reached its release.
// Source: cuMemPoolGetAttribute.
func (p *Pool) Usage() (PoolUsage, error) {
	var u PoolUsage
	err := p.do("Pool.Usage", func(c *poolCore) error {
		for _, a := range []struct {
			value *uint64
			id    driver.CUmemPool_attribute
		}{
			{&u.Reserved, driver.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT},
			{&u.ReservedPeak, driver.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH},
			{&u.Used, driver.CU_MEMPOOL_ATTR_USED_MEM_CURRENT},
			{&u.UsedPeak, driver.CU_MEMPOOL_ATTR_USED_MEM_HIGH},
		} {
			if err := c.fetch(a.id, a.value); err != nil {
				return err
			}
		}
		return nil
	})
	return u, err
}

// ResetPeaks has the high-water marks of [Pool.Usage] begin anew.
// Source: cuMemPoolSetAttribute.
func (p *Pool) ResetPeaks() error {
	return p.do("Pool.ResetPeaks", func(c *poolCore) error {
		if err := c.put(driver.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0); err != nil {
			return err
		}
		return c.put(driver.CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
	})
}

// PoolProperties are what a pool was made with.
type PoolProperties struct {
	MaxSize     uint64 // bytes, 0 for no limit
	HandleTypes driver.CUmemAllocationHandleType
	Location    driver.CUmemLocation // zero for managed memory that has no preference
	Managed     bool
	Decompress  bool // hardware can decompress into it
	// LocalityDomain is the part of the device that the memory is kept in, -1 for all
	// of it, and where the driver is older than CUDA 13.4.
	LocalityDomain int
}

// Properties are what the pool was made with. They need a driver of CUDA 13.2, else the
// error is [ErrNotSupported]. Source: cuMemPoolGetAttribute.
func (p *Pool) Properties() (PoolProperties, error) {
	const op = "Pool.Properties"
	o := PoolProperties{LocalityDomain: -1}
	err := p.do(op, func(c *poolCore) error {
		if err := newEnough(op, 13020, "telling what a pool was made with"); err != nil {
			return err
		}
		return c.describe(&o)
	})
	return o, err
}

// describe asks for the properties. The context is current.
func (p *poolCore) describe(o *PoolProperties) error {
	var kind, types, place, id, decompress uint64
	for _, a := range []struct {
		value *uint64
		id    driver.CUmemPool_attribute
	}{
		{&o.MaxSize, driver.CU_MEMPOOL_ATTR_MAX_POOL_SIZE},
		{&kind, driver.CU_MEMPOOL_ATTR_ALLOCATION_TYPE},
		{&types, driver.CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES},
		{&place, driver.CU_MEMPOOL_ATTR_LOCATION_TYPE},
		{&id, driver.CU_MEMPOOL_ATTR_LOCATION_ID},
		{&decompress, driver.CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED},
	} {
		if err := p.fetch(a.id, a.value); err != nil {
			return err
		}
	}
	o.Managed = driver.CUmemAllocationType(kind) == driver.CU_MEM_ALLOCATION_TYPE_MANAGED
	o.HandleTypes = driver.CUmemAllocationHandleType(types)
	o.Location.Type, *o.Location.Id() = driver.CUmemLocationType(place), int32(id)
	o.Decompress = decompress != 0
	if rt.Version < 13040 {
		return nil
	}
	var domain uint64
	err := p.fetch(driver.CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID, &domain)
	o.LocalityDomain = int(int32(domain))
	return err
}
