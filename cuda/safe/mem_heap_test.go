//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests check the pool of NewBuffer. They run on the simulated driver and on a GPU;
// those named TestSim need the simulated driver.

package safe_test

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func init() {
	operations = append(operations, []operation{
		{"NewBuffer", func(w *world) error { // plain
			b, err := safe.NewBufferWith[int32](w.x, 9, safe.BufferOptions{Plain: true})
			_, err = also(w, b, err)
			return err
		}},
		{"Context.TrimMemory", func(w *world) error { return w.x.TrimMemory() }},
	}...)
}

// heapOf returns the pool that NewBuffer allocates from.
func heapOf(t *testing.T, x *safe.Context) driver.CUmemoryPool {
	t.Helper()
	return driver.CUmemoryPool(aboutPointer(t, x, buffer[byte](t, x, 1).Raw(), driver.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE))
}

// TestHeap: NewBuffer allocates from a pool of the context's own, whose memory never waits
// for another stream and is retained.
func TestHeap(t *testing.T) {
	x, again := open(t, 0), open(t, 0)
	own, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	closing(t, own)
	pool := heapOf(t, x)
	require.NotZero(t, pool)
	assert.Equal(t, pool, heapOf(t, again), "the same context of CUDA")
	assert.NotEqual(t, pool, heapOf(t, own))
	for _, get := range []func(*driver.CUmemoryPool, driver.CUdevice) error{driver.CuDeviceGetDefaultMemPool, driver.CuDeviceGetMemPool} {
		var other driver.CUmemoryPool
		require.NoError(t, get(&other, x.Device().Raw()))
		assert.NotEqual(t, other, pool)
	}
	for id, want := range map[driver.CUmemPool_attribute]uint64{
		driver.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: 0,
		driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:                 math.MaxUint64,
	} {
		var v uint64
		require.NoError(t, driver.CuMemPoolGetAttribute(pool, id, unsafe.Pointer(&v)))
		assert.Equal(t, want, v, id)
	}
	plain := plainBuffer[byte](t, x, 1).Raw()
	assert.Zero(t, aboutPointer(t, x, plain, driver.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE))
	assert.EqualValues(t, x.Raw(), aboutPointer(t, x, plain, driver.CU_POINTER_ATTRIBUTE_CONTEXT))
}

// TestHeapAnyStream: any stream may use the memory at once, also one that is capturing, and
// beside a stream that is stuck.
func TestHeapAnyStream(t *testing.T) {
	x := open(t, 0)
	stuck, s, g := stream(t, x), stream(t, x), newGate(t, x)
	buffer[int32](t, x, 1) // the pool exists
	g.shut(t, stuck)
	var captured *safe.Buffer[int32]
	exec, err := s.CaptureExecutable(func() error {
		captured = buffer[int32](t, x, 4)
		return captured.FillAsync(s, 7)
	})
	require.NoError(t, err)
	closing(t, exec)
	require.NoError(t, exec.Launch(s))
	h := host[int32](t, x, 4)
	require.NoError(t, captured.CopyToHostAsync(s, h))
	for range 100 {
		b, err := safe.NewBuffer[int32](x, 1000)
		require.NoError(t, err)
		require.NoError(t, b.FillAsync(s, 3))
		require.NoError(t, b.Close(), "it waits for s alone")
	}
	require.NoError(t, s.Synchronize())
	assert.Equal(t, []int32{7, 7, 7, 7}, h.Data())
	g.open()
}

// TestSimHeapBesideStuck: memory that a stuck stream uses is freed when the stream
// continues, all other memory at once.
func TestSimHeapBesideStuck(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	g, s, other := newGate(t, x), stream(t, x), stream(t, x)
	g.shut(t, s)
	dropped := func(on *safe.Stream) {
		b, err := safe.NewBuffer[int32](x, 4)
		require.NoError(t, err)
		require.NoError(t, b.FillAsync(on, 0))
	}
	dropped(s)
	over := fillQueue(t, s, kernel(t, x, "nothing"), 1500)
	for range 3 {
		dropped(other)
		b, err := safe.NewBuffer[int32](x, 4)
		require.NoError(t, err)
		require.NoError(t, b.Close())
	}
	require.NoError(t, other.Synchronize())
	assert.Eventually(t, func() bool { drop(); return simulated.Live("async") == 1 }, atOnce, time.Millisecond)
	assert.False(t, isDone(over))
	g.open()
	<-over
	assert.Eventually(t, func() bool { return simulated.Live("async") == 0 }, atOnce, time.Millisecond)
}

