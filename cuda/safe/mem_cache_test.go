//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// The cache of blocks of NewBuffer. Runs on any driver, some tests on the simulated one
// alone.

package safe_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// caching returns a context with a heap of its own, which has a cache.
func caching(t *testing.T) *safe.Context {
	t.Helper()
	startClean(t)
	t.Setenv(noCache, "")
	d := open(t, 0).Device()
	x, err := safe.NewContext(d)
	require.NoError(t, err)
	closing(t, x)
	return x
}

// freed allocates memory and closes it, and returns where it was.
func freed(t *testing.T, x *safe.Context, size int) driver.CUdeviceptr {
	t.Helper()
	b, err := safe.NewBuffer[byte](x, size)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	return b.Raw()
}

// TestBlockCache: memory of a closed buffer is used again for the same size alone, by one
// buffer at a time.
func TestBlockCache(t *testing.T) {
	x := caching(t)
	first, second := freed(t, x, 1000), freed(t, x, 2000)
	assert.NotEqual(t, first, second)
	assert.NotEqual(t, first, freed(t, x, 999), "another size")
	a, b := buffer[byte](t, x, 1000), buffer[byte](t, x, 1000)
	assert.Equal(t, first, a.Raw())
	assert.NotEqual(t, first, b.Raw(), "it is in use")
	assert.Equal(t, second, freed(t, x, 2000))
	require.NoError(t, b.Close())
	require.NoError(t, a.Close())
	assert.Equal(t, first, freed(t, x, 1000), "the latest first")
}

// TestSimBlockCacheBounds: the cache holds 32 blocks and 64 MiB. TrimMemory and the context's
// end empty it.
func TestSimBlockCacheBounds(t *testing.T) {
	needsSimulated(t)
	for _, test := range []struct {
		name              string
		count, size, left int
	}{
		{"few", 5, 100, 5},
		{"many", 50, 100, 32},
		{"large", 10, 10 << 20, 6},
		{"too large", 1, 65 << 20, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := caching(t)
			var all []*safe.Buffer[byte]
			for range test.count {
				all = append(all, buffer[byte](t, x, test.size))
			}
			assert.Equal(t, test.count, simulated.Live("async"))
			for _, b := range all {
				require.NoError(t, b.Close())
			}
			alive := func(n int) {
				assert.Eventually(t, func() bool { return simulated.Live("async") == n }, atOnce, time.Millisecond, "%d", n)
			}
			alive(test.left)
			require.NoError(t, x.TrimMemory())
			alive(0)
			freed(t, x, test.size)
			require.NoError(t, x.Close())
			alive(0)
		})
	}
}

// TestSimBlockCacheOldest: the oldest block leaves a full cache.
func TestSimBlockCacheOldest(t *testing.T) {
	needsSimulated(t)
	x := caching(t)
	for size := range 33 {
		freed(t, x, 1+size)
	}
	calls := simulated.Calls("cuMemAllocFromPoolAsync")
	freed(t, x, 2)
	assert.Equal(t, calls, simulated.Calls("cuMemAllocFromPoolAsync"))
	freed(t, x, 1)
	assert.Equal(t, calls+1, simulated.Calls("cuMemAllocFromPoolAsync"))
}

// TestSimBlockCacheOutOfMemory: what the cache holds is no reason to be out of memory.
func TestSimBlockCacheOutOfMemory(t *testing.T) {
	needsSimulated(t)
	x := caching(t)
	freed(t, x, 60<<20)
	free, _, err := x.MemoryInfo()
	require.NoError(t, err)
	b, err := safe.NewBuffer[byte](x, int(free)+30<<20)
	require.NoError(t, err)
	require.NoError(t, b.Close())
}

// TestBlockCacheWaits: memory is used again after the work that used it.
func TestBlockCacheWaits(t *testing.T) {
	x := caching(t)
	s, g := stream(t, x), newGate(t, x)
	freed(t, x, 4000)
	b, err := safe.NewBuffer[uint32](x, 1000)
	require.NoError(t, err)
	g.shut(t, s)
	require.NoError(t, b.FillAsync(s, 7))
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	other := buffer[uint32](t, x, 1000)
	require.NoError(t, other.Fill(9))
	g.open()
	require.NoError(t, next(t, closed))
	require.NoError(t, s.Synchronize())
	h := make([]uint32, 1000)
	require.NoError(t, other.CopyToHost(h))
	assert.EqualValues(t, 9, h[0])
	assert.EqualValues(t, 9, h[999])
}

// TestBlockCacheRace: goroutines that allocate the same sizes never share memory.
func TestBlockCacheRace(t *testing.T) {
	x := caching(t)
	var all sync.WaitGroup
	for i := range 8 {
		s := stream(t, x)
		all.Go(func() {
			h := make([]uint32, 64)
			for n := range 100 {
				b, err := safe.NewBuffer[uint32](x, 64)
				if !assert.NoError(t, err) {
					return
				}
				value := uint32(i<<16 + n)
				assert.NoError(t, b.FillAsync(s, value))
				if n%3 == 0 {
					assert.NoError(t, b.CopyToHost(h))
					assert.Equal(t, value, h[n%64])
				}
				assert.NoError(t, b.Close())
				if n%40 == 0 {
					assert.NoError(t, x.TrimMemory())
				}
			}
		})
	}
	all.Wait()
}

// TestNoBlockCache: with CUDABIND_NO_MEMORY_CACHE the driver sees each release.
func TestNoBlockCache(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	freed(t, x, 100)
	assert.Eventually(t, func() bool { return simulated.Live("async") == 0 }, atOnce, time.Millisecond)
}
