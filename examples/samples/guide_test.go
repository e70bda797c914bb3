//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Functions that docs/ shows and that no sample has.

// result waits for a stream until ctx ends, for ten seconds at most.
func result(ctx context.Context, s *safe.Stream, host *safe.Pinned[float32]) (float32, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		return 0, err // the work goes on: leave host alone until it is done
	}
	return host.Data()[0], nil
}

// inTurn makes stream b wait until stream a has written 1 to step, memory of NewBufferWith
// with BufferOptions.Plain.
func inTurn(a, b *safe.Stream, step *safe.Buffer[uint32], values *safe.Buffer[float32], out *safe.Pinned[float32]) error {
	if err := values.FillAsync(a, 4); err != nil {
		return err
	}
	if err := safe.WriteValue(a, step.At(0), 1); err != nil {
		return err
	}
	if err := safe.WaitValue(b, step.At(0), 1, driver.CU_STREAM_WAIT_VALUE_GEQ); err != nil {
		return err
	}
	return values.CopyToHostAsync(b, out)
}

// keepInCache keeps a table in the L2 cache for the kernels of a stream.
func keepInCache(x *safe.Context, s *safe.Stream, table *safe.Buffer[float32]) error {
	if err := x.SetLimit(driver.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, table.Size()); err != nil {
		return err // CUDA_ERROR_UNSUPPORTED_LIMIT if the device cannot: go on without
	}
	var v driver.CUstreamAttrValue
	*v.AccessPolicyWindow() = driver.CUaccessPolicyWindow{
		Base_ptr: ffi.Pointer(table.Raw()), Num_bytes: table.Size(), HitRatio: 1,
		HitProp: driver.CU_ACCESS_PROPERTY_PERSISTING, MissProp: driver.CU_ACCESS_PROPERTY_STREAMING,
	}
	return s.SetAttribute(driver.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, v)
}

// passOn fills memory of one device and then copies it to another device.
func passOn(one, other *safe.Stream, from, to *safe.Buffer[float32]) error {
	if err := from.FillAsync(one, 1); err != nil {
		return err
	}
	if err := other.WaitStream(one); err != nil {
		return err
	}
	return to.CopyFromAsync(other, from)
}

// clearRaw clears memory with a raw driver call.
func clearRaw(x *safe.Context, s *safe.Stream, b *safe.Buffer[float32]) error {
	defer runtime.KeepAlive(b) // a raw handle keeps no object alive
	defer runtime.KeepAlive(s)
	return x.WithCurrent(func() error {
		if err := driver.CuMemsetD32Async(b.Raw(), 0, uint64(b.Len()), s.Raw()); err != nil {
			return err
		}
		return s.Synchronize() // b does not know about this use: closing it now would free the memory
	})
}

// addTo captures a memset into a graph, with separate calls to begin and to end.
func addTo(g *safe.Graph, s *safe.Stream, values *safe.Buffer[float32]) error {
	c, err := s.BeginCaptureTo(g, safe.CaptureToOptions{})
	if err != nil {
		return err
	}
	err = values.FillAsync(s, 2)
	_, end := c.End() // always
	return errors.Join(err, end)
}

func TestGuide(t *testing.T) {
	const n = 1000
	devices, err := safe.Devices()
	require.NoError(t, err)
	x, err := safe.Open(0)
	require.NoError(t, err)
	defer x.Close()
	y, err := safe.Open(len(devices) - 1) // may be the same
	require.NoError(t, err)
	defer y.Close()
	streams, err := newStreams(x, 2)
	require.NoError(t, err)
	defer closeAll(streams)
	other, err := newStreams(y, 1)
	require.NoError(t, err)
	defer closeAll(other)
	events, err := newEvents(x, 1, safe.EventOptions{DisableTiming: true})
	require.NoError(t, err)
	defer closeAll(events)
	step, err := safe.NewBufferWith[uint32](x, 1, safe.BufferOptions{Plain: true})
	require.NoError(t, err)
	defer step.Close()
	require.NoError(t, step.Fill(0))
	values, err := safe.NewBuffer[float32](x, n)
	require.NoError(t, err)
	defer values.Close()
	there, err := safe.NewBuffer[float32](y, n)
	require.NoError(t, err)
	defer there.Close()
	out, err := safe.NewPinned[float32](x, n)
	require.NoError(t, err)
	defer out.Close()

	require.NoError(t, inTurn(streams[0], streams[1], step, values, out))
	got, err := result(context.Background(), streams[1], out)
	require.NoError(t, err)
	assert.EqualValues(t, 4, got)

	if err := keepInCache(x, streams[0], values); !errors.Is(err, driver.CUDA_ERROR_UNSUPPORTED_LIMIT) {
		require.NoError(t, err)
		v, err := streams[0].Attribute(driver.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
		require.NoError(t, err)
		assert.Equal(t, values.Size(), v.AccessPolicyWindow().Num_bytes)
		require.NoError(t, x.SetLimit(driver.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0))
	}

	assert.Equal(t, devices[0], streams[0].Device())
	assert.Equal(t, devices[len(devices)-1], other[0].Device())
	require.NoError(t, passOn(streams[0], other[0], values, there))
	data := make([]float32, n)
	require.NoError(t, there.CopyToHost(data))
	assert.EqualValues(t, 1, data[n-1])

	require.NoError(t, clearRaw(x, streams[0], values))
	require.NoError(t, values.CopyToHost(data))
	assert.Zero(t, data[0])

	graph, err := safe.NewGraph(x)
	require.NoError(t, err)
	defer graph.Close()
	if err := addTo(graph, streams[0], values); errors.Is(err, safe.ErrNotSupported) {
		t.Skip(err)
	} else {
		require.NoError(t, err)
	}
	exec, err := graph.Instantiate()
	require.NoError(t, err)
	defer exec.Close()
	require.NoError(t, exec.Launch(streams[0]))
	require.NoError(t, values.CopyToHost(data))
	assert.EqualValues(t, 2, data[n-1])
}
