//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Copies between devices while peer access is enabled. On two H100s, a copy that began
// meanwhile faulted in 11 of 16 processes of calls in C. Runs on any driver with two devices,
// in processes of its own.

package safe_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/require"
)

// crossing copies to another device and back, and checks what arrives.
type crossing struct {
	here, there *safe.Context
	s           *safe.Stream
	v           uint32
}

const crossed = 16 << 10 // values

// copies fills memory here, calls copy to copy it there, and copies it back to the host.
func (c *crossing) copies(copy func(dst, src *safe.Buffer[uint32]) error) error {
	src, err := safe.NewBuffer[uint32](c.here, crossed)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := safe.NewBuffer[uint32](c.there, crossed)
	if err != nil {
		return err
	}
	defer dst.Close()
	c.v++
	host := make([]uint32, crossed)
	if err := errors.Join(src.FillAsync(c.s, c.v), copy(dst, src), dst.CopyToHost(host)); err != nil {
		return err
	}
	for i, v := range host {
		if v != c.v {
			return fmt.Errorf("value %d is %d, not %d", i, v, c.v)
		}
	}
	return nil
}

func (c *crossing) async() error {
	return c.copies(func(dst, src *safe.Buffer[uint32]) error { return dst.CopyFromAsync(c.s, src) })
}

func (c *crossing) now() error {
	return c.copies(func(dst, src *safe.Buffer[uint32]) error { return dst.CopyFrom(src) })
}

func (c *crossing) pitched() error {
	return c.copies(func(dst, src *safe.Buffer[uint32]) error {
		to, err := dst.Pitched(safe.Extent{Width: crossed / 4, Height: 4}, 0)
		if err != nil {
			return err
		}
		from, err := src.Pitched(safe.Extent{Width: crossed / 4, Height: 4}, 0)
		return errors.Join(err, to.CopyFromAsync(c.s, from))
	})
}

func (c *crossing) batched() error {
	return c.copies(func(dst, src *safe.Buffer[uint32]) error {
		b, err := safe.NewBatch(c.here)
		if err != nil {
			return err
		}
		return errors.Join(safe.BatchCopy(b, dst, src), b.Submit(c.s))
	})
}

// TestPeerRaces: access to memory changes beside copies that may use it.
func TestPeerRaces(t *testing.T) {
	ways := map[string]func(*crossing) error{
		"asynchronous": (*crossing).async, "synchronous": (*crossing).now, "pitched": (*crossing).pitched, "in a batch": (*crossing).batched,
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				watch(t)
				if !onGPU {
					simulated.Widen(50 * time.Microsecond)
				}
				x, y := open(t, 0), second(t)
				if can, err := x.Device().CanAccessPeer(y.Device()); err != nil || !can {
					t.Skip("the devices cannot reach each other's memory")
				}
				p := pool(t, x, safe.PoolOptions{})
				var c racers
				for _, pair := range [][2]*safe.Context{{x, y}, {y, x}, {x, y}} {
					k := &crossing{here: pair[0], there: pair[1], s: stream(t, pair[0])}
					c.add(1, func() error { return way(k) })
				}
				time.Sleep(stormTime(t))
				for range 50 { // a driver may do nothing the second time
					require.NoError(t, x.EnablePeerAccess(y))
					require.NoError(t, p.SetAccess(y.Device(), driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
					require.NoError(t, y.EnablePeerAccess(x))
				}
				time.Sleep(stormTime(t))
				require.NoError(t, c.end())
			})
		})
	}
}
