package main

import (
	"fmt"
	"io"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

// A side is one device of two.
type side struct {
	x      *safe.Context
	stream *safe.Stream
	add    *safe.Kernel
	values *safe.Buffer[float32]
}

// simpleP2P has two devices reach each other's memory: copies go from one to the
// other and back, and kernels of each read what the other has. One device alone has
// no other to reach, and some pairs have no way between them: then it says so.
func simpleP2P(x *safe.Context, m *safe.Module, w io.Writer) error {
	other, found, err := peerOf(x.Device())
	if err != nil {
		return err
	}
	if !found {
		fmt.Fprintln(w, "simpleP2P: no other device here and this one can reach each other's memory")
		return nil
	}
	y, err := safe.Open(other.Ordinal())
	if err != nil {
		return err
	}
	defer y.Close()
	there, err := safe.Load(y, kernels)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := x.EnablePeerAccess(y); err != nil { // for kernels of x
		return err
	}
	defer x.DisablePeerAccess(y)
	if err := y.EnablePeerAccess(x); err != nil { // and for those of y
		return err
	}
	defer y.DisablePeerAccess(x)

	const n = 1 << 20
	var sides [2]*side
	for i, m := range []*safe.Module{m, there} {
		if sides[i], err = newSide([]*safe.Context{x, y}[i], m, n); err != nil {
			return err
		}
		defer sides[i].close()
	}
	if err := toAndFro(sides[0], sides[1], w); err != nil {
		return err
	}
	return readEachOther(sides[0], sides[1], w)
}

// peerOf finds a device that d can reach, and that can reach d.
func peerOf(d safe.Device) (peer safe.Device, found bool, err error) {
	devices, err := safe.Devices()
	if err != nil {
		return peer, false, err
	}
	for _, peer := range devices {
		if peer == d {
			continue
		}
		to, err := d.CanAccessPeer(peer)
		if err != nil {
			return peer, false, err
		}
		from, err := peer.CanAccessPeer(d)
		if err != nil {
			return peer, false, err
		}
		if to && from {
			return peer, true, nil
		}
	}
	return peer, false, nil
}

// toAndFro copies the values of a to b, and back, and tells how fast that is.
func toAndFro(a, b *side, w io.Writer) error {
	const rounds = 10
	if err := a.values.FillAsync(a.stream, 3); err != nil {
		return err
	}
	if err := a.stream.Synchronize(); err != nil {
		return err
	}
	start := time.Now()
	for range rounds {
		if err := b.values.CopyFromAsync(a.stream, a.values); err != nil {
			return err
		}
		if err := a.values.CopyFromAsync(a.stream, b.values); err != nil {
			return err
		}
	}
	if err := a.stream.Synchronize(); err != nil {
		return err
	}
	took := time.Since(start)
	if err := check(b.values, 3); err != nil {
		return err
	}
	bytes := 2 * rounds * a.values.Size()
	fmt.Fprintf(w, "simpleP2P: %d copies between two devices, took %v, %.1f GB/s\n", 2*rounds, took, float64(bytes)/took.Seconds()/1e9)
	return nil
}

// readEachOther has a kernel of each device add up the values of both. The
// second begins when the event of the first is recorded.
func readEachOther(a, b *side, w io.Writer) error {
	added, err := safe.NewEventWith(a.x, safe.EventOptions{DisableTiming: true})
	if err != nil {
		return err
	}
	defer added.Close()
	n := a.values.Len()
	if err := a.add.Launch(a.stream, safe.Threads(n), a.values.Arg(), b.values.Arg(), a.values.Arg(), safe.Val(uint32(n))); err != nil {
		return err
	}
	if err := a.stream.Record(added); err != nil {
		return err
	}
	if err := b.stream.WaitEvent(added); err != nil {
		return err
	}
	if err := b.add.Launch(b.stream, safe.Threads(n), a.values.Arg(), b.values.Arg(), b.values.Arg(), safe.Val(uint32(n))); err != nil {
		return err
	}
	if err := check(a.values, 3+3); err != nil {
		return err
	}
	if err := check(b.values, 6+3); err != nil {
		return err
	}
	fmt.Fprintf(w, "simpleP2P: kernels of two devices added %d values that are the other's\n", n)
	return nil
}

// check waits for the work on b, and looks at its values.
func check(b *safe.Buffer[float32], want float32) error {
	got := make([]float32, b.Len())
	if err := b.CopyToHost(got); err != nil {
		return err
	}
	for i, v := range got {
		if v != want {
			return fmt.Errorf("value %d is %v, not %v", i, v, want)
		}
	}
	return nil
}

func newSide(x *safe.Context, m *safe.Module, n int) (s *side, err error) {
	s = &side{x: x}
	if s.add, err = m.Kernel("add"); err != nil {
		return nil, err
	}
	if s.stream, err = safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true}); err != nil {
		return nil, err
	}
	if s.values, err = safe.NewBuffer[float32](x, n); err != nil {
		s.stream.Close()
		return nil, err
	}
	return s, nil
}

func (s *side) close() {
	s.values.Close()
	s.stream.Close()
}
