package safe

import (
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Attribute returns any attribute of the pool, such as one that has no method of its own.
// It returns driver.CUDA_ERROR_INVALID_VALUE if the driver does not know the attribute.
// Source: cuMemPoolGetAttribute.
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

// fetch gets an attribute with the context current. An attribute of 32 bits sets the low
// half of v.
func (p *poolCore) fetch(id driver.CUmemPool_attribute, v *uint64) error {
	return driver.CuMemPoolGetAttribute(p.raw, id, unsafe.Pointer(v))
}

func (p *Pool) setAttribute(op string, id driver.CUmemPool_attribute, v uint64) error {
	return p.do(op, func(c *poolCore) error { return c.put(id, v) })
}

// put sets an attribute with the context current.
func (p *poolCore) put(id driver.CUmemPool_attribute, v uint64) error {
	return driver.CuMemPoolSetAttribute(p.raw, id, unsafe.Pointer(&v))
}

// ReleaseThreshold returns how many bytes of unused memory the pool retains when the program
// synchronizes with the device. The pool returns more unused memory than that to the system. The
// default is 0. Source: cuMemPoolGetAttribute.
func (p *Pool) ReleaseThreshold() (uint64, error) {
	return p.attribute("Pool.ReleaseThreshold", driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
}

// SetReleaseThreshold sets [Pool.ReleaseThreshold] in bytes. A high threshold makes
// repeated allocations faster; math.MaxUint64 retains everything.
// Source: cuMemPoolSetAttribute.
func (p *Pool) SetReleaseThreshold(bytes uint64) error {
	return p.setAttribute("Pool.SetReleaseThreshold", driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
}

// ReusePolicy says when the pool may give memory that one stream has freed to another
// stream. All fields are true by default.
type ReusePolicy struct {
	// FollowEventDependencies reuses memory if the other stream has waited for an event
	// recorded after the release.
	FollowEventDependencies bool
	// Opportunistic reuses memory if the release happens to have completed. Which memory
	// an allocation gets then differs from run to run.
	Opportunistic bool
	// InternalDependencies lets the pool make the other stream wait for the release.
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

// ReusePolicy returns the pool's reuse policy.
// Source: cuMemPoolGetAttribute.
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

// SetReusePolicy sets [Pool.ReusePolicy] for later allocations.
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

// PoolUsage is the amount of memory of a pool, in bytes.
type PoolUsage struct {
	Reserved     uint64 // allocated from the system
	ReservedPeak uint64 // maximum of Reserved since [Pool.ResetPeaks]
	Used         uint64 // in use by Buffers
	UsedPeak     uint64 // maximum of Used since [Pool.ResetPeaks]
}

// Usage returns the amount of memory of the pool. A closed Buffer counts as used until
// its stream has reached the release and the host has noticed.
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

// ResetPeaks resets the peaks of [Pool.Usage] to the present values.
// Source: cuMemPoolSetAttribute.
func (p *Pool) ResetPeaks() error {
	return p.do("Pool.ResetPeaks", func(c *poolCore) error {
		if err := c.put(driver.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0); err != nil {
			return err
		}
		return c.put(driver.CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
	})
}

// PoolProperties are the properties that a pool was created with.
type PoolProperties struct {
	MaxSize     uint64 // in bytes, 0 for no limit
	HandleTypes driver.CUmemAllocationHandleType
	Location    Location // zero for managed memory without a preferred location
	Managed     bool
	Decompress  bool // hardware can decompress into it
	// LocalityDomain is the part of the device that the memory resides in. It is -1 for
	// the whole device, and on drivers older than CUDA 13.4.
	LocalityDomain int
}

// Properties returns the properties that the pool was created with. It returns
// [ErrNotSupported] on drivers older than CUDA 13.2.
// Source: cuMemPoolGetAttribute.
func (p *Pool) Properties() (PoolProperties, error) {
	const op = "Pool.Properties"
	o := PoolProperties{LocalityDomain: -1}
	err := p.do(op, func(c *poolCore) error {
		if err := needsDriver(op, 13020, "Pool.Properties"); err != nil {
			return err
		}
		return c.describe(&o)
	})
	return o, err
}

// describe gets the properties with the context current.
func (p *poolCore) describe(o *PoolProperties) error {
	var kind, types, location, id, decompress uint64
	for _, a := range []struct {
		value *uint64
		id    driver.CUmemPool_attribute
	}{
		{&o.MaxSize, driver.CU_MEMPOOL_ATTR_MAX_POOL_SIZE},
		{&kind, driver.CU_MEMPOOL_ATTR_ALLOCATION_TYPE},
		{&types, driver.CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES},
		{&location, driver.CU_MEMPOOL_ATTR_LOCATION_TYPE},
		{&id, driver.CU_MEMPOOL_ATTR_LOCATION_ID},
		{&decompress, driver.CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED},
	} {
		if err := p.fetch(a.id, a.value); err != nil {
			return err
		}
	}
	o.Managed = driver.CUmemAllocationType(kind) == driver.CU_MEM_ALLOCATION_TYPE_MANAGED
	o.HandleTypes = driver.CUmemAllocationHandleType(types)
	o.Location = Location{Type: driver.CUmemLocationType(location), ID: int(int32(id))}
	o.Decompress = decompress != 0
	if rt.Version < 13040 {
		return nil
	}
	var domain uint64
	err := p.fetch(driver.CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID, &domain)
	o.LocalityDomain = int(int32(domain))
	return err
}
