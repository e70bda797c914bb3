//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const unknown = driver.CUDA_ERROR_UNKNOWN

func TestFail(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	flags := func() error { var f driver.CUstream_flags; return driver.CuStreamGetFlags(s, &f) }
	query := func() error { return driver.CuStreamQuery(s) }
	exchange := func() error {
		mode := driver.CU_STREAM_CAPTURE_MODE_GLOBAL
		return driver.CuThreadExchangeStreamCaptureMode(&mode)
	}
	for _, c := range []struct {
		name, function string
		nth            int
		calls          []func() error
		want           []error
		failed         string
	}{
		{"the next", "cuStreamQuery", 1, []func() error{query, query}, []error{unknown, nil}, "cuStreamQuery"},
		{"the third", "cuStreamQuery", 3, []func() error{query, query, query, query}, []error{nil, nil, unknown, nil}, "cuStreamQuery"},
		{"others do not count", "cuStreamQuery", 2, []func() error{query, flags, flags, query}, []error{nil, nil, nil, unknown}, "cuStreamQuery"},
		{"any", "", 2, []func() error{query, flags, query}, []error{nil, unknown, nil}, "cuStreamGetFlags"},
		{"any but what prepares others", "", 2, []func() error{exchange, query, exchange, exchange, query}, []error{nil, nil, nil, nil, unknown}, "cuStreamQuery"},
		{"what prepares others, by name", "cuThreadExchangeStreamCaptureMode", 1, []func() error{exchange}, []error{unknown}, "cuThreadExchangeStreamCaptureMode"},
		{"taken back", "cuStreamQuery", 0, []func() error{query, query}, []error{nil, nil}, ""},
		{"not reached", "cuStreamQuery", 3, []func() error{query, query}, []error{nil, nil}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer control.Reset()
			control.Fail(c.function, c.nth, uint32(unknown))
			for i, call := range c.calls {
				assert.Equal(t, c.want[i], call(), "call %d", i+1)
			}
			assert.Equal(t, c.failed, control.Failed())
		})
	}
}

// TestFailBeforeFirstCall: a function can be named before it was ever called.
func TestFailBeforeFirstCall(t *testing.T) {
	defer control.Reset()
	primary(t, 0)
	before := control.Calls("cuCtxGetApiVersion")
	control.Fail("cuCtxGetApiVersion", 1, uint32(unknown))
	var v uint32
	assert.ErrorIs(t, driver.CuCtxGetApiVersion(0, &v), unknown)
	assert.NoError(t, driver.CuCtxGetApiVersion(0, &v))
	assert.Equal(t, before+2, control.Calls("cuCtxGetApiVersion"))
}

// TestFailDoesNothing: what was made to fail has no effect.
func TestFailDoesNothing(t *testing.T) {
	primary(t, 0)
	p := allocate(t, 64)
	control.Fail("cuMemFree_v2", 1, uint32(unknown))
	assert.ErrorIs(t, driver.CuMemFree(p), unknown)
	assert.Equal(t, 1, control.Live("memory"))
	assert.NoError(t, driver.CuMemFree(p))
	assert.Zero(t, control.Live("memory"))
}

// TestDelay: no machine is so slow that a call returns too early.
func TestDelay(t *testing.T) {
	primary(t, 0)
	const d = 20 * time.Millisecond
	control.Delay("cuMemGetInfo_v2", d)
	var free, total uint64
	start := time.Now()
	require.NoError(t, driver.CuMemGetInfo(&free, &total))
	assert.GreaterOrEqual(t, time.Since(start), d)
}

// TestDelayEnds: Reset ends the delay of a call in flight.
func TestDelayEnds(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	control.Delay("cuStreamBeginCapture_v2", time.Hour)
	done := make(chan error, 1)
	go func() { done <- driver.CuStreamBeginCapture(s, driver.CU_STREAM_CAPTURE_MODE_RELAXED) }()
	require.Eventually(t, func() bool { return control.Flying() == 1 }, time.Minute, time.Millisecond)
	control.Reset()
	select {
	case err := <-done:
		assert.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it lasts")
	}
	var g driver.CUgraph
	require.NoError(t, driver.CuStreamEndCapture(s, &g))
	require.NoError(t, driver.CuGraphDestroy(g))
}

