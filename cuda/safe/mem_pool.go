package safe

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Pool is a CUDA memory pool: the source of stream-ordered memory, see [NewBufferFrom].
// It retains freed memory for later allocations, up to a threshold, by default 0:
// driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD of [Pool.SetAttribute]. Every
// device has a [DefaultPool]. A pool of your own can have a maximum size, be shared with
// other processes, or hold host memory. Any number of goroutines may use a Pool at once.
//
// A closed Pool is destroyed once all Buffers from it are closed and the streams have released
// their memory. Buffers of [NewBufferAsync] do not retain the Pool: their memory stays valid, but
// launches on other devices may be refused, even if [Pool.SetAccess] gave these devices access.
type Pool struct {
	core    *poolCore
	cleanup lifetime.Cleanup
}

type poolCore struct {
	lifetime.Handle
	ctx      *contextCore
	raw      driver.CUmemoryPool
	owned    bool      // destroyed with the Pool
	of       *poolCore // the Pool of this package that a borrowed one retains, or nil
	imported bool
	onHost   bool
	managed  bool
	left     bool // progress of Destroy
	end      admit.Destruction
	lost     atomic.Bool // some memory could not be freed
	exported atomic.Bool // at least once

	mu      admit.Leaf                           // guards imports
	imports map[driver.CUdeviceptr]chan struct{} // Buffers of an imported pool; while one is being freed, closed after that
}

// PoolOptions are the options of [NewPoolWith]. The zero value is CUDA's default: unlimited
// memory of the context's device, not shared with other processes.
type PoolOptions struct {
	// MaxSize is the maximum size of the pool in bytes, which CUDA rounds up. 0 means
	// that the system sets the limit. It needs a driver for CUDA 12.2, and must be 0 with
	// Managed.
	MaxSize uint64
	// HandleTypes are the ways to share the pool with other processes: for [Pool.Export],
	// driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR. Host and managed memory cannot be
	// shared.
	HandleTypes driver.CUmemAllocationHandleType
	// Location is where the memory resides: the zero value is the context's device. It
	// may also be [HostLocation], from CUDA 13.0 on, or a [NUMALocation], from CUDA 12.2 on.
	// For managed memory it is the preferred location, and the zero value is none.
	Location Location
	// Managed makes the memory managed, as that of [NewManagedBuffer]. It needs a driver
	// of CUDA 13.0.
	Managed bool
}

// NewPool creates a pool of memory of the context's device. It returns [ErrNotSupported] if the device has no pools.
// Source: cuMemPoolCreate, and cuMemPoolDestroy when closed.
func NewPool(x *Context) (*Pool, error) { return NewPoolWith(x, PoolOptions{}) }

// NewPoolWith creates a pool with options: it may have a maximum size, other memory than the device's, or be shared
// with other processes. Kernels on the context's device can access the memory from the start. If it is host or managed
// memory, [Buffer.Data] gives the host access. NewPoolWith returns [ErrNotSupported] if the device or the driver lacks
// a feature that the options ask for, and [ErrInvalidArgument] if Location is another device. Source: cuMemPoolCreate,
// cuMemPoolSetAccess, and cuMemPoolDestroy when closed.
func NewPoolWith(x *Context, o PoolOptions) (*Pool, error) {
	const op = "NewPool"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	props, err := o.props(op, c.device)
	if err != nil {
		return nil, err
	}
	p := &poolCore{ctx: c, owned: true, managed: o.Managed}
	p.onHost = !p.managed && props.Location.Type != driver.CU_MEM_LOCATION_TYPE_DEVICE
	return p.make(op, func() error { return driver.CuMemPoolCreate(&p.raw, &props) })
}

