//go:build cgo && linux && (amd64 || arm64)

package safe_test

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// A vector grows where it is: addresses are reserved for more than is ever
// needed, and memory comes when it is.
func ExampleReserveAddress() {
	fmt.Println(grow())
	// Output: [1 2] <nil>
}

// grow fills a vector, makes it twice as large, and tells what is in its halves.
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

	var size uint64 // bytes that have memory
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

// more puts memory behind the first size bytes, and tells how many there are now.
func more(x *safe.Context, v *safe.AddressRange, size uint64) (uint64, error) {
	memory, err := safe.NewPhysicalMemory(x, 1<<20, safe.PhysicalMemoryOptions{})
	if err != nil {
		return size, err
	}
	defer memory.Close() // it stays as long as it is mapped
	if err := v.Map(size, memory); err != nil {
		return size, err
	}
	return size + memory.Size(), v.SetAccess(size, memory.Size(), driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
}
