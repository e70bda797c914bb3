package safe

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// PhysicalMemory is memory without an address: [AddressRange.Map] maps it at one or
// several addresses. Any number of goroutines may use it at once.
type PhysicalMemory struct {
	core    *physicalCore
	cleanup lifetime.Cleanup
}

type physicalCore struct {
	lifetime.Handle
	ctx        *contextCore
	raw        driver.CUmemGenericAllocationHandle
	size       uint64
	granule    uint64
	location   Location
	exportable bool
}

// PhysicalMemoryOptions are the options of [NewPhysicalMemory]. The zero value is memory
// of the context's device that cannot be shared with other processes.
type PhysicalMemoryOptions struct {
	// Location is where the memory resides: on a device or, from CUDA 12.2 on, on a NUMA
	// node of the host, see [NUMALocation]. The zero value is the context's device.
	Location Location
	// Shareable lets other processes import the memory: see [PhysicalMemory.Export].
	Shareable bool
	// Compressible asks for compressible memory, which CUDA grants if the device can do
	// it.
	Compressible bool
	// GPUDirectRDMA lets other PCI devices access the memory.
	GPUDirectRDMA bool
}

// properties returns the options as CUDA takes them.
func (o PhysicalMemoryOptions) properties(c *contextCore) driver.CUmemAllocationProp {
	p := driver.CUmemAllocationProp{Type: driver.CU_MEM_ALLOCATION_TYPE_PINNED, Location: o.Location.raw()}
	if o.Location == (Location{}) {
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

// Granularity returns the granularity in bytes of memory that [NewPhysicalMemory] allocates with these options: the
// minimum that sizes and offsets must be multiples of, and the one recommended for the best performance. It returns
// [ErrInvalidArgument] if CUDA does not know the ID of the location. Source: cuMemGetAllocationGranularity.
func (x *Context) Granularity(o PhysicalMemoryOptions) (minimum, recommended uint64, err error) {
	const op = "Context.Granularity"
	c, err := x.acquire(op)
	if err != nil {
		return 0, 0, err
	}
	defer c.Release()
	if err := o.Location.checkIfAny(op); err != nil {
		return 0, 0, err
	}
	p := o.properties(c)
	err = c.withCurrent(func() error {
		if err := driver.CuMemGetAllocationGranularity(&minimum, &p, driver.CU_MEM_ALLOC_GRANULARITY_MINIMUM); err != nil {
			return err
		}
		return driver.CuMemGetAllocationGranularity(&recommended, &p, driver.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
	})
	return minimum, recommended, wrap(op, err)
}

// measure returns the granularity for such properties, and a size rounded up to it. The
// context is current.
func measure(op string, size uint64, p *driver.CUmemAllocationProp) (rounded, granule uint64, err error) {
	err = driver.CuMemGetAllocationGranularity(&granule, p, driver.CU_MEM_ALLOC_GRANULARITY_MINIMUM)
	if err == nil && (size == 0 || size > 1<<62) {
		err = refuse(op, ErrRange, "a size of %d bytes must be between 1 and %d", size, uint64(1)<<62)
	}
	if err != nil {
		return 0, 0, err
	}
	return (size + granule - 1) / granule * granule, granule, nil
}

// NewPhysicalMemory allocates at least size bytes, rounded up to the minimum of [Context.Granularity]: see
// [PhysicalMemory.Size]. The memory is not initialized. It returns [ErrNotSupported] if the device lacks virtual memory
// management, or cannot share memory that is to be Shareable, [ErrRange] if size is 0, [ErrInvalidArgument] if CUDA
// does not know the ID of the location, and driver.CUDA_ERROR_OUT_OF_MEMORY if the device has too little memory left.
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
	if err := o.Location.checkIfAny(op); err != nil {
		return nil, err
	}
	p := &physicalCore{ctx: c, exportable: o.Shareable}
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

// measure sets the location, the granularity and the rounded size.
func (p *physicalCore) measure(op string, size uint64, properties *driver.CUmemAllocationProp) (err error) {
	p.location = locationFrom(properties.Location)
	p.size, p.granule, err = measure(op, size, properties)
	return err
}

// adopt returns a PhysicalMemory of a core.
func (p *physicalCore) adopt(op string) (*PhysicalMemory, error) {
	if err := p.Open(p, &p.ctx.Handle); err != nil {
		return nil, wrap(op, errors.Join(err, p.Destroy(true)))
	}
	u := &PhysicalMemory{core: p}
	u.cleanup.Watch(&p.Handle)
	return u, nil
}

// Export returns a file by which another process can import the memory: send it over a
// Unix socket and see [ImportPhysicalMemory]. The memory stays allocated until p, the
// file and everything imported from it are closed. It returns [ErrInvalidArgument] unless
// the memory was created Shareable.
// Source: cuMemExportToShareableHandle.
func (p *PhysicalMemory) Export() (*os.File, error) {
	const op = "PhysicalMemory.Export"
	c, err := p.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if !c.exportable {
		return nil, refuse(op, ErrInvalidArgument, "the memory was not created Shareable, or is imported")
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

// ImportPhysicalMemory imports memory from the file that [PhysicalMemory.Export] made, in
// another process or in this one. The file does not tell how large the memory is: size must
// be its [PhysicalMemory.Size]. You may close the file afterwards.
// Source: cuMemImportFromShareableHandle, cuMemGetAllocationPropertiesFromHandle.
func ImportPhysicalMemory(x *Context, f *os.File, size uint64) (*PhysicalMemory, error) {
	const op = "ImportPhysicalMemory"
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	file, err := connOf(f)
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

func (p *physicalCore) Kind() string { return "PhysicalMemory" }

func (p *physicalCore) Destroy(bool) error {
	return p.ctx.releasing("PhysicalMemory.Close", func() error { return driver.CuMemRelease(p.raw) })
}

// releasing calls f to release a resource of the process. Such a resource outlives a reset of the context
// by other code: f runs without a context then.
func (c *contextCore) releasing(op string, f func() error) error {
	if err := c.withCurrent(f); err != rt.CodeReset {
		return wrap(op, err)
	}
	return wrap(op, f())
}

// acquire acquires the memory for a call.
func (p *PhysicalMemory) acquire(op string) (*physicalCore, error) {
	if p == nil || p.core == nil || !p.core.Acquire() {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return p.core, nil
}

// Close releases the memory once it is mapped nowhere. You may close it as soon as it is
// mapped. Closing again does nothing.
// Source: cuMemRelease.
func (p *PhysicalMemory) Close() error {
	if p == nil || p.core == nil {
		return nil
	}
	p.cleanup.Stop()
	return p.core.Close()
}

// Size returns the size in bytes, a multiple of the granularity.
func (p *PhysicalMemory) Size() uint64 {
	if p == nil || p.core == nil {
		return 0
	}
	return p.core.size
}

// Location returns where the memory resides, for imported memory, too. Source: cuMemGetAllocationPropertiesFromHandle.
func (p *PhysicalMemory) Location() Location {
	if p == nil || p.core == nil {
		return Location{}
	}
	return p.core.location
}

// Raw returns the handle for calls to package driver. It returns 0 once p is closed. Keep
// p reachable while you use the handle.
func (p *PhysicalMemory) Raw() driver.CUmemGenericAllocationHandle {
	if p == nil || p.core == nil || p.core.Closed() {
		return 0
	}
	return p.core.raw
}

// String describes the physical memory for messages.
func (p *PhysicalMemory) String() string {
	if p == nil || p.core == nil {
		return neverOpened("PhysicalMemory")
	}
	return fmt.Sprintf("PhysicalMemory: %d bytes on %s%s", p.core.size, p.core.location.text(), closedText(p.core.Closed()))
}

// connOf returns the descriptor of a file, which the program may have closed or never opened.
func connOf(f *os.File) (syscall.RawConn, error) {
	if f == nil || *f == (os.File{}) {
		return nil, fmt.Errorf("%w: no file: it is nil, or was never opened", ErrInvalidArgument)
	}
	return f.SyscallConn()
}
