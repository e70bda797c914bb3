package safe

import (
	"errors"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Pool is where stream-ordered memory comes from, and goes back to: see
// [NewBufferFrom]. It keeps what it has of the system's memory for the next
// allocation, as far as [Pool.SetReleaseThreshold] says. A device has a
// [DefaultPool]; one of a program's own can have a limit, be shared with other
// processes, or be of host memory. Any number of goroutines may use a pool at once.
//
// A pool that is closed stays until the last buffer of [NewBufferFrom] and [ImportBuffer]
// from it is closed. Those of [NewBufferAsync] do not keep it: their memory stays, but
// kernels of other devices, which the pool let use it, may be refused then.
type Pool struct {
	core    *poolCore
	cleanup runtime.Cleanup
}

type poolCore struct {
	lifetime.Handle
	ctx      *contextCore
	raw      driver.CUmemoryPool
	owned    bool      // to be destroyed
	of       *poolCore // which a borrowed one keeps, where that is one of ours
	imported bool
	onHost   bool
	managed  bool

	mu      sync.Mutex
	imports map[driver.CUdeviceptr]struct{} // into an imported one
}

// PoolOptions are the choices at [NewPool]. The zero value is CUDA's default: memory
// of the context's device, for this process, as much as there is.
type PoolOptions struct {
	// MaxSize is how many bytes the pool may have, which CUDA rounds up; 0 leaves that
	// to the system. It needs a driver of CUDA 12.2, and must be 0 with Managed.
	MaxSize uint64
	// HandleTypes are the ways in which the pool can be shared with other processes:
	// driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR for [Pool.Export]. Host and
	// managed memory cannot be shared.
	HandleTypes driver.CUmemAllocationHandleType
	// Location is where the memory is: on the context's device if it is zero, on the
	// host (driver.CU_MEM_LOCATION_TYPE_HOST, from CUDA 13.0 on), or on a NUMA node of
	// the host (driver.CU_MEM_LOCATION_TYPE_HOST_NUMA, from CUDA 12.2 on). Managed
	// memory moves; this is where it would rather be, zero for nowhere.
	Location driver.CUmemLocation
	// Managed: the memory is as that of [NewManagedBuffer]. It needs a driver of CUDA 13.0.
	Managed bool
}

// NewPool makes a pool. [Buffer.Data] is for the host where the memory is the host's,
// or managed; host memory is opened to the context's device at once. What the device
// or the driver cannot do is [ErrNotSupported], and the memory of another device is
// [ErrInvalidArgument].
// Source: cuMemPoolCreate, cuMemPoolSetAccess, and cuMemPoolDestroy when closed.
func NewPool(x *Context, o PoolOptions) (*Pool, error) {
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

// props are the options as CUDA takes them.
func (o *PoolOptions) props(op string, d Device) (p driver.CUmemPoolProps, err error) {
	p = driver.CUmemPoolProps{AllocType: driver.CU_MEM_ALLOCATION_TYPE_PINNED, HandleTypes: o.HandleTypes, Location: o.Location, MaxSize: o.MaxSize}
	needed := driver.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
	switch {
	case o.Managed:
		p.AllocType = driver.CU_MEM_ALLOCATION_TYPE_MANAGED
		err = newEnough(op, 13000, "a pool of managed memory")
	case o.Location.Type == driver.CU_MEM_LOCATION_TYPE_NONE:
		p.Location = d.location()
	case o.Location.Type == driver.CU_MEM_LOCATION_TYPE_HOST:
		needed = driver.CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED
	case o.Location.Type == driver.CU_MEM_LOCATION_TYPE_HOST_NUMA:
		err = newEnough(op, 12020, "a pool on a NUMA node")
	case o.Location.Type != driver.CU_MEM_LOCATION_TYPE_DEVICE:
		err = refuse(op, ErrInvalidArgument, "a pool cannot be at a location of type %v", o.Location.Type)
	case *p.Location.Id() != int32(d.raw):
		err = refuse(op, ErrInvalidArgument, "memory of device %d in a context of %v", *p.Location.Id(), d)
	}
	if err == nil && o.MaxSize > 0 {
		err = newEnough(op, 12020, "a limit of a pool")
	}
	if err != nil {
		return p, err
	}
	if _, err := d.needs(op, needed); err != nil {
		return p, err
	}
	ways, err := d.known(driver.CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES)
	if err == nil && o.HandleTypes&^driver.CUmemAllocationHandleType(ways) != 0 {
		err = refuse(op, ErrNotSupported, "handle types %#x, where %v has %#x", uint32(o.HandleTypes), d, ways)
	}
	return p, wrap(op, err)
}

// newEnough refuses what the driver is too old for.
func newEnough(op string, version int, what string) error {
	if v := rt.Version; v < version {
		return refuse(op, ErrNotSupported, "%s needs a driver of CUDA %d.%d, and this one is of %d.%d", what, version/1000, version%1000/10, v/1000, v%1000/10)
	}
	return nil
}

// make has create make the pool, and opens it to the context's device.
func (p *poolCore) make(op string, create func() error) (*Pool, error) {
	err := p.ctx.withCurrent(func() error {
		if err := create(); err != nil {
			return err
		}
		if p.managed { // open to all devices
			return nil
		}
		if err := p.openHere(); err != nil {
			return errors.Join(err, driver.CuMemPoolDestroy(p.raw))
		}
		return nil
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return p.adopt(op)
}

// pools are those of this package's own, by their handles: others may be told of them
// as the current pool of a device. It is locked while one is destroyed.
var pools = struct {
	sync.Mutex
	of map[driver.CUmemoryPool]*poolCore
}{of: map[driver.CUmemoryPool]*poolCore{}}

// adopt makes a Pool of a core. Its context is marked.
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
	u.cleanup = lifetime.Cleanup(u, &p.Handle)
	return u, nil
}

// DefaultPool is the pool that the context's device has from the start. All of the
// process shares it; closing it closes nothing of CUDA's. Its memory cannot be shared
// with other processes. Source: cuDeviceGetDefaultMemPool.
func DefaultPool(x *Context) (*Pool, error) {
	return borrowPool("DefaultPool", x, driver.CuDeviceGetDefaultMemPool)
}

// CurrentPool is the pool that [NewBufferAsync] takes memory from on the context's
// device: the default one, unless somebody has made another one current. Closing it
// closes nothing of CUDA's. A pool of this package's own stays until it is closed; one that
// others have made must not be destroyed before. Source: cuDeviceGetMemPool.
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

// find asks for a pool of the device, and keeps it if it is one of ours. If that is
// just being destroyed, the device has another one soon.
func (p *poolCore) find(get func(*driver.CUmemoryPool, driver.CUdevice) error) (again bool, err error) {
	pools.Lock()
	defer pools.Unlock()
	if err := p.ctx.withCurrent(func() error { return get(&p.raw, p.ctx.device.raw) }); err != nil {
		return false, err
	}
	of := pools.of[p.raw]
	if of == nil {
		return false, nil
	}
	if !of.TryRetain() {
		return true, nil
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
	delete(pools.of, p.raw)
	return p.ctx.releasing("Pool.Close", func() error { return driver.CuMemPoolDestroy(p.raw) })
}

// acquire marks the pool for a call.
func (p *Pool) acquire(op string) (*poolCore, error) {
	if p == nil || p.core == nil || !p.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return p.core, nil
}

// do calls f with the pool marked and its context current.
func (p *Pool) do(op string, f func(*poolCore) error) error {
	c, err := p.acquire(op)
	if err != nil {
		return err
	}
	defer c.Release()
	return wrap(op, c.ctx.withCurrent(func() error { return f(c) }))
}

// Close destroys the pool, once the last buffer that keeps it is closed. If it is the
// current one of its device, the default one is current again then. Closing again does
// nothing. Source: cuMemPoolDestroy.
func (p *Pool) Close() error {
	if p == nil || p.core == nil {
		return nil
	}
	p.cleanup.Stop()
	return p.core.Close()
}

// Raw is the pool for calls of package driver, and of the runtime API, whose handles
// are the same: cudart13.CudaMemPool_t(p.Raw()). It is 0 once the pool is closed;
// keep p reachable meanwhile.
func (p *Pool) Raw() driver.CUmemoryPool {
	if p == nil || p.core == nil || p.core.Closed() {
		return 0
	}
	return p.core.raw
}

// MakeCurrent has [NewBufferAsync], and whatever else in the process allocates in the
// order of a stream and names no pool, take memory of the context's device from this
// pool, until it is closed or dropped. Host memory, managed memory and imported pools are [ErrInvalidArgument].
// Source: cuDeviceSetMemPool.
func (p *Pool) MakeCurrent() error {
	const op = "Pool.MakeCurrent"
	return p.do(op, func(c *poolCore) error {
		if c.onHost || c.managed || c.imported {
			return refuse(op, ErrInvalidArgument, "a pool of host memory or managed memory, or one that is imported, cannot be a device's")
		}
		return driver.CuDeviceSetMemPool(c.ctx.device.raw, c.raw)
	})
}

// Trim gives memory that no buffer uses back to the system, but for so many bytes.
// Buffers whose release the device has not reached yet count as used: wait for their
// streams before. More may stay, as it goes in large pieces. Source: cuMemPoolTrimTo.
func (p *Pool) Trim(keep uint64) error {
	return p.do("Pool.Trim", func(c *poolCore) error { return driver.CuMemPoolTrimTo(c.raw, keep) })
}

// NewBufferFrom is [NewBufferAsync] with the memory of a pool, which must be of the
// stream's context, else the error is [ErrContextMismatch]. The host may touch memory that it
// reaches, see [Buffer.Data], once it has waited for the stream. Where the pool's
// limit is reached the error is driver.CUDA_ERROR_OUT_OF_MEMORY; an imported pool is
// [ErrInvalidArgument], and a stream that captures [ErrCapturing].
// Source: cuMemAllocFromPoolAsync, cuMemFreeAsync.
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
		return refuse(op, ErrContextMismatch, "the pool is of %v, the stream of %v", p.ctx.device, c.ctx.device)
	}
	if p.imported {
		return refuse(op, ErrInvalidArgument, "nothing can be allocated from an imported pool: see ImportBuffer")
	}
	return wrap(op, b.allocateOn(c, p.ctx, func() error {
		if err := driver.CuMemAllocFromPoolAsync(&b.address, b.size, p.raw, c.raw); err != nil {
			return err
		}
		if p.onHost || p.managed {
			b.host = *(*unsafe.Pointer)(unsafe.Pointer(&b.address))
		}
		return nil
	}))
}