// TestSimHeapTrimmed: closed buffers keep their memory until it is trimmed, which every
// allocation does that finds too little.
func TestSimHeapTrimmed(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x, s := open(t, 0), (*safe.Stream)(nil)
	y, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	closing(t, y)
	s = stream(t, x)
	free, _, err := x.MemoryInfo()
	require.NoError(t, err)
	most := int(free / 4 * 3)
	for name, allocate := range map[string]func() (closer, error){
		"NewBuffer elsewhere": func() (closer, error) { return safe.NewBuffer[byte](y, most) },
		"NewBufferWith":       func() (closer, error) { return safe.NewBufferWith[byte](x, most, safe.BufferOptions{Plain: true}) },
		"NewBufferAsync":      func() (closer, error) { return safe.NewBufferAsync[byte](s, most) },
		"NewPhysicalMemory": func() (closer, error) {
			return safe.NewPhysicalMemory(x, uint64(most), safe.PhysicalMemoryOptions{})
		},
		"AddAlloc": func() (closer, error) {
			g := newGraph(t, x)
			_, _, err := safe.AddAlloc[byte](g, most)
			return g, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			retains := func() bool {
				require.NoError(t, y.TrimMemory())
				b, err := safe.NewBuffer[byte](x, most)
				require.NoError(t, err)
				require.NoError(t, b.Close())
				left, _, err := x.MemoryInfo()
				require.NoError(t, err)
				return left <= free-uint64(most)
			}
			require.True(t, retains())
			c, err := allocate()
			require.NoError(t, err)
			require.NoError(t, c.Close())
			require.NoError(t, s.Synchronize())
			require.True(t, retains())
			require.NoError(t, x.TrimMemory())
			left, _, err := x.MemoryInfo()
			require.NoError(t, err)
			assert.Equal(t, free, left)
		})
	}
	_, err = safe.NewBuffer[byte](x, most*2)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
	assert.ErrorContains(t, err, "bytes requested")
}

// TestHeapPeers: the devices that have access are those of the contexts for which
// EnablePeerAccess was called, before the pool exists or later.
func TestHeapPeers(t *testing.T) {
	startClean(t) // contexts of earlier tests may have access still
	x := open(t, 0)
	y := second(t)
	can, err := y.Device().CanAccessPeer(x.Device())
	require.NoError(t, err)
	if !can {
		t.Skip("the devices cannot reach each other's memory")
	}
	access := func(of *safe.Context) (flags driver.CUmemAccess_flags) {
		where := driver.CUmemLocation{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE}
		*where.Id() = 1
		require.NoError(t, driver.CuMemPoolGetAccess(&flags, heapOf(t, of), &where))
		return flags
	}
	late, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	closing(t, late)
	also, err := safe.NewContext(y.Device())
	require.NoError(t, err)
	assert.Equal(t, noAccess, access(x))
	for _, of := range []*safe.Context{x, late} {
		require.NoError(t, y.EnablePeerAccess(of))
		require.NoError(t, y.EnablePeerAccess(of), "again")
		assert.Equal(t, readWrite, access(of))
	}
	b, s, k := buffer[uint64](t, x, 1), stream(t, y), kernel(t, y, "store")
	require.NoError(t, k.Launch(s, one, b.Arg(), safe.Val(uint64(7))))
	got, err := b.Download()
	require.NoError(t, err)
	assert.Equal(t, []uint64{7}, got)

	require.NoError(t, also.EnablePeerAccess(x))
	require.NoError(t, y.DisablePeerAccess(x))
	assert.Equal(t, readWrite, access(x), "another context of the device has access")
	require.NoError(t, also.Close())
	assert.Equal(t, noAccess, access(x))
	require.NoError(t, y.DisablePeerAccess(late))
	assert.Equal(t, noAccess, access(late))
	require.NoError(t, y.EnablePeerAccess(late))
	assert.Equal(t, readWrite, access(late), "once more")
	require.NoError(t, y.DisablePeerAccess(late))
	assert.ErrorIs(t, k.Launch(s, one, b.Arg(), safe.Val(uint64(7))), safe.ErrContextMismatch)
}

