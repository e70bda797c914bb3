package driver_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// The example in the README: it runs anywhere, and tells what it found.
func Example() {
	if err := driver.CuInit(0); errors.Is(err, errors.ErrUnsupported) {
		fmt.Println("no CUDA here:", err) // no driver, or built without cgo
		return
	} else if err != nil {
		fmt.Println("the driver says:", err) // such as CUDA_ERROR_NO_DEVICE
		return
	}
	var count int32
	if err := driver.CuDeviceGetCount(&count); err != nil {
		log.Fatal(err)
	}
	for i := range count {
		var device driver.CUdevice
		var memory uint64
		if err := driver.CuDeviceGet(&device, i); err != nil {
			log.Fatal(err)
		}
		if err := driver.CuDeviceTotalMem(&memory, device); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("device %d has %d MiB\n", i, memory>>20)
	}
	if err := driver.Find("cuStreamGetDevResource"); err != nil {
		fmt.Println(err) // cuda: .../libcuda.so.1 (CUDA 13.0) has no cuStreamGetDevResource: it needs CUDA 13.1
	}
}
