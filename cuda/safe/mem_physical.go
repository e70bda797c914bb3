package safe

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Physical is memory without an address: [AddressRange.Map] gives it one, or
// several. Any number of goroutines may use it at once.
type PhysicalMemory struct {
	core    *physicalCore
	cleanup runtime.Cleanup
}

type physicalCore struct {
	lifetime.Handle
	ctx      *contextCore
	raw      driver.CUmemGenericAllocationHandle
	size     uint64
	granule  uint64
	location driver.CUmemLocation
	exported bool // may be
}

// PhysicalMemoryOptions are the choices at [NewPhysicalMemory]. The zero value is memory of
// the context's device for this process alone.
type PhysicalMemoryOptions struct {
	// Location is where the memory is to be: on a device or, from CUDA 12.2 on,
	// on a node of the host. Zero is the context's device.
	Location driver.CUmemLocation
	// Shareable memory can be sent to other processes, see [PhysicalMemory.Export].
	Shareable bool
	// Compressible memory is compressed if the device can.
	Compressible bool
	// GPUDirectRDMA: other PCI devices may reach the memory.
	GPUDirectRDMA bool
}

// properties are o as CUDA wants them.
func (o PhysicalMemoryOptions) properties(c *contextCore) driver.CUmemAllocationProp {
	p := driver.CUmemAllocationProp{Type: driver.CU_MEM_ALLOCATION_TYPE_PINNED, Location: o.Location}
	if p.Location.Type == driver.CU_MEM_LOCATION_TYPE_INVALID {
		p.Location = c.device.location()
	}
	if o.Shareable {
		p.RequestedHandleTypes = driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
	}
	if o.Compressible {
		p.AllocFlags.CompressionType = uint8(driver.CU_MEM_ALLOCATION_COMP_GENERIC)
	}
	if o.GPUDirectRDMA {
		p.AllocFlags.GpuDirectRDMACapable = 1
	}
	return p
}

// Granularity is what sizes and offsets of such memory are multiples of, in
// bytes: at least, and for the best performance.
// Source: cuMemGetAllocationGranularity.
func (x *Context) Granularity(o PhysicalMemoryOptions) (minimum, recommended uint64, err error) {
	const op = "Context.Granularity"
	c, err := x.acquire(op)
	if err != nil {
		return 0, 0, err
	}
	defer c.Release()
	p := o.properties(c)
	err = c.withCurrent(func() error {
		if err := driver.CuMemGetAllocationGranularity(&minimum, &p, driver.CU_MEM_ALLOC_GRANULARITY_MINIMUM); err != nil {
			return err
		}
		return driver.CuMemGetAllocationGranularity(&recommended, &p, driver.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
	})
	return minimum, recommended, wrap(op, err)
}

// measure finds the granularity for memory of such properties, and rounds a size up
// to it. The context is current.
func measure(op string, size uint64, p *driver.CUmemAllocationProp) (rounded, granule uint64, err error) {
	err = driver.CuMemGetAllocationGranularity(&granule, p, driver.CU_MEM_ALLOC_GRANULARITY_MINIMUM)
	if err == nil && (size == 0 || size > 1<<62) {
		err = refuse(op, ErrRange, "%d bytes", size)
	}
	if err != nil {
		return 0, 0, err
	}
	return (size + granule - 1) / granule * granule, granule, nil
}

// NewPhysicalMemory makes memory of at least size bytes; it is rounded up to the
// granularity that [Context.Granularity] tells, see [PhysicalMemory.Size]. It is not cleared.
// A device without virtual memory, or one that cannot share it where
// that is asked for, is [ErrNotSupported].
// Source: cuMemCreate, cuMemGetAllocationGranularity, and cuMemRelease when closed.
func NewPhysicalMemory(x *Context, size uint64, o PhysicalMemoryOptions) (*PhysicalMemory, error) {
	const op = "NewPhysicalMemory"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if _, err := c.device.needs(op, driver.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED); err != nil {
		return nil, err
	}
	if o.Shareable {
		if _, err := c.device.needs(op, driver.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED); err != nil {
			return nil, err
		}
	}
	p := &physicalCore{ctx: c, exported: o.Shareable}
	properties := o.properties(c)
	err = c.allocating(func() error {
		if err := p.measure(op, size, &properties); err != nil {
			return err
		}
		return driver.CuMemCreate(&p.raw, p.size, &properties, 0)
	})
	if err != nil && p.location.Type != driver.CU_MEM_LOCATION_TYPE_DEVICE {
		return nil, wrap(op, outOfMemory(err, size, onHost))
	} else if err != nil {
		return nil, wrap(op, outOfMemory(err, size, "", c.noteFree))
	}
	return p.adopt(op)
}

// measure finds the size of memory of such properties.
func (p *physicalCore) measure(op string, size uint64, properties *driver.CUmemAllocationProp) (err error) {
	p.location = properties.Location
	p.size, p.granule, err = measure(op, size, properties)
	return err
}

// adopt makes a Physical of a core.
func (p *physicalCore) adopt(op string) (*PhysicalMemory, error) {
	if err := p.Open(p, &p.ctx.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, p.Destroy(true)))
	}
	u := &PhysicalMemory{core: p}
	u.cleanup = lifetime.Cleanup(u, &p.Handle)
	return u, nil
}