// props returns the options as CUDA takes them.
func (o *PoolOptions) props(op string, d Device) (p driver.CUmemPoolProps, err error) {
	if err := o.Location.checkIfAny(op); err != nil {
		return p, err
	}
	p = driver.CUmemPoolProps{AllocType: driver.CU_MEM_ALLOCATION_TYPE_PINNED, HandleTypes: o.HandleTypes, Location: o.Location.raw(), MaxSize: o.MaxSize}
	needed := driver.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
	switch {
	case o.Managed:
		p.AllocType = driver.CU_MEM_ALLOCATION_TYPE_MANAGED
		err = needsDriver(op, 13000, "a pool of managed memory")
	case o.Location.Type == driver.CU_MEM_LOCATION_TYPE_NONE:
		p.Location = d.location()
	case o.Location.Type == driver.CU_MEM_LOCATION_TYPE_HOST:
		needed = driver.CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED
	case o.Location.Type == driver.CU_MEM_LOCATION_TYPE_HOST_NUMA:
		err = needsDriver(op, 12020, "a pool on a NUMA node")
	case o.Location.Type != driver.CU_MEM_LOCATION_TYPE_DEVICE:
		err = refuse(op, ErrInvalidArgument, "a pool cannot have a location of type %v", o.Location.Type)
	case p.Location != d.location():
		err = refuse(op, ErrInvalidArgument, "the location is %s, but the context is of %v", o.Location.text(), d)
	}
	if err == nil && o.MaxSize > 0 {
		err = needsDriver(op, 12020, "PoolOptions.MaxSize")
	}
	if err != nil {
		return p, err
	}
	if _, err := d.needs(op, needed); err != nil {
		return p, err
	}
	supported, err := d.known(driver.CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES)
	if err == nil && o.HandleTypes&^driver.CUmemAllocationHandleType(supported) != 0 {
		err = refuse(op, ErrNotSupported, "handle types %#x, but %v supports %#x", uint32(o.HandleTypes), d, supported)
	}
	return p, wrap(op, err)
}

// needsDriver refuses a feature that the driver is too old for.
func needsDriver(op string, version int, what string) error {
	if v := rt.Version; v < version {
		return refuse(op, ErrNotSupported, "%s needs a driver for CUDA %d.%d, but this one supports %d.%d", what, version/1000, version%1000/10, v/1000, v%1000/10)
	}
	return nil
}

// make calls create to make the pool, and gives the context's device access to it.
func (p *poolCore) make(op string, create func() error) (*Pool, error) {
	err := p.ctx.allocating(func() error {
		if err := create(); err != nil {
			return err
		}
		if p.managed { // all devices have access
			return nil
		}
		if err := p.grantAccess(); err != nil {
			return errors.Join(err, driver.CuMemPoolDestroy(p.raw))
		}
		return nil
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return p.adopt(op)
}

// pools lists the pools that this package created, by handle, so that CurrentPool can
// retain the one that is current. It is locked while a pool is destroyed.
var pools = struct {
	admit.Leaf // guards of
	of         map[driver.CUmemoryPool]*poolCore
}{of: map[driver.CUmemoryPool]*poolCore{}}

// adopt returns a Pool of a core. Its context is acquired.
func (p *poolCore) adopt(op string) (*Pool, error) {
	if err := p.Open(p, &p.ctx.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, p.Destroy(true)))
	}
	if p.owned {
		pools.Lock()
		pools.of[p.raw] = p
		pools.Unlock()
	}
	u := &Pool{core: p}
	u.cleanup.Watch(&p.Handle)
	return u, nil
}

// DefaultPool returns the default pool of the context's device, which the whole process
// shares. Closing it does not destroy anything. Its memory cannot be shared with other
// processes.
// Source: cuDeviceGetDefaultMemPool.
func DefaultPool(x *Context) (*Pool, error) {
	return borrowPool("DefaultPool", x, driver.CuDeviceGetDefaultMemPool)
}

// CurrentPool returns the pool that [NewBufferAsync] allocates from on the context's
// device. That is the default pool, unless [Pool.MakeCurrent] or cuDeviceSetMemPool chose
// another. Closing it does not destroy anything. A pool of this package stays alive until
// the result is closed; do not destroy a pool that other code has created before that.
// Source: cuDeviceGetMemPool.
func CurrentPool(x *Context) (*Pool, error) {
	return borrowPool("CurrentPool", x, driver.CuDeviceGetMemPool)
}

func borrowPool(op string, x *Context, get func(*driver.CUmemoryPool, driver.CUdevice) error) (*Pool, error) {
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	p := &poolCore{ctx: c}
	for {
		again, err := p.find(get)
		if err != nil {
			return nil, wrap(op, err)
		}
		if !again {
			return p.adopt(op)
		}
		time.Sleep(lifetime.Retry)
	}
}