// TestSimHeapPeerFails: access that the pool does not give is not enabled.
func TestSimHeapPeerFails(t *testing.T) {
	needsSimulated(t)
	startClean(t) // contexts of earlier tests may have access still
	x, y := open(t, 0), open(t, 1)
	buffer[byte](t, x, 1)
	simulated.Fail("cuMemPoolSetAccess", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
	assert.ErrorIs(t, y.EnablePeerAccess(x), driver.CUDA_ERROR_UNKNOWN)
	assert.Zero(t, safe.KnownPeers(y))
	simulated.Reset()
	require.NoError(t, y.EnablePeerAccess(x))
	require.NoError(t, y.DisablePeerAccess(x))
}

// TestSimHeapUnsupported: without pools, memory is of cuMemAlloc.
func TestSimHeapUnsupported(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	simulated.Fail("cuMemPoolCreate", 1, uint32(driver.CUDA_ERROR_NOT_SUPPORTED))
	defer simulated.Reset()
	for range 2 {
		b := buffer[byte](t, x, 1).Raw()
		assert.Zero(t, aboutPointer(t, x, b, driver.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE))
		assert.NotZero(t, aboutPointer(t, x, b, driver.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE))
	}
	require.NoError(t, x.TrimMemory())
}

// TestSimHeapSweep has every call fail from the first buffer of a context to its end.
func TestSimHeapSweep(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	reported := collectErrors(t)
	for _, code := range []driver.CUresult{driver.CUDA_ERROR_UNKNOWN, driver.CUDA_ERROR_OUT_OF_MEMORY} {
		sweep(t, code, func(n int) error {
			x, err := safe.Open(0)
			require.NoError(t, err)
			y, err := safe.Open(1)
			require.NoError(t, err)
			require.NoError(t, y.EnablePeerAccess(x))
			failing(n, code)
			b, err := safe.NewBuffer[byte](x, 100)
			if err == nil {
				err = errors.Join(b.Fill(0), b.Close())
			}
			return errors.Join(err, x.TrimMemory(), y.DisablePeerAccess(x), x.Close(), y.Close())
		}, func(failed string, err error) {
			settle(t)
			err = errors.Join(append(reported(), err)...)
			if destroys(failed) {
				assert.ErrorIs(t, err, code, failed)
				fewAlive(t, 1, failed)
				purge(t)
				return
			}
			nothingAlive(t, failed)
			assert.Zero(t, simulated.Lost(), "went with the context after %s", failed)
		})
	}
	assert.Empty(t, simulated.Violation())
}

// TestSimHeapReset: the pool goes with the last object of a context that other code has reset.
func TestSimHeapReset(t *testing.T) {
	x := toReset(t)
	b, err := safe.NewBuffer[int32](x, 4)
	require.NoError(t, err)
	require.NoError(t, b.Fill(0))
	require.NoError(t, driver.CuDevicePrimaryCtxReset(x.Device().Raw()))
	_, err = safe.NewBuffer[int32](x, 4)
	assert.ErrorIs(t, err, safe.ErrReset)
	assert.ErrorIs(t, x.TrimMemory(), safe.ErrReset)
	y, err := safe.Open(1)
	require.NoError(t, err)
	c, err := safe.NewBuffer[int32](y, 4)
	require.NoError(t, err)
	require.NoError(t, c.Fill(0))
	assert.Equal(t, 2, simulated.Live("pool"))
	for _, c := range []closer{x, b, y, c} {
		assert.NoError(t, c.Close())
	}
	nothingAlive(t, "after the reset")
	simulated.Lost()
	assert.Empty(t, simulated.Violation())
}

// TestHeapRace: goroutines allocate in contexts that come and go, while others trim and
// change access.
func TestHeapRace(t *testing.T) {
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	devices, err := safe.Devices()
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				y, err := safe.Open(len(devices) - 1)
				if !assert.NoError(t, err) {
					return
				}
				b, err := safe.NewBuffer[int32](y, 4)
				assert.NoError(t, err)
				c, err := safe.NewBuffer[int32](x, 4)
				assert.NoError(t, err)
				assert.NoError(t, errors.Join(y.Close(), c.FillAsync(s, 0), c.Close(), b.Fill(0), b.Close()))
			}
		})
	}
	all.Go(func() {
		for range 100 {
			assert.NoError(t, x.TrimMemory())
			y, err := safe.Open(len(devices) - 1)
			assert.NoError(t, err)
			if can, _ := x.Device().CanAccessPeer(y.Device()); can {
				assert.NoError(t, errors.Join(x.EnablePeerAccess(y), y.EnablePeerAccess(x), x.DisablePeerAccess(y)))
			}
			assert.NoError(t, y.Close())
		}
	})
	all.Wait()
}

