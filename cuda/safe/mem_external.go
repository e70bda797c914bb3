package safe

import (
	"os"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// ExternalMemory is memory that another API, such as Vulkan, has allocated on the device
// and exported: [NewExternalBuffer] gives kernels and copies access to it. Any number of
// goroutines may use it at once.
type ExternalMemory struct {
	memory *memory
	raw    *driver.CUexternalMemory
}

// ExternalMemoryOptions are the options of [ImportExternalMemory].
type ExternalMemoryOptions struct {
	// Dedicated must be set if the other API allocated the memory for a single image or
	// buffer: in Vulkan, with VkMemoryDedicatedAllocateInfo.
	Dedicated bool
}

// ImportExternalMemory imports memory by the opaque file descriptor that another API has
// exported, such as vkGetMemoryFdKHR. size is the size of the allocation in bytes. The caller
// still owns the file and may close it afterwards: CUDA gets a duplicate of the descriptor.
//
// It returns [ErrRange] if size is 0, and CUDA's error if the file does not stand for
// memory of the context's device. Order accesses of the two APIs by an
// [ExternalSemaphore].
// Source: cuImportExternalMemory, and cuDestroyExternalMemory when closed.
func ImportExternalMemory(x *Context, f *os.File, size uint64, o ExternalMemoryOptions) (*ExternalMemory, error) {
	const op = "ImportExternalMemory"
	if size == 0 {
		return nil, refuse(op, ErrRange, "a size of 0 bytes")
	}
	raw := new(driver.CUexternalMemory)
	d := driver.CUDA_EXTERNAL_MEMORY_HANDLE_DESC{Type: driver.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, Size: size}
	if o.Dedicated {
		d.Flags = uint32(driver.CUDA_EXTERNAL_MEMORY_DEDICATED)
	}
	m, err := importExternal(op, x, f, d.Handle.Fd(),
		func() error { return driver.CuImportExternalMemory(raw, &d) },
		func() error { return driver.CuDestroyExternalMemory(*raw) })
	if err != nil {
		return nil, err
	}
	m.size = size
	return &ExternalMemory{memory: m, raw: raw}, nil
}

// importExternal calls do with fd set to a duplicate of f's descriptor, which the driver
// owns if do succeeds. The result is a block, so that it is destroyed after its work. The
// functions must not refer to what users hold.
func importExternal(op string, x *Context, f *os.File, fd *int32, do, destroy func() error) (*memory, error) {
	c, err := x.acquire(op)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if *fd, err = duplicate(f); err != nil {
		return nil, wrap(op, err)
	}
	b := &block{free: func(*block) error { return destroy() }}
	taken := false
	err = b.allocate(c, func() error {
		err := do()
		taken = err == nil
		return err
	})
	if err != nil {
		if !taken {
			closeDescriptor(*fd)
		}
		return nil, wrap(op, err)
	}
	return newMemory(b), nil
}

// Close releases the memory once the buffers made of it are closed and the work that uses
// them has completed. Closing again does nothing.
// Source: cuDestroyExternalMemory.
func (m *ExternalMemory) Close() error {
	if m == nil {
		return nil
	}
	return m.memory.close()
}

// Raw returns the handle for calls to package driver. It returns 0 once m is closed. Keep
// m reachable while you use the handle.
func (m *ExternalMemory) Raw() driver.CUexternalMemory {
	if m == nil || m.memory == nil || m.memory.Closed() {
		return 0
	}
	return *m.raw
}

// Size returns the size in bytes.
func (m *ExternalMemory) Size() uint64 {
	if m == nil || m.memory == nil {
		return 0
	}
	return m.memory.size
}

func (m *ExternalMemory) acquire(op string) (*block, error) {
	if m == nil {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	return m.memory.acquire(op)
}

// NewExternalBuffer maps n values of external memory, from an offset in bytes on, which
// must suit the other API and the type T. The Buffer keeps the memory alive. Map a range
// once and use [Buffer.Slice] for its parts: two mappings of the same bytes may have
// different addresses, and need not see each other's writes.
//
// It returns [ErrRange] if the values do not lie in the memory, and [ErrInvalidArgument]
// if T contains Go pointers or bools or has no size.
// Source: cuExternalMemoryGetMappedBuffer, and cuMemFree when closed.
func NewExternalBuffer[T any](m *ExternalMemory, offset uint64, n int) (*Buffer[T], error) {
	const op = "NewExternalBuffer"
	size, of, err := valuesIn[T](op, m, n)
	if err != nil {
		return nil, err
	}
	defer of.Release()
	if offset > of.size || size > of.size-offset {
		return nil, refuse(op, ErrRange, "%d bytes from %d on, but there are %d", size, offset, of.size)
	}
	d := driver.CUDA_EXTERNAL_MEMORY_BUFFER_DESC{Offset: offset, Size: size}
	b := &block{size: size, of: of, free: (*block).memFree}
	err = b.allocate(of.ctx, b.unlessEmpty(func() error { return driver.CuExternalMemoryGetMappedBuffer(&b.address, *m.raw, &d) }))
	if err != nil {
		return nil, wrap(op, err)
	}
	return newBuffer[T](b, n), nil
}

// String describes the memory for messages.
func (m *ExternalMemory) String() string {
	if m == nil || m.memory == nil {
		return neverOpened("ExternalMemory")
	}
	return handleText("ExternalMemory", *m.raw, m.memory.ctx.device, m.memory.Closed())
}
