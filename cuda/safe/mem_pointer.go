package safe

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// PointerKind is the kind of memory at an address.
type PointerKind int

// The kinds of memory.
const (
	UnregisteredMemory PointerKind = iota // not known to CUDA: Go memory, for example, or freed
	HostMemory                            // pinned host memory
	DeviceMemory
	ManagedMemory
)

func (k PointerKind) String() string {
	names := [...]string{"unregistered", "host", "device", "managed"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("PointerKind(%d)", int(k))
	}
	return names[k]
}

// PointerInfo is what CUDA knows about an address. A field that the driver does not tell
// is 0 or false. For [UnregisteredMemory] that is every field except Device.
type PointerInfo struct {
	Kind    PointerKind
	Device  int                // ordinal; for host memory, of the allocating context's device; -1 for unregistered memory
	Context driver.CUcontext   // the context of the allocation; 0 for memory of pools
	Address driver.CUdeviceptr // at which kernels access the memory
	Host    uintptr            // address at which the host accesses the memory; 0 if it cannot
	Start   driver.CUdeviceptr // first address of the allocation
	Size    uint64             // size of the allocation in bytes
	// BufferID identifies the allocation. The process never uses an ID twice.
	BufferID    uint64
	Pool        driver.CUmemoryPool // the pool that the memory was allocated from, or 0
	HandleTypes driver.CUmemAllocationHandleType
	// Access is what kernels of the context may do. Not every driver tells it.
	Access     driver.CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS
	Mapped     bool // the address is backed by memory, and not only reserved
	IPC        bool // [Buffer.IPCHandle] works
	RDMA       bool // other PCI devices can access it by GPUDirect RDMA
	Decompress bool // hardware can decompress into it; from CUDA 12.8 on
	// SyncMemops: see [Buffer.SetSyncMemops].
	SyncMemops bool
}

// PointerInfo returns what CUDA knows about an address, seen from the context. The memory
// may belong to other code. An address that CUDA does not know is no error: its kind is
// [UnregisteredMemory].
// Source: cuPointerGetAttributes.
func (x *Context) PointerInfo(address driver.CUdeviceptr) (PointerInfo, error) {
	var p PointerInfo
	err := x.do("Context.PointerInfo", func() (err error) {
		p, err = pointerInfo(address)
		return err
	})
	return p, err
}

// pointerInfo is called with a context current.
func pointerInfo(address driver.CUdeviceptr) (PointerInfo, error) {
	p := PointerInfo{Device: -1}
	v, err := ask(address,
		driver.CU_POINTER_ATTRIBUTE_CONTEXT, driver.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, driver.CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
		driver.CU_POINTER_ATTRIBUTE_HOST_POINTER, driver.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, driver.CU_POINTER_ATTRIBUTE_BUFFER_ID,
		driver.CU_POINTER_ATTRIBUTE_IS_MANAGED, driver.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, driver.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		driver.CU_POINTER_ATTRIBUTE_RANGE_SIZE, driver.CU_POINTER_ATTRIBUTE_MAPPED, driver.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
		driver.CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, driver.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
	if err != nil || v[1] == 0 {
		return p, err
	}
	p = PointerInfo{
		Kind: DeviceMemory, Device: int(int32(v[7])), Context: driver.CUcontext(v[0]), Address: driver.CUdeviceptr(v[2]), Host: uintptr(v[3]),
		SyncMemops: v[4] != 0, BufferID: v[5], Start: driver.CUdeviceptr(v[8]), Size: v[9], Mapped: v[10] != 0, IPC: v[11] != 0,
		HandleTypes: driver.CUmemAllocationHandleType(v[12]), Pool: driver.CUmemoryPool(v[13]),
	}
	if v[6] != 0 {
		p.Kind = ManagedMemory
	} else if driver.CUmemorytype(v[1]) == driver.CU_MEMORYTYPE_HOST {
		p.Kind = HostMemory
	}
	return p, p.askMore(address)
}

// askMore gets the attributes that only some drivers know, one by one: an unknown
// attribute makes the whole call fail.
func (p *PointerInfo) askMore(address driver.CUdeviceptr) error {
	var access, rdma, decompress uint64
	for _, a := range []struct {
		value *uint64
		id    driver.CUpointer_attribute
	}{
		{&access, driver.CU_POINTER_ATTRIBUTE_ACCESS_FLAGS},
		{&rdma, driver.CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
		{&decompress, driver.CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE},
	} {
		v, err := ask(address, a.id)
		if errors.Is(err, driver.CUDA_ERROR_INVALID_VALUE) {
			continue
		}
		if err != nil {
			return err
		}
		*a.value = v[0]
	}
	p.Access = driver.CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS(access)
	p.RDMA, p.Decompress = rdma != 0, decompress != 0
	return nil
}

// SetSyncMemops makes synchronous copies and memsets of the whole allocation, by package
// driver and other code, return only after they have completed. Drivers of network cards
// that access the memory by GPUDirect RDMA require it. Copies and memsets of this package
// always behave so. If the memory does not allow it, CUDA's error is returned.
// Source: cuPointerSetAttribute.
func (b *Buffer[T]) SetSyncMemops(on bool) error {
	const op = "Buffer.SetSyncMemops"
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	if err := b.some(op); err != nil {
		return err
	}
	var v uint32
	if on {
		v = 1
	}
	return wrap(op, m.ctx.withCurrent(func() error {
		return driver.CuPointerSetAttribute(unsafe.Pointer(&v), driver.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, m.address)
	}))
}
