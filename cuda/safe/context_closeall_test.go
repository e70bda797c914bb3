//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Context.CloseAll. Runs on any driver.

package safe_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// made returns one object of each kind, without anything that closes them.
func made(t *testing.T, x *safe.Context) []closer {
	t.Helper()
	var all []closer
	add := func(c closer, err error) {
		require.NoError(t, err)
		all = append(all, c)
	}
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	add(s, err)
	e, err := safe.NewEvent(x)
	add(e, err)
	b, err := safe.Upload(x, make([]int32, 64))
	add(b, err)
	async, err := safe.NewBufferAsync[int32](s, 64)
	add(async, err)
	h, err := safe.NewPinned[int32](x, 64)
	add(h, err)
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	add(m, err)
	p, err := safe.NewPool(x)
	add(p, err)
	pooled, err := safe.NewBufferFrom[int32](p, s, 64)
	add(pooled, err)
	g, err := s.Capture(func() error { return errors.Join(b.FillAsync(s, 0), s.Record(e)) })
	add(g, err)
	exec, err := g.Instantiate()
	add(exec, err)
	array, err := safe.NewArray[float32](x, safe.Extent{Width: 8, Height: 8}, safe.ArrayOptions{})
	add(array, err)
	texture, err := safe.NewTexture(array, safe.TextureOptions{})
	add(texture, err)
	r, err := safe.ReserveAddress(x, 1, safe.ReserveOptions{})
	add(r, err)
	physical, err := safe.NewPhysicalMemory(x, r.Size(), safe.PhysicalMemoryOptions{})
	add(physical, err)
	require.NoError(t, r.Map(0, physical))
	require.NoError(t, r.SetAccess(0, r.Size(), driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE, x.Device()))
	mapped, err := safe.NewMappedBuffer[int32](r, 0, 64)
	add(mapped, err)
	return all
}

func TestCloseAll(t *testing.T) {
	x := open(t, 0)
	require.NoError(t, x.CloseAll(), "of nothing")
	other := open(t, 0)
	stays := buffer[int32](t, other, 10)
	all := made(t, x)
	s := all[0].(*safe.Stream)
	require.NoError(t, s.Fork(2, func([]*safe.Stream) error { return nil }))
	for _, c := range all {
		assert.NotContains(t, c.(interface{ String() string }).String(), "closed")
	}
	require.NoError(t, x.CloseAll())
	for _, c := range all {
		assert.Contains(t, c.(interface{ String() string }).String(), "closed")
		assert.NoError(t, c.Close(), "again")
	}
	require.NoError(t, stays.Fill(0), "made in another Context")
	b, err := safe.Upload(x, []int32{1})
	require.NoError(t, err, "the context stays open")
	require.NoError(t, x.CloseAll())
	assert.ErrorIs(t, b.Fill(0), safe.ErrClosed)

	assert.ErrorIs(t, (*safe.Context)(nil).CloseAll(), safe.ErrClosed)
	assert.ErrorIs(t, (&safe.Context{}).CloseAll(), safe.ErrClosed)
}

// TestCloseAllFrees: nothing is left of the objects, in particular no report of a leak.
func TestCloseAllFrees(t *testing.T) {
	startClean(t)
	reports := make(chan error, 100)
	safe.OnError(func(err error) { reports <- err })
	defer safe.OnError(nil)
	safe.TrackLeaks(true)
	defer safe.TrackLeaks(false)
	x := open(t, 0)
	made(t, x)
	require.NoError(t, x.CloseAll())
	drop()
	assert.Eventually(t, safe.ReaperIdle, atOnce, time.Millisecond)
	assert.Empty(t, reports)
	if !onGPU {
		for _, kind := range []string{"memory", "async", "host", "module", "graph", "exec", "array", "texture", "physical", "reserved"} {
			assert.Eventually(t, func() bool { return simulated.Live(kind) == 0 }, atOnce, time.Millisecond, kind)
		}
		assert.Equal(t, 1, simulated.Live("pool"), "of NewBuffer")
	}
}

// TestCloseAllWaits: memory is freed after the work that uses it, and a capture goes on.
func TestCloseAllWaits(t *testing.T) {
	x, y := open(t, 0), open(t, 0)
	g, s := newGate(t, y), stream(t, y)
	b, err := safe.NewBuffer[int32](x, 10)
	require.NoError(t, err)
	g.shut(t, s)
	require.NoError(t, b.FillAsync(s, 0))
	over := make(chan error)
	go func() { over <- x.CloseAll() }()
	select {
	case err := <-over:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(5 * time.Millisecond):
	}
	g.open()
	require.NoError(t, <-over)

	own, err := safe.NewStream(x)
	require.NoError(t, err)
	captured, err := safe.NewBuffer[int32](x, 10)
	require.NoError(t, err)
	graph, err := own.Capture(func() error {
		return errors.Join(captured.FillAsync(own, 0), x.CloseAll())
	})
	require.NoError(t, err)
	closing(t, graph)
	exec := executable(t, graph)
	require.NoError(t, exec.Launch(s))
	require.NoError(t, s.Synchronize())
}

// TestCloseAllBeside: other goroutines make, use and close objects meanwhile.
func TestCloseAllBeside(t *testing.T) {
	x := open(t, 0)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 30 {
				s, err := safe.NewStream(x)
				assert.NoError(t, err)
				b, err := safe.NewBuffer[int32](x, 10)
				assert.NoError(t, err)
				for _, err := range []error{
					b.FillAsync(s, 0),
					s.Fork(2, func(branches []*safe.Stream) error { return b.FillAsync(branches[0], 1) }),
					s.Synchronize(),
				} {
					if err != nil {
						assert.ErrorIs(t, err, safe.ErrClosed)
					}
				}
				assert.NoError(t, b.Close())
				assert.NoError(t, s.Close())
			}
		})
	}
	for range 20 {
		require.NoError(t, x.CloseAll())
		time.Sleep(time.Millisecond)
	}
	all.Wait()
}

// TestCloseAllErrors joins the errors, and closes the rest.
func TestCloseAllErrors(t *testing.T) {
	if onGPU {
		t.Skip("errors are injected into the simulated driver")
	}
	startClean(t) // the error is for the next event that is destroyed
	x := open(t, 0)
	e, err := safe.NewEvent(x)
	require.NoError(t, err)
	b, err := safe.NewBuffer[int32](x, 1)
	require.NoError(t, err)
	raw := e.Raw()
	simulated.Fail("cuEventDestroy_v2", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
	assert.ErrorIs(t, x.CloseAll(), driver.CUDA_ERROR_UNKNOWN)
	assert.Zero(t, e.Raw())
	assert.Zero(t, b.Raw())
	require.NoError(t, x.WithCurrent(func() error { return driver.CuEventDestroy(raw) }))
}