// Export makes a file that another process, which it is sent to over a Unix
// socket, opens the memory by: see [ImportPhysicalMemory]. The memory must have been
// made Shareable. It lives until the file and everything opened by it is closed.
// Source: cuMemExportToShareableHandle.
func (p *PhysicalMemory) Export() (*os.File, error) {
	const op = "PhysicalMemory.Export"
	c, err := p.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if !c.exported {
		return nil, refuse(op, ErrInvalidArgument, "the memory was not made Shareable, or is another process's")
	}
	fd, err := opened(func(fd *int32) error {
		return c.ctx.withCurrent(func() error {
			return driver.CuMemExportToShareableHandle(unsafe.Pointer(fd), c.raw, driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
		})
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return os.NewFile(uintptr(fd), "memory of "+c.ctx.device.String()), nil
}

// ImportPhysicalMemory opens memory that [PhysicalMemory.Export] has made a file of, in
// another process or here. size is that of the memory, which the file does not
// tell. The file may be closed afterwards.
// Source: cuMemImportFromShareableHandle, cuMemGetAllocationPropertiesFromHandle.
func ImportPhysicalMemory(x *Context, f *os.File, size uint64) (*PhysicalMemory, error) {
	const op = "ImportPhysicalMemory"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	file, err := f.SyscallConn()
	if err != nil {
		return nil, wrap(op, err)
	}
	p := &physicalCore{ctx: c}
	err = c.withCurrent(func() error {
		code := driver.CUDA_SUCCESS
		if err := file.Control(func(fd uintptr) { code = rt.ImportMemory(&p.raw, fd) }); err != nil {
			return err
		}
		if code != 0 {
			return code
		}
		var properties driver.CUmemAllocationProp
		err := driver.CuMemGetAllocationPropertiesFromHandle(&properties, p.raw)
		if err == nil {
			err = p.measure(op, size, &properties)
		}
		if err != nil {
			return errors.Join(err, driver.CuMemRelease(p.raw))
		}
		return nil
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	return p.adopt(op)
}

func (p *physicalCore) Kind() string { return "Physical" }

func (p *physicalCore) Destroy(bool) error {
	return p.ctx.releasing("PhysicalMemory.Close", func() error { return driver.CuMemRelease(p.raw) })
}

// releasing is in for the release of what is the process's: a reset of the
// context leaves it.
func (c *contextCore) releasing(op string, f func() error) error {
	err := c.withCurrent(f)
	if err == rt.CodeReset {
		err = f()
	}
	return wrap(op, err)
}

// acquire marks the memory for a call.
func (p *PhysicalMemory) acquire(op string) (*physicalCore, error) {
	if p == nil || p.core == nil || !p.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return p.core, nil
}

// Close gives the memory back, once it is mapped nowhere. It may be closed as
// soon as it is mapped. Closing again does nothing. Source: cuMemRelease.
func (p *PhysicalMemory) Close() error {
	if p == nil || p.core == nil {
		return nil
	}
	p.cleanup.Stop()
	return p.core.Close()
}

// Size is the size in bytes, a multiple of the granularity.
func (p *PhysicalMemory) Size() uint64 {
	if p == nil || p.core == nil {
		return 0
	}
	return p.core.size
}

// Location is where the memory is, also that of another process.
// Source: cuMemGetAllocationPropertiesFromHandle for the latter.
func (p *PhysicalMemory) Location() driver.CUmemLocation {
	if p == nil || p.core == nil {
		return driver.CUmemLocation{}
	}
	return p.core.location
}

// Raw is the memory for calls of package driver. It is 0 once p is closed;
// keep p reachable meanwhile.
func (p *PhysicalMemory) Raw() driver.CUmemGenericAllocationHandle {
	if p == nil || p.core == nil || p.core.Closed() {
		return 0
	}
	return p.core.raw
}
