//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Options of memory that graphs allocate, and what happens if memory is exhausted. The
// tests run on the simulated driver and on a GPU.

package safe_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAddAllocWith: kernels write to memory of each kind, and the host reads what it can.
func TestAddAllocWith(t *testing.T) {
	x := open(t, 0)
	s, fill := stream(t, x), kernel(t, x, "fill")
	for _, c := range []struct {
		name    string
		o       safe.AllocOptions
		version int
		onHost  bool
	}{
		{"the zero value", safe.AllocOptions{}, 0, false},
		{"the device", safe.AllocOptions{Location: safe.DeviceLocation(x.Device())}, 0, false},
		{"managed", safe.AllocOptions{Managed: true}, 13000, true},
		{"host", safe.AllocOptions{Location: safe.HostLocation}, 13000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGraph(t, x)
			b, alloc, err := safe.AddAllocWith[float32](g, 100, c.o)
			if rt.Version < c.version {
				assert.ErrorIs(t, err, safe.ErrNotSupported)
				return
			}
			if c.version > 0 && errors.Is(err, safe.ErrNotSupported) && onGPU {
				t.Skip(err) // H200 with driver 580
			}
			require.NoError(t, err)
			out := buffer[float32](t, x, 100)
			set := addNode(t, g, safe.KernelNode(fill, perValue(100), safe.Val(uint32(100)), safe.Val(float32(3)), b.Arg()), alloc)
			addNode(t, g, safe.CopyNode(out, b), set)
			e := executable(t, g)
			launch(t, e, s)
			assert.EqualValues(t, 3, values(t, out)[99])
			if c.onHost {
				assert.EqualValues(t, 3, b.Data()[99])
			} else {
				assert.Nil(t, b.Data())
			}
			if !c.o.Managed {
				assert.ErrorIs(t, b.PrefetchAsync(s, safe.HostLocation), safe.ErrInvalidArgument)
			}
			require.NoError(t, b.FreeAsync(s))
			require.NoError(t, s.Synchronize())
		})
	}
}

func TestAddAllocWithRefuses(t *testing.T) {
	x := open(t, 0)
	g := newGraph(t, x)
	other := safe.Location{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE, ID: 1000}
	huge := safe.DeviceLocation(x.Device())
	huge.ID += math.MaxUint32 + 1
	for _, c := range []struct {
		name string
		o    safe.AllocOptions
		want error
	}{
		{"another device", safe.AllocOptions{Location: other}, safe.ErrInvalidArgument},
		{"no ID of CUDA", safe.AllocOptions{Location: huge}, safe.ErrInvalidArgument},
		{"managed, no ID of CUDA", safe.AllocOptions{Location: huge, Managed: true}, safe.ErrInvalidArgument},
		{"host, no ID of CUDA", safe.AllocOptions{Location: safe.NUMALocation(math.MaxUint32 + 1)}, safe.ErrInvalidArgument},
		{"managed with access", safe.AllocOptions{Managed: true, Access: []safe.Device{x.Device()}}, safe.ErrInvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := safe.AddAllocWith[float32](g, 10, c.o)
			assert.ErrorIs(t, err, c.want)
		})
	}
	_, _, err := safe.AddAllocWith[float32](g, 0, safe.AllocOptions{})
	assert.ErrorIs(t, err, safe.ErrRange)
	_, _, err = safe.AddAllocWith[float32](nil, 1, safe.AllocOptions{})
	assert.ErrorIs(t, err, safe.ErrClosed)
}

