package safe

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Location is a place for memory: a device, the host, or a NUMA node of the host. The
// zero value is none. Locations can be compared.
type Location struct {
	Type driver.CUmemLocationType
	ID   int // the device's ordinal, or the number of the node; 0 otherwise
}

// HostLocation is the memory of the host, on whatever node.
var HostLocation = Location{Type: driver.CU_MEM_LOCATION_TYPE_HOST}

// DeviceLocation is the memory of a device.
func DeviceLocation(d Device) Location {
	return Location{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE, ID: int(d.raw)}
}

// location is the memory of the device, for CUDA.
func (d Device) location() driver.CUmemLocation { return DeviceLocation(d).raw() }

// NUMALocation is the memory of a NUMA node of the host.
func NUMALocation(node int) Location {
	return Location{Type: driver.CU_MEM_LOCATION_TYPE_HOST_NUMA, ID: node}
}

func (l Location) String() string {
	switch l.Type {
	case driver.CU_MEM_LOCATION_TYPE_INVALID:
		return "no location"
	case driver.CU_MEM_LOCATION_TYPE_HOST:
		return "host"
	case driver.CU_MEM_LOCATION_TYPE_DEVICE:
		return fmt.Sprintf("device %d", l.ID)
	case driver.CU_MEM_LOCATION_TYPE_HOST_NUMA:
		return fmt.Sprintf("NUMA node %d", l.ID)
	}
	return fmt.Sprintf("%v %d", l.Type, l.ID)
}

// check refuses what is no location.
func (l Location) check(op string) error {
	if l == (Location{}) || int(int32(l.ID)) != l.ID {
		return refuse(op, ErrInvalidArgument, "not a place for memory: %v", l)
	}
	return nil
}

// raw is the location for CUDA.
func (l Location) raw() driver.CUmemLocation {
	r := driver.CUmemLocation{Type: l.Type}
	*r.Id() = int32(l.ID)
	return r
}

// device is the location as drivers before CUDA 12.2 know it, if they do.
func (l Location) device() (d driver.CUdevice, ok bool) {
	switch l.Type {
	case driver.CU_MEM_LOCATION_TYPE_HOST:
		return driver.CU_DEVICE_CPU, true
	case driver.CU_MEM_LOCATION_TYPE_DEVICE:
		return driver.CUdevice(l.ID), true
	}
	return 0, false
}

// locationOf is what such a driver says.
func locationOf(d driver.CUdevice) Location {
	switch d {
	case driver.CU_DEVICE_CPU:
		return HostLocation
	case driver.CU_DEVICE_INVALID:
		return Location{}
	}
	return Location{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE, ID: int(d)}
}
