//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Objects of a context that was reset make no calls with old handles. Needs the simulated
// driver, and CUDA 12.0 to tell contexts apart.

package safe_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// byHandle are the functions called with handles and addresses when objects are used,
// closed or copied. cuLibraryUnload is none of them: a library outlives a reset.
var byHandle = []string{
	"cuStreamQuery", "cuStreamIsCapturing", "cuStreamSynchronize", "cuStreamWaitEvent", "cuStreamDestroy_v2",
	"cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuEventDestroy_v2",
	"cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost", "cuMemHostUnregister", "cuArrayDestroy", "cuTexObjectDestroy",
	"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemsetD8Async", "cuModuleUnload", "cuGraphExecDestroy",
}

func callsByHandle() map[string]int {
	n := map[string]int{}
	for _, f := range byHandle {
		n[f] = simulated.Calls(f)
	}
	return n
}

// old has the objects in a context before a reset.
type old struct {
	buffer, async, shared *safe.Buffer[float32]
	all                   []closer
}

// ofBefore creates an object of each kind, with work on several streams.
func ofBefore(t *testing.T, x *safe.Context) *old {
	t.Helper()
	o := &old{}
	add := func(c closer, err error) {
		t.Helper()
		require.NoError(t, err)
		o.all = append(o.all, c)
	}
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	add(s, err)
	u, err := safe.NewStream(x)
	require.NoError(t, err)
	o.buffer, err = safe.NewBuffer[float32](x, 16)
	add(o.buffer, err)
	o.async, err = safe.NewBufferAsync[float32](s, 16)
	add(o.async, err)
	o.shared, err = safe.NewBufferAsync[float32](s, 16)
	add(o.shared, err)
	h, err := safe.NewPinned[float32](x, 16)
	add(h, err)
	r, err := safe.RegisterPinned(x, make([]float32, 16))
	add(r, err)
	a, err := safe.NewArray[float32](x, safe.Extent{Width: 16}, safe.ArrayOptions{})
	add(a, err)
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	add(m, err)
	e, err := safe.NewEvent(x)
	add(e, err)
	require.NoError(t, s.Record(e))
	require.NoError(t, s.Synchronize())
	for _, b := range []*safe.Buffer[float32]{o.buffer, o.shared} {
		require.NoError(t, b.FillAsync(s, 0))
		require.NoError(t, b.FillAsync(u, 0))
		require.NoError(t, b.CopyToHost(make([]float32, 16))) // creates the internal events and streams
	}
	require.NoError(t, u.Close()) // its work may be pending: it leaves an event
	add(x, nil)
	return o
}

// TestClosedAfterReset: closing or using an object after a reset makes no call with an
// old handle or address, which may belong to a new object.
func TestClosedAfterReset(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	needs(t, "cuCtxGetId")
	for name, do := range map[string]func(t *testing.T, o *old){
		"close": func(t *testing.T, o *old) {
			for _, c := range o.all {
				assert.NoError(t, c.Close())
			}
		},
		"close streams last": func(t *testing.T, o *old) {
			for i := range o.all {
				assert.NoError(t, o.all[len(o.all)-1-i].Close())
			}
		},
		"copy": func(t *testing.T, o *old) {
			for _, b := range []*safe.Buffer[float32]{o.buffer, o.async, o.shared} {
				assert.ErrorIs(t, b.CopyToHost(make([]float32, 16)), safe.ErrReset)
				assert.ErrorIs(t, b.CopyFromHost(make([]float32, 16)), safe.ErrReset)
				assert.ErrorIs(t, b.Fill(0), safe.ErrReset)
			}
			for _, c := range o.all {
				c.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := safe.Open(1)
			require.NoError(t, err)
			o := ofBefore(t, x)
			require.NoError(t, driver.CuDevicePrimaryCtxReset(x.Device().Raw()))
			before := callsByHandle()
			do(t, o)
			require.Eventually(t, safe.ReaperIdle, atOnce, time.Millisecond)
			assert.Equal(t, before, callsByHandle())
			simulated.Purge() // a reset leaves Go memory registered
			simulated.Lost()
		})
	}
}

// TestDroppedAfterReset is the same for objects that the garbage collector finds.
func TestDroppedAfterReset(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	needs(t, "cuCtxGetId")
	func() {
		x, err := safe.Open(1)
		require.NoError(t, err)
		o := ofBefore(t, x)
		require.NoError(t, driver.CuDevicePrimaryCtxReset(x.Device().Raw()))
		runtime.KeepAlive(o) // the garbage collector must not find it during the reset
	}()
	before := callsByHandle()
	for n, end := 0, time.Now().Add(atOnce); n < 10 || simulated.Live("primary") > 0 && time.Now().Before(end); n++ {
		drop()
	}
	assert.Zero(t, simulated.Live("primary"), "the context was found")
	require.Eventually(t, safe.ReaperIdle, atOnce, time.Millisecond)
	assert.Equal(t, before, callsByHandle())
	simulated.Purge() // a reset leaves Go memory registered
	simulated.Lost()
}
