package safe

import "github.com/cudabind/cudabind/cuda/generated/driver"

// A PeerLink is the way from a device to another one's memory.
type PeerLink struct {
	From, To Device
	Access   bool // see [Device.CanAccessPeer]; without it the rest is zero
	Rank     int  // 0 is the fastest way on this machine
	Atomics  bool // atomic operations by From on To's memory, over the link
	Arrays   bool // From can use arrays of To
}

// Peers lists the ways between all devices, of each pair both. Use it to decide which devices
// share work, and between which [Context.EnablePeerAccess] is worth it.
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