// BenchmarkNewBuffer measures an allocation and its release, beside those of the driver.
func BenchmarkNewBuffer(b *testing.B) {
	x := open(b, 0)
	s := stream(b, x)
	for _, way := range []struct {
		name string
		do   func() error
	}{
		{"raw", func() error {
			var p driver.CUdeviceptr
			return errors.Join(driver.CuMemAllocAsync(&p, 4096, s.Raw()), driver.CuMemFreeAsync(p, s.Raw()))
		}},
		{"NewBuffer", func() error { return closeIt(safe.NewBuffer[byte](x, 4096)) }},
		{"NewBufferAsync", func() error { return closeIt(safe.NewBufferAsync[byte](s, 4096)) }},
		{"NewBufferWith Plain", func() error {
			return closeIt(safe.NewBufferWith[byte](x, 4096, safe.BufferOptions{Plain: true}))
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := way.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func closeIt(c closer, err error) error {
	if err != nil {
		return err
	}
	return c.Close()
}

// TestAllocationCrossings: with cgo, an allocation and its release enter C once each.
func TestAllocationCrossings(t *testing.T) {
	if !withCgo {
		t.Skip("without cgo each call of the driver enters C by itself")
	}
	cached := caching(t)
	freed(t, cached, 1) // it has a heap
	t.Setenv(noCache, "1")
	x, err := safe.NewContext(cached.Device()) // the primary context may have a cache
	require.NoError(t, err)
	closing(t, x)
	s := stream(t, x)
	a := newArenaOf(t, s, 1<<20)
	in[byte](t, a, 1) // the arena has a block
	for _, test := range []struct {
		name        string
		make        func() (*safe.Buffer[byte], error)
		makes, ends int64
	}{
		{"NewBuffer", func() (*safe.Buffer[byte], error) { return safe.NewBuffer[byte](x, 4096) }, 1, 1},
		{"NewBuffer from the cache", func() (*safe.Buffer[byte], error) { return safe.NewBuffer[byte](cached, 4096) }, 0, 0},
		{"NewBufferAsync", func() (*safe.Buffer[byte], error) { return safe.NewBufferAsync[byte](s, 4096) }, 1, 1},
		{"NewBufferIn", func() (*safe.Buffer[byte], error) { return safe.NewBufferIn[byte](a, 4096) }, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			makes, ends := int64(math.MaxInt64), int64(math.MaxInt64)
			for range 20 { // other goroutines may enter C too
				before := runtime.NumCgoCall()
				b, err := test.make()
				between := runtime.NumCgoCall()
				require.NoError(t, err)
				require.NoError(t, b.Close())
				makes, ends = min(makes, between-before), min(ends, runtime.NumCgoCall()-between)
			}
			assert.Equal(t, test.makes, makes)
			assert.Equal(t, test.ends, ends)
		})
	}
}

// TestTrimBesideClose tests that an allocation which finds too little memory uses no context
// that is being destroyed. Drivers before CUDA 12.0 do not tell that a context is gone.
func TestTrimBesideClose(t *testing.T) {
	needsSimulated(t)
	withDriver(t, "11.8", func(t *testing.T) {
		watch(t)
		simulated.Widen(50 * time.Microsecond)
		x := open(t, 0)
		var c racers
		c.add(3, func() error {
			safe.TrimHeaps()
			return nil
		})
		c.add(3, func() error {
			own, err := safe.NewContext(x.Device())
			return errors.Join(err, own.Close())
		})
		time.Sleep(10 * stormTime(t))
		assert.NoError(t, c.end())
		noViolation(t)
	})
}
