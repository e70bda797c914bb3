//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests make driver calls on virtual memory fail. They need the simulated driver.

package safe_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const simGranule = 2 << 20

// A place is an address range whose first part is mapped.
type place struct {
	r *safe.AddressRange
	p *safe.PhysicalMemory
}

// placed makes a place, which the world closes. It runs before the driver is made to
// fail.
func placed(w *world, x *safe.Context) (l place, err error) {
	if l.r, err = safe.ReserveAddress(x, 2*simGranule, safe.ReserveOptions{}); err != nil {
		return l, err
	}
	also(w, l.r, nil)
	if l.p, err = safe.NewPhysicalMemory(x, 1, safe.PhysicalMemoryOptions{Shareable: sharesFiles}); err != nil {
		return l, err
	}
	also(w, l.p, nil)
	if err = l.r.Map(0, l.p); err != nil {
		return l, err
	}
	return l, l.r.SetAccess(0, simGranule, readWrite)
}

// onPlace is an operation on a place, named after the call that may fail.
func onPlace(do func(w *world, l place) error) func(w *world) error {
	return func(w *world) error {
		l, err := placed(w, w.x)
		if err != nil {
			return err
		}
		return do(w, l)
	}
}

// placing are the operations that those on a place begin with.
var placing = []string{
	"ReserveAddress", "NewPhysicalMemory", "AddressRange.Map", "AddressRange.SetAccess", "NewMappedBuffer", "Buffer.FillAsync", "Buffer.Fill",
	"PhysicalMemory.Export",
}

func init() {
	for _, name := range []string{"AddressRange.Unmap", "AddressRange.Access", "ImportPhysicalMemory"} {
		within[name] = placing
	}
	for _, name := range placing {
		within[name] = append(within[name], placing...)
	}
	within["Linker.Complete"] = []string{"NewLinker", "Linker.Add"}
	operations = append(operations, []operation{
		{"Context.Granularity", func(w *world) error { _, _, err := w.x.Granularity(safe.PhysicalMemoryOptions{}); return err }},
		{"NewPhysicalMemory", func(w *world) error {
			c, err := safe.NewPhysicalMemory(w.x, 1, safe.PhysicalMemoryOptions{Shareable: sharesFiles})
			_, err = also(w, c, err)
			return err
		}},
		{"ReserveAddress", func(w *world) error {
			c, err := safe.ReserveAddress(w.x, 1, safe.ReserveOptions{})
			_, err = also(w, c, err)
			return err
		}},
		{"AddressRange.Map", onPlace(func(w *world, l place) error { return l.r.Map(simGranule, l.p) })},
		{"AddressRange.SetAccess", onPlace(func(w *world, l place) error { return l.r.SetAccess(0, simGranule, 0, w.y.Device()) })},
		{"AddressRange.Access", onPlace(func(w *world, l place) error { _, err := l.r.Access(0, w.x.Device()); return err })},
		{"AddressRange.Unmap", onPlace(func(w *world, l place) error {
			return errors.Join(zero(w, l), l.r.Unmap(0, simGranule))
		})},
		{"PhysicalMemory.Export", onPlace(func(w *world, l place) error {
			f, err := l.p.Export()
			if err == nil {
				f.Close()
			}
			return err
		})},
		{"ImportPhysicalMemory", onPlace(func(w *world, l place) error {
			f, err := l.p.Export()
			if err != nil {
				return err
			}
			defer f.Close()
			c, err := safe.ImportPhysicalMemory(w.x, f, simGranule)
			_, err = also(w, c, err)
			return err
		})},
		{"NewLinker", func(w *world) error {
			c, err := safe.NewLinker(w.x, safe.LoadOptions{})
			_, err = also(w, c, err)
			return err
		}},
		{"Linker.Complete", func(w *world) error {
			c, err := safe.NewLinker(w.x, safe.LoadOptions{})
			if _, err = also(w, c, err); err != nil {
				return err
			}
			if err := c.Add(driver.CU_JIT_INPUT_PTX, "nothing", []byte(nothingPTX)); err != nil {
				return err
			}
			_, err = c.Complete()
			return err
		}},
		{"Load", func(w *world) error {
			c, err := safe.LoadWith(w.x, []byte(nothingPTX), safe.LoadOptions{LineInfo: true})
			_, err = also(w, c, err)
			return err
		}},
		{"Module.Kernels", func(w *world) error { _, err := w.m.Kernels(); return err }},
		{"Kernel.MaxPotentialBlockSize", func(w *world) error {
			_, _, err := w.k.MaxPotentialBlockSize(safe.BlockSizeOptions{})
			return err
		}},
		{"Kernel.MaxPotentialBlockSize", func(w *world) error {
			_, _, err := w.k.MaxPotentialBlockSize(safe.BlockSizeOptions{Limit: 64, SharedFor: func(int) uint64 { return 0 }})
			return err
		}},
		{"Kernel.MaxCooperativeBlocks", func(w *world) error { _, err := w.k.MaxCooperativeBlocks(32, 0); return err }},
		{"Kernel.MaxPotentialClusterSize", func(w *world) error { _, err := w.k.MaxPotentialClusterSize(one); return err }},
		{"Kernel.MaxActiveClusters", func(w *world) error {
			_, err := w.k.MaxActiveClusters(safe.LaunchConfig{Grid: one.Grid, Block: one.Block, Cluster: one.Grid})
			return err
		}},
	}...)
}

