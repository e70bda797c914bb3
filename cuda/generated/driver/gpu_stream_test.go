//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package driver_test

import (
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGPUStreams(t *testing.T) {
	gpu(t)
	for _, flags := range []driver.CUstream_flags{driver.CU_STREAM_DEFAULT, driver.CU_STREAM_NON_BLOCKING} {
		stream := newStream(t, flags)
		var got driver.CUstream_flags
		require.NoError(t, driver.CuStreamGetFlags(stream, &got))
		assert.Equal(t, flags, got)
		assert.NoError(t, driver.CuStreamQuery(stream), "an idle stream is done")
		assert.NoError(t, driver.CuStreamSynchronize(stream))
	}
	for _, own := range []driver.CUstream{0, driver.CU_STREAM_LEGACY, driver.CU_STREAM_PER_THREAD} {
		assert.NoError(t, driver.CuStreamQuery(own))
		assert.NoError(t, driver.CuStreamSynchronize(own))
	}

	var least, greatest int32
	require.NoError(t, driver.CuCtxGetStreamPriorityRange(&least, &greatest))
	t.Logf("priorities %d to %d", least, greatest)
	assert.LessOrEqual(t, greatest, least)
	for priority := greatest; priority <= least; priority++ {
		var stream driver.CUstream
		require.NoError(t, driver.CuStreamCreateWithPriority(&stream, driver.CU_STREAM_NON_BLOCKING, priority))
		var got int32
		assert.NoError(t, driver.CuStreamGetPriority(stream, &got))
		assert.Equal(t, priority, got)
		assert.NoError(t, driver.CuStreamDestroy(stream))
	}
}

// TestGPULaunch copies in, computes and copies out behind a host function that
// waits for us, so that nothing is done before we have looked.
func TestGPULaunch(t *testing.T) {
	gpu(t)
	const n = 100_003
	stream, start, end := newStream(t, driver.CU_STREAM_NON_BLOCKING), newEvent(t), newEvent(t)
	saxpy, x, y := kernel(t, "saxpy"), deviceFloats(t, n), deviceFloats(t, n)
	in, out := floats(t, n), floats(t, n)
	for i := range n {
		in[i], out[i] = float32(i), 1
	}

	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	wait := drivertest.NewHandle(func() { <-gate })
	defer wait.Delete()
	require.NoError(t, driver.CuLaunchHostFunc(stream, driver.CUhostFn(drivertest.HostFunc()), uintptr(wait)))
	for _, err := range []error{
		driver.CuEventRecord(start, stream),
		driver.CuMemcpyHtoDAsync(x, unsafe.Pointer(&in[0]), 4*n, stream),
		driver.CuMemcpyHtoDAsync(y, unsafe.Pointer(&out[0]), 4*n, stream),
		launchSaxpy(saxpy, stream, n, 2, x, y),
		driver.CuMemcpyDtoHAsync(unsafe.Pointer(&out[0]), y, 4*n, stream),
		driver.CuEventRecord(end, stream),
	} {
		assert.NoError(t, err)
	}
	assert.ErrorIs(t, driver.CuStreamQuery(stream), driver.CUDA_ERROR_NOT_READY)
	assert.ErrorIs(t, driver.CuEventQuery(end), driver.CUDA_ERROR_NOT_READY)
	var elapsed float32
	assert.ErrorIs(t, driver.CuEventElapsedTime(&elapsed, start, end), driver.CUDA_ERROR_NOT_READY)
	assert.EqualValues(t, 1, out[1], "the gate holds nothing back")

	open()
	require.NoError(t, driver.CuEventSynchronize(end))
	require.NoError(t, driver.CuStreamSynchronize(stream))
	assert.NoError(t, driver.CuStreamQuery(stream))
	require.NoError(t, driver.CuEventElapsedTime(&elapsed, start, end))
	t.Logf("%.3f ms", elapsed)
	assert.Positive(t, elapsed)
	for i, v := range out {
		if v != 2*float32(i)+1 {
			t.Fatalf("element %d is %g", i, v)
		}
	}
}

// TestGPUGraph captures a kernel and a host function and replays them. An
// object of the user's lives as long as what was captured.
func TestGPUGraph(t *testing.T) {
	gpu(t)
	const n, replays = 1000, 3
	stream := newStream(t, driver.CU_STREAM_NON_BLOCKING)
	saxpy, x, y := kernel(t, "saxpy"), deviceFloats(t, n), deviceFloats(t, n)
	fill := kernel(t, "fill")
	require.NoError(t, launchFill(fill, stream, n, 3, x))
	require.NoError(t, launchFill(fill, stream, n, 0.5, y))
	ran := make(chan int, replays)
	count := drivertest.NewHandle(func() { ran <- syscall.Gettid() })
	defer count.Delete()

	require.NoError(t, driver.CuStreamBeginCapture(stream, driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
	var status driver.CUstreamCaptureStatus
	require.NoError(t, driver.CuStreamIsCapturing(stream, &status))
	assert.Equal(t, driver.CU_STREAM_CAPTURE_STATUS_ACTIVE, status)
	require.NoError(t, launchSaxpy(saxpy, stream, n, 2, x, y))
	require.NoError(t, driver.CuLaunchHostFunc(stream, driver.CUhostFn(drivertest.HostFunc()), uintptr(count)))
	var graph driver.CUgraph
	require.NoError(t, driver.CuStreamEndCapture(stream, &graph))

	before := drivertest.Destroyed()
	var object driver.CUuserObject
	require.NoError(t, driver.CuUserObjectCreate(&object, 42, driver.CUhostFn(drivertest.Destructor()), 1, driver.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC))
	require.NoError(t, driver.CuGraphRetainUserObject(graph, object, 1, driver.CU_GRAPH_USER_OBJECT_MOVE))
	var exec driver.CUgraphExec
	require.NoError(t, driver.CuGraphInstantiate(&exec, graph, 0))
	require.NoError(t, driver.CuGraphDestroy(graph))
	for range replays {
		require.NoError(t, driver.CuGraphLaunch(exec, stream))
	}
	out := floats(t, n)
	require.NoError(t, driver.CuMemcpyDtoHAsync(unsafe.Pointer(&out[0]), y, 4*n, stream))
	require.NoError(t, driver.CuStreamSynchronize(stream))
	assert.EqualValues(t, 0.5+replays*2*3, out[0])
	assert.EqualValues(t, out[0], out[n-1])
	assert.Len(t, ran, replays, "the host function runs in each replay")

	assert.Equal(t, before, drivertest.Destroyed(), "the executable graph holds the object")
	require.NoError(t, driver.CuGraphExecDestroy(exec))
	assert.Eventually(t, func() bool { return drivertest.Destroyed() == before+42 }, time.Minute, time.Millisecond)
}

// TestGPUCallbacksInGo: the driver runs Go on a thread of its own.
func TestGPUCallbacksInGo(t *testing.T) {
	gpu(t)
	stream := newStream(t, driver.CU_STREAM_NON_BLOCKING)
	threads := make(chan int, 2)
	host := drivertest.NewHandle(func() { threads <- syscall.Gettid() })
	defer host.Delete()
	callback := drivertest.NewHandle(func(of uintptr, status int) {
		assert.Equal(t, stream, driver.CUstream(of))
		assert.Zero(t, status)
		threads <- syscall.Gettid()
	})
	defer callback.Delete()
	require.NoError(t, driver.CuLaunchHostFunc(stream, driver.CUhostFn(drivertest.HostFunc()), uintptr(host)))
	require.NoError(t, driver.CuStreamAddCallback(stream, driver.CUstreamCallback(drivertest.StreamCallback()), uintptr(callback), 0))
	require.NoError(t, driver.CuStreamSynchronize(stream))
	for range 2 {
		assert.NotEqual(t, syscall.Gettid(), receive(t, threads))
	}
}
