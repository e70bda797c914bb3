//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A vector grows in place: its address range is reserved once, larger than ever needed, and
// physical memory is mapped when it grows.
func ExampleReserveAddress() {
	fmt.Println(grow())
	// Output: [1 2] <nil>
}

// grow fills a vector, doubles it, fills the new half, and returns a value of each half.
func grow() ([]int32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	v, err := safe.ReserveAddress(x, 1<<30, safe.ReserveOptions{})
	if err != nil {
		return nil, err
	}
	defer v.Close()

	var size uint64 // bytes mapped so far
	for value := int32(1); value <= 2; value++ {
		before := size
		if size, err = more(x, v, size); err != nil {
			return nil, err
		}
		added, err := safe.NewMappedBuffer[int32](v, before, int(size-before)/4)
		if err != nil {
			return nil, err
		}
		defer added.Close()
		if err := added.Fill(value); err != nil {
			return nil, err
		}
	}
	all, err := safe.NewMappedBuffer[int32](v, 0, int(size)/4)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	values := make([]int32, all.Len())
	err = all.CopyToHost(values)
	return []int32{values[0], values[len(values)-1]}, err
}

// more maps memory after the first size bytes and returns the new size.
func more(x *safe.Context, v *safe.AddressRange, size uint64) (uint64, error) {
	memory, err := safe.NewPhysicalMemory(x, 1<<20, safe.PhysicalMemoryOptions{})
	if err != nil {
		return size, err
	}
	defer memory.Close() // mapped memory stays valid
	if err := v.Map(size, memory); err != nil {
		return size, err
	}
	return size + memory.Size(), v.SetAccess(size, memory.Size(), driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
}