// TestDelayOfOthers: a call that flies keeps its delay, whatever is said of the next ones.
func TestDelayOfOthers(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	control.Widen(20 * time.Millisecond) // some calls fly for so long before they get further
	defer control.Widen(0)
	for range 40 {
		control.Delay("cuStreamGetId", time.Hour)
		over := make(chan error, 1)
		go func() { var id uint64; over <- driver.CuStreamGetId(s, &id) }()
		require.Eventually(t, func() bool { return control.Flying() == 1 }, time.Minute, time.Millisecond)
		control.Delay("cuStreamGetId", 0)
		require.True(t, blocks(over, true))
		control.Reset()
		require.NoError(t, <-over)
	}
}

func TestHold(t *testing.T) {
	primary(t, 0)
	s, e, p := stream(t), event(t), memory(t, 4)
	control.Hold(true)
	require.NoError(t, driver.CuMemsetD32Async(p, 7, 1, s))
	require.NoError(t, driver.CuEventRecord(e, s))
	for range 100 {
		require.ErrorIs(t, driver.CuStreamQuery(s), driver.CUDA_ERROR_NOT_READY)
		require.ErrorIs(t, driver.CuEventQuery(e), driver.CUDA_ERROR_NOT_READY)
	}
	control.Hold(false)
	require.NoError(t, driver.CuEventSynchronize(e))
	require.NoError(t, driver.CuStreamSynchronize(s))
	assert.Equal(t, []uint32{7}, words(t, p, 1))
}

// TestStrict: an older driver wants the context of what it is called for.
func TestStrict(t *testing.T) {
	c := primary(t, 0)
	s := stream(t)
	require.NoError(t, driver.CuCtxPopCurrent(nil))
	assert.NoError(t, driver.CuStreamQuery(s))
	control.Strict(true)
	defer control.Strict(false)
	assert.ErrorIs(t, driver.CuStreamQuery(s), driver.CUDA_ERROR_INVALID_CONTEXT)
	require.NoError(t, driver.CuCtxPushCurrent(c))
	assert.NoError(t, driver.CuStreamQuery(s))
}

func TestFault(t *testing.T) {
	primary(t, 0)
	s, e := stream(t), event(t)
	control.Hold(true)
	require.NoError(t, driver.CuEventRecord(e, s))
	control.Fault(uint32(driver.CUDA_ERROR_LAUNCH_FAILED))
	for _, err := range []error{
		driver.CuStreamSynchronize(s), driver.CuStreamQuery(s), driver.CuEventSynchronize(e), driver.CuEventRecord(e, s),
		driver.CuCtxSynchronize(), driver.CuMemAlloc(new(driver.CUdeviceptr), 1),
	} {
		assert.ErrorIs(t, err, driver.CUDA_ERROR_LAUNCH_FAILED)
	}
	control.Reset()
	assert.NoError(t, driver.CuStreamSynchronize(s))
}

// TestFaultIsLate: until a fault shows, calls succeed that do not wait for what had it.
func TestFaultIsLate(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*testing.T, driver.CUstream)
	}{
		{"of the control", func(*testing.T, driver.CUstream) { control.Fault(uint32(driver.CUDA_ERROR_LAUNCH_FAILED)) }},
		{"of a kernel", func(t *testing.T, s driver.CUstream) { require.NoError(t, launch(kernel(t, "trap"), s, 0)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary(t, 0)
			bad, idle, e := stream(t), stream(t), event(t)
			const d = 40 * time.Millisecond
			trap := kernel(t, "trap")
			control.FaultDelay(time.Hour)
			c.fault(t, bad)
			require.NoError(t, launch(trap, bad, 0))
			require.NoError(t, driver.CuStreamSynchronize(idle))
			require.NoError(t, driver.CuEventRecord(e, idle))
			require.NoError(t, driver.CuEventSynchronize(e))
			assert.ErrorIs(t, driver.CuStreamQuery(bad), driver.CUDA_ERROR_NOT_READY)
			control.Reset()

			open := gate(t, idle)
			start := time.Now()
			control.FaultDelay(d)
			require.NoError(t, launch(trap, bad, 0))
			assert.ErrorIs(t, driver.CuStreamSynchronize(idle), driver.CUDA_ERROR_LAUNCH_FAILED, "whatever it waits for")
			assert.GreaterOrEqual(t, time.Since(start), d)
			assert.ErrorIs(t, driver.CuEventQuery(e), driver.CUDA_ERROR_LAUNCH_FAILED)
			open()
			control.Reset()
		})
	}
}

