package safe

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// PointerKind is what kind of memory is behind an address.
type PointerKind int

// The kinds of memory.
const (
	UnregisteredMemory PointerKind = iota // none of CUDA's: such as Go's own, or freed
	HostMemory                            // pinned memory of the host
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

// PointerInfo is what CUDA knows about an address. What the driver does not tell is 0
// or false, and for [UnregisteredMemory] everything but Device is.
type PointerInfo struct {
	Kind    PointerKind
	Device  int                // ordinal; for host memory where it was allocated or registered; -1 for unregistered memory
	Context driver.CUcontext   // that it was allocated in, 0 for memory of pools
	Address driver.CUdeviceptr // for kernels
	Host    uintptr            // address for the host, 0 where it cannot reach it
	Start   driver.CUdeviceptr // of the allocation that the address lies in
	Size    uint64             // of that allocation, in bytes
	// BufferID is one that no other allocation of the process ever has.
	BufferID    uint64
	Pool        driver.CUmemoryPool // that it came from, if it did
	HandleTypes driver.CUmemAllocationHandleType
	// Access is what kernels of the context may do. Not every driver tells.
	Access     driver.CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS
	Mapped     bool // there is memory behind the address, and not only a reservation
	IPC        bool // [Buffer.IPCHandle] works
	RDMA       bool // other hardware can reach it directly
	Decompress bool // hardware can decompress into it; from CUDA 12.8 on
	// SyncMemops: see [Buffer.SetSyncMemops].
	SyncMemops bool
}

// PointerInfo tells what CUDA knows about an address, whoever it is of, seen from the
// context. An address that CUDA does not know is no error, but [UnregisteredMemory].
// Source: cuPointerGetAttributes.
func (x *Context) PointerInfo(address driver.CUdeviceptr) (PointerInfo, error) {
	var p PointerInfo
	err := x.do("Context.PointerInfo", func() (err error) {
		p, err = pointerInfo(address)
		return err
	})
	return p, err
}

// pointerInfo is made with a context current.
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

// askMore asks for what not all drivers tell, one by one, as a question that a driver
// does not know spoils all of a call.
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

// ask asks for attributes of an address in one call. None of them has more than 64
// bits; those with fewer are the low ones of the answer.
func ask(address driver.CUdeviceptr, ids ...driver.CUpointer_attribute) ([]uint64, error) {
	answers := make([]uint64, len(ids))
	places := make([]unsafe.Pointer, len(ids))
	for i := range answers {
		places[i] = unsafe.Pointer(&answers[i])
	}
	var pinner runtime.Pinner // CUDA finds the answers by way of the places
	pinner.Pin(&answers[0])
	defer pinner.Unpin()
	return answers, driver.CuPointerGetAttributes(uint32(len(ids)), &ids[0], &places[0], address)
}

// A pointerRange is the allocation that an address lies in, as far as the driver tells.
type pointerRange struct {
	start driver.CUdeviceptr
	size  uint64
	ipc   bool // other processes can open it
}

func rangeOf(address driver.CUdeviceptr) (pointerRange, error) {
	v, err := ask(address, driver.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, driver.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		driver.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
	return pointerRange{driver.CUdeviceptr(v[0]), v[1], v[2] != 0}, err
}

// poolOf is the pool that a block came from. A context is current.
func (b *block) poolOf() (driver.CUmemoryPool, error) {
	if b.pool != nil {
		return b.pool.raw, nil
	}
	v, err := ask(b.address, driver.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
	return driver.CUmemoryPool(v[0]), err
}

// SetSyncMemops has synchronous copies and memsets of the buffer's memory, all of the
// allocation, by package driver and others, return only when they are done, as the
// drivers of network cards need that read the memory themselves. Those of this
// package always do. Memory that cannot have that, such as that of pools, is CUDA's own
// error. Source: cuPointerSetAttribute.
func (b *Buffer[T]) SetSyncMemops(on bool) error {
	const op = "Buffer.SetSyncMemops"
	m, err := b.acquire(op)
	if err != nil {
		return err
	}
	defer m.Release()
	var v uint32
	if on {
		v = 1
	}
	return wrap(op, m.ctx.withCurrent(func() error {
		return driver.CuPointerSetAttribute(unsafe.Pointer(&v), driver.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, m.address)
	}))
}