// TestAddAllocAccess: kernels of the devices that are listed can use the memory, those of
// others not.
func TestAddAllocAccess(t *testing.T) {
	x := open(t, 0)
	y := second(t)
	if can, err := y.Device().CanAccessPeer(x.Device()); err != nil || !can {
		t.Skip("the devices cannot access each other's memory")
	}
	s, there, fill := stream(t, x), stream(t, y), kernel(t, y, "fill")
	g := newGraph(t, x)
	shared, _, err := safe.AddAllocWith[float32](g, 100, safe.AllocOptions{Access: []safe.Device{x.Device(), y.Device()}})
	require.NoError(t, err)
	own, _, err := safe.AddAlloc[float32](g, 100)
	require.NoError(t, err)
	e := executable(t, g)
	launch(t, e, s)
	use := func(b *safe.Buffer[float32]) error {
		return fill.Launch(there, perValue(100), safe.Val(uint32(100)), safe.Val(float32(4)), b.Arg())
	}
	require.NoError(t, use(shared))
	assert.ErrorIs(t, use(own), safe.ErrContextMismatch)
	require.NoError(t, there.Synchronize())
	assert.EqualValues(t, 4, values(t, shared)[99])
	for _, b := range []*safe.Buffer[float32]{shared, own} {
		require.NoError(t, b.FreeAsync(s))
	}
	require.NoError(t, s.Synchronize())
}

// TestAllocReclaims: if memory for a graph is exhausted, buffers that were dropped without
// Close are freed.
func TestAllocReclaims(t *testing.T) {
	x := open(t, 0)
	free, _, err := x.MemoryInfo()
	require.NoError(t, err)
	most := int(free / 4 * 3)
	func() {
		_, err := safe.NewBuffer[byte](x, most)
		require.NoError(t, err)
	}()
	g, s := newGraph(t, x), stream(t, x)
	b, _, err := safe.AddAlloc[byte](g, most)
	require.NoError(t, err)
	launch(t, executable(t, g), s)
	require.NoError(t, b.FreeAsync(s))
	require.NoError(t, s.Synchronize())
	require.NoError(t, x.TrimGraphMemory())
}

