//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What must not stay behind: handles that CUDA uses again, streams of contexts of the program, and halves of
// what could not be made. What errors name.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimPoolHandleReused: CurrentPool does not take a pool of other code for a closed one that had its handle.
func TestSimPoolHandleReused(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	watch(t)
	x := open(t, 0)
	p, err := safe.NewPool(x)
	require.NoError(t, err)
	raw := p.Raw()
	require.NoError(t, p.Close())
	settle(t)
	props := driver.CUmemPoolProps{AllocType: driver.CU_MEM_ALLOCATION_TYPE_PINNED, Location: driver.CUmemLocation{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE}}
	var foreign driver.CUmemoryPool
	require.NoError(t, x.WithCurrent(func() error {
		return errors.Join(driver.CuMemPoolCreate(&foreign, &props), driver.CuDeviceSetMemPool(0, foreign))
	}))
	require.Equal(t, raw, foreign, "the simulated driver uses handles again")
	now, err := safe.CurrentPool(x)
	require.NoError(t, err)
	assert.Equal(t, foreign, now.Raw())
	require.NoError(t, now.Close())
	require.NoError(t, x.WithCurrent(func() error { return driver.CuMemPoolDestroy(foreign) }))
}

// TestSimOwnContextKeepsNoStreams: the streams of a context that the program has created are destroyed when they
// are closed.
func TestSimOwnContextKeepsNoStreams(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x, err := safe.NewContext(open(t, 0).Device())
	require.NoError(t, err)
	closing(t, x)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	made := simulated.Live("stream")
	require.NoError(t, s.Close())
	assert.Eventually(t, func() bool { return simulated.Live("stream") == made-1 }, hang, time.Millisecond)
}

// TestSimHeapHalfMade: NewBuffer fails if the pool cannot get an attribute without which memory would wait for
// other streams, and makes a new one the next time.
func TestSimHeapHalfMade(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	for nth := 1; nth <= 2; nth++ {
		simulated.Fail("cuMemPoolSetAttribute", nth, uint32(driver.CUDA_ERROR_UNKNOWN))
		_, err := safe.NewBuffer[float32](x, 10)
		assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN, "attribute %d", nth)
		simulated.Reset()
	}
	buffer[float32](t, x, 10)
}

// TestChildOfItsPart: a graph cannot be a child of a graph that is inside one of its nodes, nor the other way
// around.
func TestChildOfItsPart(t *testing.T) {
	watch(t)
	x := open(t, 0)
	outer := newGraph(t, x)
	part, err := addNode(t, outer, safe.ChildGraphNode(newGraph(t, x))).ChildGraph()
	require.NoError(t, err)
	for name, add := range map[string]func() error{
		"into its part": func() error { _, err := part.Add(safe.ChildGraphNode(outer)); return err },
		"of its part":   func() error { _, err := outer.Add(safe.ChildGraphNode(part)); return err },
	} {
		assert.ErrorIs(t, add(), safe.ErrInvalidArgument, name)
	}
}

// TestOutsideEventIsNamed: the error of a wait for an event from outside of the capture says what to use instead.
func TestOutsideEventIsNamed(t *testing.T) {
	x := open(t, 0)
	s, e := stream(t, x), event(t, x)
	require.NoError(t, s.Record(e))
	g, err := s.Capture(func() error {
		err := s.WaitEvent(e)
		assert.ErrorIs(t, err, safe.ErrCapturing)
		assert.ErrorContains(t, err, "WaitEventExternal")
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
}

// TestInterprocessIsNamed: so does the error of options that CUDA refuses for an event.
func TestInterprocessIsNamed(t *testing.T) {
	_, err := safe.NewEventWith(open(t, 0), safe.EventOptions{Interprocess: true})
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
	assert.ErrorContains(t, err, "DisableTiming")
}

// TestSimGraphAfterReset: closing a graph of a context that other code has reset makes no call: CUDA may have used
// the handle again.
func TestSimGraphAfterReset(t *testing.T) {
	needsSimulated(t)
	resetting(t, func(t *testing.T, x *safe.Context) {
		g, err := safe.NewGraph(x)
		require.NoError(t, err)
		reset(t, x)
		before := simulated.Calls("cuGraphDestroy")
		require.NoError(t, g.Close())
		assert.Equal(t, before, simulated.Calls("cuGraphDestroy"))
	})
}
