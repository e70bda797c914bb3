//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Calls that take memory of the device make room for it.

package safe_test

import (
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimMakesRoom has memory run out at one call of the driver: the package makes room and tries again.
func TestSimMakesRoom(t *testing.T) {
	needsSimulated(t)
	startClean(t) // the destruction of what tests before have closed makes such calls, too
	defer simulated.Reset()
	x, y := open(t, 0), open(t, 1)
	s, e, k := stream(t, x), event(t, x), kernel(t, x, "nothing")
	b := buffer[byte](t, x, 64)
	modern := driverOf(t) >= 12000
	load, find := "cuModuleLoadDataEx", "cuModuleGetFunction"
	if modern {
		load, find = "cuLibraryLoadData", "cuKernelGetFunction"
	}
	batch := newBatch(t, x)
	require.NoError(t, errors.Join(safe.BatchFill(batch, b, 1), batch.Launch(k, one), batch.Record(e)))
	closed := func(c io.Closer, err error) error {
		if err != nil {
			return err
		}
		return c.Close()
	}
	for _, test := range []struct {
		name, function string
		call           func() error
	}{
		{"Open", "cuDevicePrimaryCtxRetain", func() error { c, err := safe.Open(0); return closed(c, err) }},
		{"NewContext", contextCreation(t), func() error {
			c, err := safe.NewContext(x.Device())
			return closed(c, err)
		}},
		{"LoadFile", load, func() error {
			c, err := safe.LoadFile(x, "testdata/kernels.ptx")
			return closed(c, err)
		}},
		{"Module.Kernel", find, func() error {
			m, err := safe.LoadFile(x, "testdata/kernels.ptx")
			require.NoError(t, err)
			_, err = m.Kernel("fill")
			return errors.Join(err, m.Close())
		}},
		{"Kernel.Launch", "cuLaunchKernel", func() error { return k.Launch(s, one) }},
		{"Batch.Submit", "cuLaunchKernel", func() error { return batch.Submit(s) }},
		{"NewStream", "cuStreamCreateWithPriority", func() error { c, err := safe.NewStream(x); return closed(c, err) }},
		{"NewEvent", "cuEventCreate", func() error { c, err := safe.NewEvent(x); return closed(c, err) }},
		{"NewPool", "cuMemPoolCreate", func() error { c, err := safe.NewPool(x); return closed(c, err) }},
		{"NewBuffer", "cuMemAlloc_v2", func() error {
			c, err := safe.NewBufferWith[byte](x, 64, safe.BufferOptions{Plain: true})
			return closed(c, err)
		}},
		{"SetLimit", "cuCtxSetLimit", func() error { return x.SetLimit(driver.CU_LIMIT_STACK_SIZE, 2048) }},
		{"EnablePeerAccess", "cuCtxEnablePeerAccess", func() error { return errors.Join(x.EnablePeerAccess(y), x.DisablePeerAccess(y)) }},
		{"Zero", "cuStreamCreate", func() error { return b.Fill(0) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer simulated.Reset()
			before := simulated.Calls(test.function)
			simulated.Fail(test.function, 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
			require.NoError(t, test.call())
			if simulated.Calls(test.function) > before { // else a spare one was taken
				assert.Equal(t, test.function, simulated.Failed())
			}
		})
	}
	require.NoError(t, s.Synchronize())
	noViolation(t)
}

// contextCreation is the function that creates contexts.
func contextCreation(t *testing.T) string {
	if driverOf(t) >= 12050 {
		return "cuCtxCreate_v4"
	}
	return "cuCtxCreate_v2"
}

// TestGPULoadWhenFull loads modules and opens more while dropped buffers fill the device.
func TestGPULoadWhenFull(t *testing.T) {
	if !onGPU {
		t.Skip("objects of the simulated driver take no memory of the device")
	}
	x := open(t, 0)
	for name, call := range map[string]func() (io.Closer, error){
		"LoadFile":   func() (io.Closer, error) { return safe.LoadFile(x, "testdata/kernels.ptx") },
		"NewContext": func() (io.Closer, error) { return safe.NewContext(x.Device()) },
		"NewStream":  func() (io.Closer, error) { return safe.NewStream(x) },
	} {
		t.Run(name, func(t *testing.T) {
			fillDevice(t, x)
			c, err := call()
			require.NoError(t, err)
			require.NoError(t, c.Close())
		})
	}
}

// fillDevice fills the device's memory with buffers, and drops them.
func fillDevice(t *testing.T, x *safe.Context) {
	t.Helper()
	var all []*safe.Buffer[byte]
	for size := 1 << 30; size >= 1<<20; size /= 4 {
		for {
			b, err := safe.NewBufferWith[byte](x, size, safe.BufferOptions{Plain: true})
			if err != nil {
				require.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
				break
			}
			all = append(all, b)
		}
	}
	t.Logf("%d buffers", len(all))
	runtime.KeepAlive(all)
}