func TestLive(t *testing.T) {
	primary(t, 0)
	s := stream(t)
	for _, c := range []struct {
		kind string
		make func() (func() error, error)
	}{
		{"primary", func() (func() error, error) {
			var c driver.CUcontext
			err := driver.CuDevicePrimaryCtxRetain(&c, 0)
			return func() error { return driver.CuDevicePrimaryCtxRelease(0) }, err
		}},
		{"context", func() (func() error, error) {
			var c driver.CUcontext
			err := driver.CuCtxCreate_v2(&c, 0, 0)
			return func() error { return driver.CuCtxDestroy(c) }, err
		}},
		{"stream", func() (func() error, error) {
			var s driver.CUstream
			err := driver.CuStreamCreate(&s, 0)
			return func() error { return driver.CuStreamDestroy(s) }, err
		}},
		{"event", func() (func() error, error) {
			var e driver.CUevent
			err := driver.CuEventCreate(&e, 0)
			return func() error { return driver.CuEventDestroy(e) }, err
		}},
		{"memory", func() (func() error, error) {
			var p driver.CUdeviceptr
			err := driver.CuMemAlloc(&p, 1)
			return func() error { return driver.CuMemFree(p) }, err
		}},
		{"async", func() (func() error, error) {
			var p driver.CUdeviceptr
			err := driver.CuMemAllocAsync(&p, 1, s)
			return func() error {
				if err := driver.CuMemFreeAsync(p, s); err != nil {
					return err
				}
				return driver.CuStreamSynchronize(s)
			}, err
		}},
		{"graph", func() (func() error, error) {
			if err := driver.CuStreamBeginCapture(s, driver.CU_STREAM_CAPTURE_MODE_RELAXED); err != nil {
				return nil, err
			}
			var g driver.CUgraph
			err := driver.CuStreamEndCapture(s, &g)
			return func() error { return driver.CuGraphDestroy(g) }, err
		}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			primary(t, 0)
			before, all := control.Live(c.kind), control.Live("")
			undo, err := c.make()
			require.NoError(t, err)
			assert.Equal(t, before+1, control.Live(c.kind))
			assert.Equal(t, all+1, control.Live(""))
			assert.Contains(t, control.List(), c.kind)
			require.NoError(t, undo())
			assert.Equal(t, before, control.Live(c.kind))
			assert.Equal(t, all, control.Live(""))
		})
	}
}

func TestLostAndPurged(t *testing.T) {
	primary(t, 0)
	var c driver.CUcontext
	var s driver.CUstream
	require.NoError(t, driver.CuCtxCreate_v2(&c, 0, 0))
	require.NoError(t, driver.CuStreamCreate(&s, 0))
	allocate(t, 1)
	require.NoError(t, driver.CuCtxDestroy(c))
	assert.Equal(t, 2, control.Lost(), "the stream and the memory")
	assert.Zero(t, control.Lost(), "since the last call")
	assert.Zero(t, control.Live("stream")+control.Live("memory"))

	require.NoError(t, driver.CuCtxCreate_v2(&c, 0, 0))
	require.NoError(t, driver.CuStreamCreate(&s, 0))
	require.NoError(t, driver.CuCtxPopCurrent(nil))
	control.Purge()
	assert.Zero(t, control.Live(""), control.List())
	control.Lost()
	require.NoError(t, driver.CuDevicePrimaryCtxRetain(&c, 0), "what the test gives back")
}

// TestCapability: the devices report what they are told, until Reset.
func TestCapability(t *testing.T) {
	capability := func() (major, minor int32) {
		require.NoError(t, driver.CuDeviceGetAttribute(&major, driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0))
		require.NoError(t, driver.CuDeviceGetAttribute(&minor, driver.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0))
		return major, minor
	}
	major, minor := capability()
	t.Cleanup(control.Reset)
	control.Capability(8, 6)
	toldMajor, toldMinor := capability()
	assert.Equal(t, []int32{8, 6}, []int32{toldMajor, toldMinor})
	control.Reset()
	againMajor, againMinor := capability()
	assert.Equal(t, []int32{major, minor}, []int32{againMajor, againMinor})
}
