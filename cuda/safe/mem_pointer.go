package safe

import (
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// pointerInfo is what CUDA knows about an address of device memory.
type pointerInfo struct {
	kind    driver.CUmemorytype // 0 if CUDA does not know the address
	managed bool
	device  driver.CUdevice
	ctx     driver.CUcontext    // the context of the allocation; 0 for memory of pools
	pool    driver.CUmemoryPool // the pool that the memory was allocated from, or 0
}

// askPointer is called with a context current.
func askPointer(address driver.CUdeviceptr) (pointerInfo, error) {
	v, err := ask(address,
		driver.CU_POINTER_ATTRIBUTE_CONTEXT, driver.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, driver.CU_POINTER_ATTRIBUTE_IS_MANAGED,
		driver.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, driver.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
	if err != nil {
		return pointerInfo{}, err
	}
	return pointerInfo{
		ctx: driver.CUcontext(v[0]), kind: driver.CUmemorytype(v[1]), managed: v[2] != 0, device: driver.CUdevice(int32(v[3])), pool: driver.CUmemoryPool(v[4]),
	}, nil
}