// zero uses a place on a stream, and on an internal stream.
func zero(w *world, l place) error {
	b, err := safe.NewMappedBuffer[int32](l.r, 0, 64)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.FillAsync(w.s, 0); err != nil {
		return err
	}
	return b.Fill(0)
}

// TestSimVirtualCloseSweep fails each driver call of closing virtual memory in turn.
func TestSimVirtualCloseSweep(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	reported := collectErrors(t)
	var w *world
	sweep(t, driver.CUDA_ERROR_UNKNOWN, func(n int) error {
		w = &world{}
		x, err := safe.Open(0)
		require.NoError(t, err)
		also(w, x, nil)
		w.s, err = safe.NewStream(x)
		require.NoError(t, err)
		also(w, w.s, nil)
		l, err := placed(w, x)
		require.NoError(t, err)
		require.NoError(t, zero(w, l))
		failing(n, driver.CUDA_ERROR_UNKNOWN)
		return w.close()
	}, func(failed string, err error) {
		settle(t)
		err = errors.Join(append(reported(), err)...)
		if destroys(failed) || failed == "cuMemUnmap" {
			assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN, failed)
		}
		if failed == "cuMemUnmap" {
			nothingAlive(t, "it is tried again")
		}
		fewAlive(t, 1, failed)
		assert.NoError(t, w.close(), "again")
		purge(t)
	})
	assert.Empty(t, simulated.Violation())
}

// TestSimVirtualReset: resources of the process survive a reset of the context, and are
// released afterwards.
func TestSimVirtualReset(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	needs(t, "cuCtxGetId")
	x, err := safe.Open(1)
	require.NoError(t, err)
	w := &world{}
	l, err := placed(w, x)
	require.NoError(t, err)
	also(w, x, nil)
	require.NoError(t, driver.CuDevicePrimaryCtxReset(x.Device().Raw()))
	assert.ErrorIs(t, l.r.Map(simGranule, l.p), safe.ErrReset)
	require.NoError(t, w.close())
	nothingAlive(t, "after the reset")
}

// TestSimVirtualFault: the simulated driver notices a use after unmapping, so the other
// tests in this file can fail.
func TestSimVirtualFault(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s, store := stream(t, x), kernel(t, x, "store")
	r := reserve(t, x, simGranule)
	mapped(t, x, r, 0, simGranule)
	address := r.Raw()
	require.NoError(t, store.Launch(s, one, safe.Val(uint64(address)), safe.Val(uint64(1))))
	require.NoError(t, s.Synchronize())
	assert.Empty(t, simulated.Violation())
	require.NoError(t, r.Unmap(0, simGranule))
	require.NoError(t, store.Launch(s, one, safe.Val(uint64(address)), safe.Val(uint64(1))))
	assert.ErrorIs(t, s.Synchronize(), driver.CUDA_ERROR_ILLEGAL_ADDRESS)
	assert.Contains(t, simulated.Violation(), "virtual memory")
	simulated.Reset()
}
