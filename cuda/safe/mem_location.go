package safe

import (
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Location is where memory resides: on a device, on the host, or on a NUMA node of the
// host. The zero value is no location. Locations can be compared with ==.
type Location struct {
	Type driver.CUmemLocationType
	ID   int // the ordinal of the device, or the number of the NUMA node; else 0
}

// HostLocation is host memory, on any NUMA node.
var HostLocation = Location{Type: driver.CU_MEM_LOCATION_TYPE_HOST}

// DeviceLocation returns the location of a device's memory.
func DeviceLocation(d Device) Location {
	return Location{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE, ID: int(d.raw)}
}

// location returns the location of the device's memory, as CUDA takes it.
func (d Device) location() driver.CUmemLocation { return DeviceLocation(d).raw() }

// NUMALocation returns the location of a NUMA node of the host.
func NUMALocation(node int) Location {
	return Location{Type: driver.CU_MEM_LOCATION_TYPE_HOST_NUMA, ID: node}
}

// text describes the location for messages.
func (l Location) text() string {
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

// check refuses no location, and one whose ID CUDA could not represent.
func (l Location) check(op string) error {
	if l == (Location{}) || int(int32(l.ID)) != l.ID {
		return refuse(op, ErrInvalidArgument, "%s is not a location for memory", l.text())
	}
	return nil
}

// checkIfAny refuses a location whose ID CUDA could not represent.
func (l Location) checkIfAny(op string) error {
	if l == (Location{}) {
		return nil
	}
	return l.check(op)
}

// raw returns the location as CUDA takes it.
func (l Location) raw() driver.CUmemLocation {
	r := driver.CUmemLocation{Type: l.Type}
	*r.Id() = int32(l.ID)
	return r
}

// locationFrom undoes raw.
func locationFrom(r driver.CUmemLocation) Location {
	return Location{Type: r.Type, ID: int(*r.Id())}
}

// device returns the location as drivers older than CUDA 12.2 take it. Such a driver
// knows only devices and the host.
func (l Location) device() (d driver.CUdevice, ok bool) {
	switch l.Type {
	case driver.CU_MEM_LOCATION_TYPE_HOST:
		return driver.CU_DEVICE_CPU, true
	case driver.CU_MEM_LOCATION_TYPE_DEVICE:
		return driver.CUdevice(l.ID), true
	}
	return 0, false
}
