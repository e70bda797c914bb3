package main

import (
	"fmt"
	"io"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// vectorAddMMAP adds two vectors whose addresses are one range each, with memory
// that comes in turn from all devices that the first one can reach.
func vectorAddMMAP(x *safe.Context, m *safe.Module, w io.Writer) error {
	supported, err := x.Device().Attribute(driver.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
	if err != nil {
		return err
	}
	if supported == 0 {
		fmt.Fprintln(w, "vectorAddMMAP: the device has no virtual memory")
		return nil
	}
	add, err := m.Kernel("add")
	if err != nil {
		return err
	}
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	defer s.Close()
	homes, err := reachable(x.Device())
	if err != nil {
		return err
	}

	const n = 4 << 20
	var vectors [3]*safe.Buffer[float32] // a, b and their sum
	for i := range vectors {
		var addresses *safe.AddressRange
		if vectors[i], addresses, err = striped(x, n, homes); err != nil {
			return err
		}
		defer addresses.Close() // after the vector
		defer vectors[i].Close()
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i)
	}
	for _, v := range vectors[:2] {
		if err := v.CopyFromHost(values); err != nil {
			return err
		}
	}
	if err := add.Launch(s, safe.Threads(n), vectors[0].Arg(), vectors[1].Arg(), vectors[2].Arg(), safe.Val(uint32(n))); err != nil {
		return err
	}
	if err := vectors[2].CopyToHost(values); err != nil {
		return err
	}
	for i, got := range values {
		if want := 2 * float32(i); got != want {
			return fmt.Errorf("sum %d is %v, not %v", i, got, want)
		}
	}
	fmt.Fprintf(w, "vectorAddMMAP: %d sums are right, took memory of %d device(s)\n", n, len(homes))
	return nil
}

// reachable is a device, and the others whose memory its kernels can reach.
func reachable(d safe.Device) ([]safe.Device, error) {
	homes := []safe.Device{d}
	devices, err := safe.Devices()
	if err != nil {
		return nil, err
	}
	for _, other := range devices {
		if other == d {
			continue
		}
		virtual, err := other.Attribute(driver.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
		if err != nil {
			return nil, err
		}
		can, err := d.CanAccessPeer(other)
		if err != nil {
			return nil, err
		}
		if can && virtual != 0 {
			homes = append(homes, other)
		}
	}
	return homes, nil
}

// striped is a vector of one range of addresses, with as much memory of each home
// as the granularity is, in turn. Closing the range gives all of it back.
func striped(x *safe.Context, n int, homes []safe.Device) (*safe.Buffer[float32], *safe.AddressRange, error) {
	addresses, err := safe.ReserveAddress(x, uint64(4*n), safe.ReserveOptions{})
	if err != nil {
		return nil, nil, err
	}
	for i, offset := 0, uint64(0); offset < addresses.Size(); i++ {
		size, err := mapFrom(homes[i%len(homes)], x, addresses, offset)
		if err != nil {
			addresses.Close()
			return nil, nil, err
		}
		offset += size
	}
	var vector *safe.Buffer[float32]
	if err = addresses.SetAccess(0, addresses.Size(), driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE, x.Device()); err == nil {
		vector, err = safe.NewMappedBuffer[float32](addresses, 0, n)
	}
	if err != nil {
		addresses.Close()
		return nil, nil, err
	}
	return vector, addresses, nil
}

// mapFrom maps memory of a device, which stays mapped when its PhysicalMemory is closed.
func mapFrom(home safe.Device, x *safe.Context, addresses *safe.AddressRange, offset uint64) (size uint64, err error) {
	memory, err := safe.NewPhysicalMemory(x, 1, safe.PhysicalMemoryOptions{Location: safe.DeviceLocation(home)})
	if err != nil {
		return 0, err
	}
	defer memory.Close()
	return memory.Size(), addresses.Map(offset, memory)
}
