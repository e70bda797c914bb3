//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cudabind/cudabind/cuda/safe"
)

// The device fills pinned memory in the order of a stream.
func ExamplePinned_FillAsync() {
	fmt.Println(fillAndCopy())
	// Output: [5 5 5] [5 5 5] <nil>
}

// The device copies between two pieces of pinned memory in the order of a stream.
func ExamplePinned_CopyFromAsync() {
	fmt.Println(fillAndCopy())
	// Output: [5 5 5] [5 5 5] <nil>
}

func fillAndCopy() (filled, copied []uint32, err error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, nil, err
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	a, err := safe.NewPinned[uint32](x, 3)
	if err != nil {
		return nil, nil, err
	}
	defer a.Close()
	b, err := safe.NewPinned[uint32](x, 3)
	if err != nil {
		return nil, nil, err
	}
	defer b.Close()
	err = errors.Join(a.FillAsync(s, 5), b.CopyFromAsync(s, a), s.Synchronize())
	return slices.Clone(a.Data()), slices.Clone(b.Data()), err
}

// A batch moves several buffers at once, each to its own place.
func ExampleStream_PrefetchAll() {
	fmt.Println(moved())
	// Output: 1 2 <nil>
}

// What a program overwrites anyway need not be moved.
func ExampleStream_DiscardAll() {
	fmt.Println(moved())
	// Output: 1 2 <nil>
}

func moved() (first, second uint32, err error) {
	x, err := safe.Open(0)
	if err != nil {
		return 0, 0, err
	}
	defer x.Close()
	s, err := safe.NewStream(x)
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	var buffers [2]*safe.Buffer[uint32]
	for i := range buffers {
		if buffers[i], err = safe.NewManagedBuffer[uint32](x, 1<<20); err != nil {
			return 0, 0, err
		}
		defer buffers[i].Close()
		buffers[i].Data()[0] = uint32(i + 1)
	}
	device := safe.DeviceLocation(x.Device())
	err = s.PrefetchAll([]safe.PrefetchOp{
		safe.NewPrefetchOp(buffers[0], device),
		safe.NewPrefetchOp(buffers[1], safe.HostLocation),
	})
	if err != nil {
		return 0, 0, err
	}
	// The second half of each buffer is not needed any more. A driver before CUDA 13.0 keeps it.
	var unused []safe.PrefetchOp
	for _, b := range buffers {
		half, err := b.Slice(1<<19, 1<<20)
		if err != nil {
			return 0, 0, err
		}
		unused = append(unused, safe.NewPrefetchOp(half, safe.Location{}))
	}
	if err := s.DiscardAll(unused); err != nil && !errors.Is(err, safe.ErrNotSupported) {
		return 0, 0, err
	}
	err = s.Synchronize()
	return buffers[0].Data()[0], buffers[1].Data()[0], err
}

// The graph's memory is accessible to all devices that can reach it.
func ExampleAddAllocWith() {
	fmt.Println(graphMemory())
	// Output: [3 3] <nil>
}

func graphMemory() ([]uint32, error) {
	x, err := safe.Open(0)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	g, err := safe.NewGraph(x)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	devices, err := safe.Devices()
	if err != nil {
		return nil, err
	}
	var peers []safe.Device
	for _, d := range devices {
		if can, err := d.CanAccessPeer(x.Device()); err == nil && can {
			peers = append(peers, d)
		}
	}
	b, alloc, err := safe.AddAllocWith[uint32](g, 2, safe.AllocOptions{Access: peers})
	if err != nil {
		return nil, err
	}
	result, err := safe.NewPinned[uint32](x, 2)
	if err != nil {
		return nil, err
	}
	defer result.Close()
	fill, err := g.Add(safe.FillNode(b, 3), alloc)
	if err != nil {
		return nil, err
	}
	back, err := g.Add(safe.CopyNode(result, b), fill)
	if err != nil {
		return nil, err
	}
	if _, err := g.Add(safe.FreeNode(b), back); err != nil {
		return nil, err
	}
	err = runOnce(x, g)
	return slices.Clone(result.Data()), err
}

// runOnce launches a graph once and waits.
func runOnce(x *safe.Context, g *safe.Graph) error {
	s, err := safe.NewStream(x)
	if err != nil {
		return err
	}
	defer s.Close()
	e, err := g.Instantiate()
	if err != nil {
		return err
	}
	defer e.Close()
	return errors.Join(e.Launch(s), s.Synchronize())
}