// TestSimLaunchReclaims: calls that make an executable or launch it are tried again if
// memory is exhausted.
func TestSimLaunchReclaims(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	g, s := newGraph(t, x), stream(t, x)
	addNode(t, g, safe.FillNode(buffer[byte](t, x, 10), 0))
	for _, c := range []struct {
		function string
		do       func(e *safe.GraphExec) error
	}{
		{"cuGraphInstantiateWithParams", func(*safe.GraphExec) error {
			e, err := g.Instantiate()
			if err == nil {
				err = e.Close()
			}
			return err
		}},
		{"cuGraphLaunch", func(e *safe.GraphExec) error { return e.Launch(s) }},
		{"cuGraphUpload", func(e *safe.GraphExec) error { return e.Upload(s) }},
	} {
		t.Run(c.function, func(t *testing.T) {
			if driver.Find(c.function) != nil {
				t.Skip("an older driver")
			}
			e := executable(t, g)
			simulated.Fail(c.function, 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
			defer simulated.Reset()
			require.NoError(t, c.do(e))
			assert.Equal(t, c.function, simulated.Failed())
			require.NoError(t, s.Synchronize())
		})
	}
}

// TestSimInstantiateAfterClose: Close of an executable waits for a call with its graph, which can have
// one executable at a time.
func TestSimInstantiateAfterClose(t *testing.T) {
	needsSimulated(t)
	for name, graph := range map[string]func(t *testing.T, x *safe.Context) *safe.Graph{
		"allocates": func(t *testing.T, x *safe.Context) *safe.Graph {
			g := newGraph(t, x)
			_, _, err := safe.AddAlloc[byte](g, 100)
			require.NoError(t, err)
			return g
		},
		"frees what it allocates": func(t *testing.T, x *safe.Context) *safe.Graph {
			s := stream(t, x)
			g, err := s.Capture(func() error {
				b, err := safe.NewBufferAsync[byte](s, 100)
				return errors.Join(err, b.Close())
			})
			require.NoError(t, err)
			closing(t, g)
			return g
		},
		"frees what another allocates": func(t *testing.T, x *safe.Context) *safe.Graph {
			b, _, err := safe.AddAlloc[byte](newGraph(t, x), 100)
			require.NoError(t, err)
			g := newGraph(t, x)
			addNode(t, g, safe.FreeNode(b))
			return g
		},
	} {
		t.Run(name, func(t *testing.T) {
			startClean(t)
			g := graph(t, open(t, 0))
			e, err := g.Instantiate()
			require.NoError(t, err)
			defer simulated.Reset()
			simulated.Delay("cuGraphGetNodes", hang)
			listed := inDriver(t, func() error { _, err := g.Nodes(); return err })
			again := background(func() {
				assert.NoError(t, e.Close())
				e, err := g.Instantiate()
				if assert.NoError(t, err) {
					assert.NoError(t, e.Close())
				}
			})
			simulated.Reset() // ends the delay
			require.NoError(t, <-listed)
			<-again
			noViolation(t)
		})
	}
}

// TestFreeAsyncAfterBorrowed tests that FreeAsync is ordered after work on a closed Stream that shares
// a queue with its stream.
func TestFreeAsyncAfterBorrowed(t *testing.T) {
	watch(t)
	x := open(t, 0)
	gate := newGate(t, x)
	s := stream(t, x)
	g := newGraph(t, x)
	b, _, err := safe.AddAlloc[uint32](g, 100)
	require.NoError(t, err)
	launch(t, executable(t, g), s)
	borrowed, err := s.Borrow()
	require.NoError(t, err)
	gate.shut(t, s)
	require.NoError(t, b.FillAsync(borrowed, 0))
	require.NoError(t, borrowed.Close())
	over := make(chan struct{})
	go func() {
		defer close(over)
		assert.NoError(t, b.FreeAsync(s))
	}()
	select {
	case <-over:
	case <-time.After(atOnce):
		go panic("FreeAsync waits for the lock of its own stream") // not here, where cleanups would wait, too
		select {}
	}
	gate.open()
	require.NoError(t, s.Synchronize())
	noViolation(t)
}

// TestFreeAsyncBesideUse tests that work which a concurrent FreeAsync has not refused runs before the
// release.
func TestFreeAsyncBesideUse(t *testing.T) {
	needsSimulated(t)
	watch(t)
	x := open(t, 0)
	first, second := newGate(t, x), newGate(t, x)
	s, other, frees := stream(t, x), stream(t, x), stream(t, x)
	g := newGraph(t, x)
	b, _, err := safe.AddAlloc[uint32](g, 100)
	require.NoError(t, err)
	launch(t, executable(t, g), s)
	first.shut(t, s)
	second.shut(t, other)
	require.NoError(t, b.FillAsync(s, 0))
	simulated.Delay("cuEventRecord", 100*time.Millisecond)
	freed := make(chan error, 1)
	go func() { freed <- b.FreeAsync(frees) }()
	inside(t, "tryFreeAfterUses") // else it would wait for the work on other, which the gate holds back
	used := b.FillAsync(other, 0)
	require.NoError(t, <-freed)
	simulated.Reset()
	first.open()
	require.NoError(t, frees.Synchronize())
	second.open()
	require.NoError(t, other.Synchronize())
	if used != nil {
		assert.ErrorIs(t, used, safe.ErrNotAllocated)
	}
	noViolation(t)
}

// TestFreeAsyncBesideCopy tests that memory is not freed before a synchronous copy that has begun.
func TestFreeAsyncBesideCopy(t *testing.T) {
	needsSimulated(t)
	watch(t)
	x := open(t, 0)
	gate := newGate(t, x)
	s, frees := stream(t, x), stream(t, x)
	g := newGraph(t, x)
	b, _, err := safe.AddAlloc[uint32](g, 100)
	require.NoError(t, err)
	launch(t, executable(t, g), s)
	gate.shut(t, s)
	require.NoError(t, b.FillAsync(s, 0))
	copied := make(chan error, 1)
	go func() { copied <- b.CopyToHost(make([]uint32, 100)) }()
	time.Sleep(50 * time.Millisecond)
	simulated.Delay("cuMemcpyDtoHAsync_v2", 20*time.Millisecond)
	freed := make(chan error, 1)
	go func() { freed <- b.FreeAsync(frees) }()
	time.Sleep(50 * time.Millisecond)
	gate.open()
	assert.NoError(t, except(<-copied, safe.ErrNotAllocated))
	assert.NoError(t, <-freed)
	simulated.Reset()
	noViolation(t)
}
