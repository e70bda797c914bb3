package main

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// machine is what was found.
type machine struct {
	Driver    library   `json:"driver"`
	Libraries []library `json:"libraries"`
	Devices   []device  `json:"devices"`
	// NoDevices says why there are none.
	NoDevices string `json:"noDevices,omitempty"`
}

// device is a GPU.
type device struct {
	Ordinal         int    `json:"ordinal"`
	Name            string `json:"name"`
	UUID            string `json:"uuid"`
	Capability      string `json:"computeCapability"`
	Memory          uint64 `json:"memoryBytes"`
	Multiprocessors int32  `json:"multiprocessors"`
	L2              int32  `json:"l2Bytes"`
	CopyEngines     int32  `json:"copyEngines"`
	Integrated      bool   `json:"integrated"`
	MemoryPools     bool   `json:"memoryPools"`
	PCI             string `json:"pci"`
}

// look finds the driver, the libraries and the devices. It fails where there is no
// driver.
func look(driverPath, dir string, missing bool) (*machine, error) {
	if err := driver.Open(driverPath); err != nil {
		return nil, err
	}
	m := &machine{Driver: driverPackage.look("", missing)}
	for _, p := range packages {
		m.Libraries = append(m.Libraries, p.look(dir, missing))
	}
	m.compare()
	var err error
	m.Devices, err = devices()
	if err != nil {
		m.NoDevices = err.Error()
	}
	return m, nil
}

func devices() ([]device, error) {
	if err := driver.CuInit(0); err != nil {
		if _, told := safe.Devices(); errors.Is(told, err) {
			err = told // which says what to do
		}
		return nil, err
	}
	var n int32
	if err := driver.CuDeviceGetCount(&n); err != nil {
		return nil, err
	}
	var out []device
	for i := range n {
		d, err := describe(i)
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// describe reads a device's main attributes.
func describe(ordinal int32) (device, error) {
	var dev driver.CUdevice
	if err := driver.CuDeviceGet(&dev, ordinal); err != nil {
		return device{}, err
	}
	d := device{Ordinal: int(ordinal)}
	var name [256]byte
	if err := driver.CuDeviceGetName(&name[0], int32(len(name)), dev); err != nil {
		return d, err
	}
	d.Name = ffi.GoStringN(name[:])
	var id driver.CUuuid
	if err := driver.CuDeviceGetUuid(&id, dev); err != nil {
		return d, err
	}
	b := id.Bytes
	d.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
	if err := driver.CuDeviceTotalMem(&d.Memory, dev); err != nil {
		return d, err
	}
	var pci [32]byte
	if err := driver.CuDeviceGetPCIBusId(&pci[0], int32(len(pci)), dev); err != nil {
		return d, err
	}
	d.PCI = ffi.GoStringN(pci[:])
	var major, minor, integrated, pools int32
	for attribute, to := range map[driver.CUdevice_attribute]*int32{
		driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: &major,
		driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: &minor,
		driver.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:     &d.Multiprocessors,
		driver.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:            &d.L2,
		driver.CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:       &d.CopyEngines,
		driver.CU_DEVICE_ATTRIBUTE_INTEGRATED:               &integrated,
		driver.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:   &pools,
	} {
		if err := driver.CuDeviceGetAttribute(to, attribute, dev); err != nil {
			return d, fmt.Errorf("%v: %w", attribute, err)
		}
	}
	d.Capability = fmt.Sprintf("%d.%d", major, minor)
	d.Integrated, d.MemoryPools = integrated != 0, pools != 0
	return d, nil
}