// find asks for a pool of the device, and retains it if this package created it. It
// returns again if that pool is being destroyed, after which the device has another one.
func (p *poolCore) find(get func(*driver.CUmemoryPool, driver.CUdevice) error) (again bool, err error) {
	if err := lock("", &pools.Leaf); err != nil {
		return false, err
	}
	defer pools.Unlock()
	if err := p.ctx.withCurrent(func() error { return get(&p.raw, p.ctx.device.raw) }); err != nil {
		return false, err
	}
	of := pools.of[p.raw]
	if of == nil {
		return false, nil
	}
	if !of.TryRetain() {
		return true, p.ctx.withCurrent(func() error { of.makeDefaultCurrent(); return nil })
	}
	p.of = of
	return false, nil
}

func (p *poolCore) Kind() string { return "Pool" }

func (p *poolCore) Destroy(bool) error {
	if p.of != nil {
		p.of.Release()
	}
	if !p.owned {
		return nil
	}
	pools.Lock()
	defer pools.Unlock()
	if !p.drained() {
		return lifetime.ErrLater
	}
	err := p.drop("Pool.Close")
	if err != lifetime.ErrLater {
		delete(pools.of, p.raw)
	}
	return err
}

// drop destroys a pool that is drained, or returns lifetime.ErrLater. A reset of the
// context by other code has not destroyed it.
func (p *poolCore) drop(op string) error {
	return p.end.Try(&hostWaits, true, func() error {
		return p.ctx.releasing(op, func() error { return driver.CuMemPoolDestroy(p.raw) })
	})
}

// drained returns whether the driver has noticed that all memory of the pool was released,
// which it does when the host waits for the streams. Otherwise it would destroy the pool at
// a later wait, and crashes or hangs if other threads wait or use pools meanwhile.
func (p *poolCore) drained() bool {
	shared := p.ctx.shared
	if p.lost.Load() {
		return true
	}
	var reserved uint64
	trim := func() error {
		return errors.Join(driver.CuMemPoolTrimTo(p.raw, 0), p.fetch(driver.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved))
	}
	err := p.ctx.withCurrent(func() error {
		if !p.left { // for allocations that name no pool
			p.left = true
			p.makeDefaultCurrent()
		}
		if err := trim(); err != nil || reserved == 0 {
			return err
		}
		return errors.Join(shared.noticeReleases(), trim())
	})
	return err != nil || reserved == 0
}

// makeDefaultCurrent replaces the pool as the current one of its device, as its destruction
// would. The context is current.
func (p *poolCore) makeDefaultCurrent() {
	var now, first driver.CUmemoryPool
	d := p.ctx.device.raw
	if driver.CuDeviceGetMemPool(&now, d) == nil && now == p.raw && driver.CuDeviceGetDefaultMemPool(&first, d) == nil {
		_ = driver.CuDeviceSetMemPool(d, first)
	}
}

// acquire acquires the pool for a call.
func (p *Pool) acquire(op string) (*poolCore, error) {
	if p == nil || p.core == nil || !p.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return p.core, nil
}

// do acquires the pool and calls f with the context current.
func (p *Pool) do(op string, f func(*poolCore) error) error {
	c, err := p.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.ctx.withCurrent(func() error { return f(c) }))
}

// Close destroys the pool, once all its memory has been released. It does not wait for
// that. If the pool is the device's current one, the default pool becomes current again.
// Closing again does nothing.
// Source: cuMemPoolDestroy.
func (p *Pool) Close() error {
	if p == nil || p.core == nil {
		return nil
	}
	p.cleanup.Stop()
	return p.core.Close()
}

// Raw returns the handle for calls to package driver and to the runtime API, which share
// it: cudart13.CudaMemPool_t(p.Raw()). It returns 0 once the pool is closed. Keep p
// reachable while you use the handle.
func (p *Pool) Raw() driver.CUmemoryPool {
	if p == nil || p.core == nil || p.core.Closed() {
		return 0
	}
	return p.core.raw
}

// MakeCurrent makes p the current pool of the context's device, until it is closed or
// garbage collected. [NewBufferAsync] then allocates from it, and so does all other code
// of the process that allocates stream-ordered memory without naming a pool. It returns
// [ErrInvalidArgument] for an imported pool and for a pool of host or managed memory.
// Source: cuDeviceSetMemPool.
func (p *Pool) MakeCurrent() error {
	const op = "Pool.MakeCurrent"
	return p.do(op, func(c *poolCore) error {
		if c.onHost || c.managed || c.imported {
			return refuse(op, ErrInvalidArgument, "a pool of host or managed memory, or an imported one, cannot be the current pool of a device")
		}
		return driver.CuDeviceSetMemPool(c.ctx.device.raw, c.raw)
	})
}

