package safe

import "github.com/cudabind/cudabind/cuda/generated/driver"

// A PeerLink describes access from one device to the memory of another.
type PeerLink struct {
	From, To Device
	Access   bool // see [Device.CanAccessPeer]; if false, the rest is zero
	Rank     int  // relative performance: 0 is the fastest link on this machine
	Atomics  bool // From can use atomic operations on To's memory
	Arrays   bool // From can access CUDA arrays of To
}

// Peers returns the links between all devices, two for each pair. Use it to decide which
// devices share work, and for which pairs [Context.EnablePeerAccess] is worthwhile.
// Source: cuDeviceGetCount, cuDeviceCanAccessPeer, cuDeviceGetP2PAttribute.
func Peers() ([]PeerLink, error) {
	const op = "Peers"
	devices, err := Devices()
	if err != nil {
		return nil, wrap(op, err)
	}
	var links []PeerLink
	for _, from := range devices {
		for _, to := range devices {
			if from == to {
				continue
			}
			l, err := peerLink(from, to)
			if err != nil {
				return nil, wrap(op, err)
			}
			links = append(links, l)
		}
	}
	return links, nil
}

func peerLink(from, to Device) (PeerLink, error) {
	l := PeerLink{From: from, To: to}
	var err error
	if l.Access, err = from.CanAccessPeer(to); err != nil || !l.Access {
		return l, err
	}
	if l.Rank, err = from.PeerAttribute(to, driver.CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK); err != nil {
		return l, err
	}
	for _, a := range []struct {
		is *bool
		id driver.CUdevice_P2PAttribute
	}{
		{&l.Atomics, driver.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED},
		{&l.Arrays, driver.CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED},
	} {
		n, err := from.PeerAttribute(to, a.id)
		if err != nil {
			return l, err
		}
		*a.is = n != 0
	}
	return l, nil
}
