package safe

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// Device is a GPU. It is a plain value and needs no Close.
type Device struct {
	raw     driver.CUdevice
	ordinal int
}

// Devices returns the GPUs that this process may use, in the order of their ordinals.
// CUDA_VISIBLE_DEVICES selects and orders them.
//
// It returns a *driver.LibraryError, which says why, if there is no
// driver, and driver.CUDA_ERROR_NO_DEVICE if there is no GPU. If the driver does not start,
// the error's Detail says what to do. Source: cuInit, cuDeviceGetCount, cuDeviceGet.
func Devices() ([]Device, error) {
	const op = "Devices"
	if err := initialize(); err != nil {
		return nil, wrap(op, err)
	}
	var n int32
	if err := driver.CuDeviceGetCount(&n); err != nil {
		return nil, wrap(op, err)
	}
	devices := make([]Device, n)
	for i := range devices {
		devices[i].ordinal = i
		if err := driver.CuDeviceGet(&devices[i].raw, int32(i)); err != nil {
			return nil, wrap(op, err)
		}
	}
	return devices, nil
}

// DeviceByPCI returns the GPU with a PCI address such as "0000:3b:00.0". It returns
// driver.CUDA_ERROR_INVALID_DEVICE if there is none. Source: cuDeviceGetPCIBusId.
func DeviceByPCI(address string) (Device, error) {
	const op = "DeviceByPCI"
	devices, err := Devices()
	if err != nil {
		return Device{}, wrap(op, err)
	}
	for _, d := range devices {
		at, err := d.PCIAddress()
		if err != nil {
			return Device{}, wrap(op, err)
		}
		if at == address {
			return d, nil
		}
	}
	return Device{}, refuse(op, driver.CUDA_ERROR_INVALID_DEVICE, "no GPU of this process has the PCI address %q", address)
}

// device returns the GPU with an ordinal.
func device(ordinal int) (Device, error) {
	if err := initialize(); err != nil {
		return Device{}, err
	}
	d := Device{ordinal: ordinal}
	err := error(driver.CUDA_ERROR_INVALID_DEVICE)
	if ordinal >= 0 && int(int32(ordinal)) == ordinal {
		err = driver.CuDeviceGet(&d.raw, int32(ordinal))
	}
	var n int32
	if errors.Is(err, driver.CUDA_ERROR_INVALID_DEVICE) && driver.CuDeviceGetCount(&n) == nil {
		err = named(wrap("Open", err), fmt.Sprintf("device %d: the machine has %d, from 0 on", ordinal, n))
	}
	return d, err
}

// Raw returns the device for calls to package driver.
func (d Device) Raw() driver.CUdevice { return d.raw }

// Ordinal returns the device's index in [Devices].
func (d Device) Ordinal() int { return d.ordinal }

// String returns "device" and the ordinal.
func (d Device) String() string { return fmt.Sprintf("device %d", d.ordinal) }

// Name returns the product name, such as "NVIDIA H200". Source: cuDeviceGetName.
func (d Device) Name() (string, error) {
	var name [256]byte
	if err := d.get("Device.Name", func() error { return driver.CuDeviceGetName(&name[0], int32(len(name)), d.raw) }); err != nil {
		return "", err
	}
	return ffi.GoStringN(name[:]), nil
}

// get initializes CUDA, as the zero value of Device needs it, and calls ask.
func (d Device) get(op string, ask func() error) error {
	if err := initialize(); err != nil {
		return wrap(op, err)
	}
	return wrap(op, ask())
}

// UUID identifies a GPU across processes and machines.
type UUID [16]byte

// String formats the UUID as nvidia-smi does.
func (u UUID) String() string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// UUID returns the device's UUID. Source: cuDeviceGetUuid_v2.
func (d Device) UUID() (UUID, error) {
	var raw driver.CUuuid
	err := d.get("Device.UUID", func() error { return driver.CuDeviceGetUuid_v2(&raw, d.raw) })
	return UUID(raw.Bytes), err
}

// PCIAddress returns the device's PCI address, such as "0000:3b:00.0". Source:
// cuDeviceGetPCIBusId.
func (d Device) PCIAddress() (string, error) {
	var address [32]byte
	if err := d.get("Device.PCIAddress", func() error { return driver.CuDeviceGetPCIBusId(&address[0], int32(len(address)), d.raw) }); err != nil {
		return "", err
	}
	return ffi.GoStringN(address[:]), nil
}

// Attribute returns any attribute of the device; [Device.Properties] has the common ones
// by name. It returns driver.CUDA_ERROR_INVALID_VALUE if the driver does not know the
// attribute. Source: cuDeviceGetAttribute.
func (d Device) Attribute(attribute driver.CUdevice_attribute) (int, error) {
	var n int32
	err := d.get("Device.Attribute", func() error { return driver.CuDeviceGetAttribute(&n, attribute, d.raw) })
	return int(n), err
}

// ComputeCapability returns the version of the architecture: 9 and 0 for sm_90. Source:
// cuDeviceGetAttribute.
func (d Device) ComputeCapability() (major, minor int, err error) {
	if major, err = d.Attribute(driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR); err != nil {
		return 0, 0, err
	}
	minor, err = d.Attribute(driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
	return major, minor, err
}

// CanAccessPeer reports whether kernels on d can access the memory of peer after [Context.EnablePeerAccess]. Copies
// between devices always work. Source: cuDeviceCanAccessPeer.
func (d Device) CanAccessPeer(peer Device) (bool, error) {
	var can int32
	err := d.get("Device.CanAccessPeer", func() error { return driver.CuDeviceCanAccessPeer(&can, d.raw, peer.raw) })
	return can != 0, err
}

// needs returns a device attribute, or an error if it is 0: then the device lacks the
// feature.
func (d Device) needs(op string, id driver.CUdevice_attribute) (int, error) {
	n, err := d.known(id)
	if err == nil && n == 0 {
		err = refuse(op, ErrNotSupported, "%v is 0 on %v", id, d)
	}
	return n, wrap(op, err)
}