// Trim returns unused memory to the system, but retains keep bytes. A Buffer counts as
// used until its stream has reached the release and the host has noticed, so wait for the
// stream first. If raw calls have freed memory on a borrowed stream, outside [EnqueueRaw],
// wait for that by cuStreamSynchronize. More than keep bytes may stay, because memory goes in
// large pieces.
// Source: cuMemPoolTrimTo.
func (p *Pool) Trim(keep uint64) error {
	return p.do("Pool.Trim", func(c *poolCore) error {
		return errors.Join(c.ctx.shared.noticeReleases(), driver.CuMemPoolTrimTo(c.raw, keep))
	})
}

// NewBufferFrom allocates memory for n values from a pool, in stream order: see [NewBufferAsync]. The host may access
// host or managed memory by [Buffer.Data] once it has waited for the stream. It returns [ErrContextMismatch] if pool
// and stream belong to different contexts, driver.CUDA_ERROR_OUT_OF_MEMORY if the pool's maximum size is reached,
// [ErrInvalidArgument] if the pool is imported, and [ErrCapturing] if s is capturing. Source: cuMemAllocFromPoolAsync,
// cuMemFreeAsync.
func NewBufferFrom[T any](p *Pool, s *Stream, n int) (*Buffer[T], error) {
	const op = "NewBufferFrom"
	size, c, err := valuesIn[T](op, p, n)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b := &block{size: size, pool: c, free: (*block).memFree}
	if err := b.allocateFrom(op, c, s); err != nil {
		return nil, err
	}
	return newBuffer[T](b, n), nil
}

func (b *block) allocateFrom(op string, p *poolCore, s *Stream) error {
	c, err := s.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	if !p.ctx.same(c.ctx) {
		return refuse(op, ErrContextMismatch, "the pool belongs to a context of %v, the stream to one of %v", p.ctx.device, c.ctx.device)
	}
	if p.imported {
		return refuse(op, ErrInvalidArgument, "an imported pool cannot allocate: call ImportBuffer for a buffer of the other process")
	}
	if p.onHost || p.managed {
		b.host = unsafe.Pointer(&ofNothing)
	}
	if err := b.allocateOn(c, p.ctx, p.raw); err != nil {
		return wrap(op, err)
	}
	if b.host != nil && b.size > 0 {
		b.host = hostPointer(b.address)
	}
	return nil
}

// String describes the pool for messages.
func (p *Pool) String() string {
	if p == nil || p.core == nil {
		return neverOpened("Pool")
	}
	return handleText("Pool", p.core.raw, p.core.ctx.device, p.core.Closed())
}

// Attribute returns an attribute of the pool, such as driver.CU_MEMPOOL_ATTR_USED_MEM_CURRENT in bytes. It returns
// driver.CUDA_ERROR_INVALID_VALUE if the driver does not know the attribute. Source: cuMemPoolGetAttribute.
func (p *Pool) Attribute(id driver.CUmemPool_attribute) (v uint64, err error) {
	err = p.do("Pool.Attribute", func(c *poolCore) error { return c.fetch(id, &v) })
	return v, err
}

// SetAttribute sets an attribute of the pool, such as driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD in bytes.  Source:
// cuMemPoolSetAttribute.
func (p *Pool) SetAttribute(id driver.CUmemPool_attribute, v uint64) error {
	return p.do("Pool.SetAttribute", func(c *poolCore) error { return c.put(id, v) })
}

// fetch gets an attribute with the context current. An attribute of 32 bits sets the low
// half of v.
func (p *poolCore) fetch(id driver.CUmemPool_attribute, v *uint64) error {
	return driver.CuMemPoolGetAttribute(p.raw, id, unsafe.Pointer(v))
}

// put sets an attribute with the context current.
func (p *poolCore) put(id driver.CUmemPool_attribute, v uint64) error {
	return driver.CuMemPoolSetAttribute(p.raw, id, unsafe.Pointer(&v))
}

// fullAccess is the right to read and to write.
const fullAccess = driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
