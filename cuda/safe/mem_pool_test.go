//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests create, use, close and drop memory pools. They run on the simulated driver
// and on a GPU.

package safe_test

import (
	"errors"
	"math"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	fileDescriptor = driver.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
	readWrite      = driver.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	noAccess       = driver.CU_MEM_ACCESS_FLAGS_PROT_NONE
)

// shared is for a pool that other processes can import.
var shared = safe.PoolOptions{HandleTypes: fileDescriptor}

func init() {
	within["ImportPool"] = []string{"Pool.Export"}
	within["ImportBuffer"] = []string{"Pool.Export", "ImportPool", "Buffer.ExportPointer"}
	operations = append(operations, []operation{
		{"NewPool", func(w *world) error {
			c, err := safe.NewPool(w.x)
			_, err = also(w, c, err)
			return err
		}},
		{"NewPool", func(w *world) error {
			c, err := safe.NewPoolWith(w.x, safe.PoolOptions{Location: safe.HostLocation}) // NewPool gives the device access
			_, err = also(w, c, err)
			return err
		}},
		{"DefaultPool", func(w *world) error { c, err := safe.DefaultPool(w.x); _, err = also(w, c, err); return err }},
		{"CurrentPool", func(w *world) error { c, err := safe.CurrentPool(w.x); _, err = also(w, c, err); return err }},
		{"NewBufferFrom", func(w *world) error {
			c, err := safe.NewBufferFrom[byte](w.pool, w.t, 9)
			_, err = also(w, c, err)
			return err
		}},
		{"Pool.MakeCurrent", func(w *world) error { return w.pool.MakeCurrent() }},
		{"Pool.Trim", func(w *world) error { return w.pool.Trim(0) }},
		{"Pool.Attribute", func(w *world) error {
			_, err := w.pool.Attribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
			return err
		}},
		{"Pool.SetAttribute", func(w *world) error {
			return w.pool.SetAttribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 1)
		}},
		{"Pool.SetAccess", func(w *world) error { return w.pool.SetAccess(w.y.Device(), readWrite) }},
		{"Pool.Export", func(w *world) error {
			f, err := w.pool.Export()
			return errors.Join(err, f.Close())
		}},
		{"ImportPool", func(w *world) error { _, err := w.imported(); return err }},
		{"Buffer.ExportPointer", func(w *world) error { _, err := w.pooled.ExportPointer(); return err }},
		{"ImportBuffer", func(w *world) error {
			p, err := w.imported()
			if err != nil {
				return err
			}
			data, err := w.pooled.ExportPointer()
			if err != nil {
				return err
			}
			c, err := safe.ImportBuffer[int32](p, data, 64)
			_, err = also(w, c, err)
			return err
		}},
	}...)
}

// imported imports the world's pool, which the simulated driver allows.
func (w *world) imported() (*safe.Pool, error) {
	f, err := w.pool.Export()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := safe.ImportPool(w.x, f)
	return also(w, p, err)
}

func pool(t testing.TB, x *safe.Context, o safe.PoolOptions) *safe.Pool {
	t.Helper()
	p, err := safe.NewPoolWith(x, o)
	if errors.Is(err, safe.ErrNotSupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	closing(t, p)
	return p
}

func bufferFrom[T any](t testing.TB, p *safe.Pool, s *safe.Stream, n int) *safe.Buffer[T] {
	t.Helper()
	b, err := safe.NewBufferFrom[T](p, s, n)
	require.NoError(t, err)
	closing(t, b)
	return b
}

func driverOf(t testing.TB) (version int32) {
	t.Helper()
	require.NoError(t, driver.CuDriverGetVersion(&version))
	return version
}

func TestPool(t *testing.T) {
	const n = 1 << 20
	x := open(t, 0)
	p, s, fill := pool(t, x, safe.PoolOptions{}), stream(t, x), kernel(t, x, "fill")
	require.NoError(t, p.SetAttribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, math.MaxUint64))
	threshold, err := p.Attribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
	require.NoError(t, err)
	assert.Equal(t, uint64(math.MaxUint64), threshold)

	b := bufferFrom[float32](t, p, s, n)
	require.NoError(t, fill.Launch(s, perValue(n), safe.Val(uint32(n)), safe.Val(float32(3)), b.Arg()))
	got := make([]float32, n)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 3, got[n-1])
	assert.Nil(t, b.Data(), "memory of the device")
	reserved, used := aboutPool(t, p)
	assert.GreaterOrEqual(t, used, uint64(4*n))
	assert.GreaterOrEqual(t, reserved, used)

	require.NoError(t, b.Close())
	require.NoError(t, s.SynchronizeBlocking())
	reserved, used = aboutPool(t, p)
	assert.Zero(t, used)
	assert.GreaterOrEqual(t, reserved, uint64(4*n), "kept for the next one")
	require.NoError(t, p.Trim(0))
	reserved, _ = aboutPool(t, p)
	assert.Zero(t, reserved)
}

func TestPoolAttributes(t *testing.T) {
	x := open(t, 0)
	p := pool(t, x, shared)
	const reuse = driver.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
	for _, want := range []uint64{1, 0} {
		v, err := p.Attribute(reuse)
		require.NoError(t, err)
		assert.Equal(t, want, v)
		require.NoError(t, p.SetAttribute(reuse, 0))
	}

	require.NoError(t, p.SetAttribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 1<<40))
	v, err := p.Attribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
	require.NoError(t, err)
	assert.EqualValues(t, 1<<40, v)
	_, err = p.Attribute(1000)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_INVALID_VALUE)
	assert.ErrorIs(t, p.SetAttribute(driver.CU_MEMPOOL_ATTR_USED_MEM_HIGH, 1), driver.CUDA_ERROR_INVALID_VALUE, "0 alone")
}

func TestPoolLimit(t *testing.T) {
	x := open(t, 0)
	o := safe.PoolOptions{MaxSize: 64 << 20}
	if driverOf(t) < 12020 {
		_, err := safe.NewPoolWith(x, o)
		assert.ErrorIs(t, err, safe.ErrNotSupported)
		return
	}
	p, s := pool(t, x, o), stream(t, x)
	bufferFrom[byte](t, p, s, 1<<20)
	_, err := safe.NewBufferFrom[byte](p, s, 512<<20)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
}

// TestPoolCloses: a closed pool is destroyed with its last buffer, a context with its
// last pool.
func TestPoolCloses(t *testing.T) {
	startClean(t) // what tests before have dropped keeps the context in use
	x, err := safe.Open(0)
	require.NoError(t, err)
	p, err := safe.NewPool(x)
	require.NoError(t, err)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	b, err := safe.NewBufferFrom[float32](p, s, 100)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, x.Close())
		require.NoError(t, p.Close())
	}
	_, err = safe.NewBufferFrom[float32](p, s, 100)
	assert.ErrorIs(t, err, safe.ErrClosed)
	require.NoError(t, b.FillAsync(s, 2))
	require.NoError(t, s.Close())
	got := make([]float32, 100)
	require.NoError(t, b.CopyToHost(got))
	assert.EqualValues(t, 2, got[99])
	assert.True(t, inUse(t, x.Device()))
	require.NoError(t, b.Close())
	assert.Eventually(t, func() bool { return !inUse(t, x.Device()) }, hang, time.Millisecond, "the last object is closed")
}

// TestPoolDropped: pools dropped without Close are destroyed.
func TestPoolDropped(t *testing.T) {
	x := open(t, 0)
	byDefault, err := safe.DefaultPool(x)
	require.NoError(t, err)
	closing(t, byDefault)
	func() {
		p, err := safe.NewPool(x)
		require.NoError(t, err)
		require.NoError(t, p.MakeCurrent())
		b, err := safe.NewBufferFrom[float32](p, stream(t, x), 100)
		require.NoError(t, err)
		require.Equal(t, p.Raw(), currentPool(t, x))
		runtime.KeepAlive(b)
	}()
	for range 1000 {
		if drop(); currentPool(t, x) == byDefault.Raw() {
			break
		}
	}
	assert.Equal(t, byDefault.Raw(), currentPool(t, x), "the default one again")
}

// currentPool returns the handle of the device's current pool.
func currentPool(t *testing.T, x *safe.Context) driver.CUmemoryPool {
	t.Helper()
	p, err := safe.CurrentPool(x)
	require.NoError(t, err)
	defer p.Close()
	return p.Raw()
}

func TestCurrentPool(t *testing.T) {
	startClean(t) // that of an earlier test may be current still
	x := open(t, 0)
	s := stream(t, x)
	byDefault, err := safe.DefaultPool(x)
	require.NoError(t, err)
	closing(t, byDefault)
	current := func() *safe.Pool {
		p, err := safe.CurrentPool(x)
		require.NoError(t, err)
		closing(t, p)
		return p
	}
	assert.Equal(t, byDefault.Raw(), current().Raw())
	p, err := safe.NewPool(x)
	require.NoError(t, err)
	require.NoError(t, p.MakeCurrent())
	b, err := safe.NewBufferAsync[float32](s, 10)
	require.NoError(t, err)
	assert.EqualValues(t, p.Raw(), aboutPointer(t, x, b.Raw(), driver.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE))
	require.NoError(t, b.Close())

	borrowed, raw := current(), p.Raw()
	require.NoError(t, p.Close())
	assert.Equal(t, raw, borrowed.Raw())
	bufferFrom[int8](t, borrowed, s, 3)
	require.NoError(t, borrowed.SetAttribute(driver.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0), "it is there as long as it is borrowed")
	require.NoError(t, byDefault.MakeCurrent())
	assert.Equal(t, byDefault.Raw(), current().Raw())
}

// TestPoolBesideCaptures: calls on pools destroy no captures of other streams.
func TestPoolBesideCaptures(t *testing.T) {
	x := open(t, 0)
	s, side := stream(t, x), stream(t, x)
	before, plain := pool(t, x, shared), plainBuffer[int32](t, x, 1<<20)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamBeginCapture(s.Raw(), driver.CU_STREAM_CAPTURE_MODE_GLOBAL) }))
	everything := func() {
		p, err := safe.NewPoolWith(x, shared)
		require.NoError(t, err)
		b, err := safe.NewBufferFrom[int32](p, side, 100)
		require.NoError(t, err)
		_, err = p.Attribute(driver.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		assert.NoError(t, err)
		if sharesFiles {
			_, err = b.ExportPointer()
			assert.NoError(t, err)
		}
		_, err = plain.IPCHandle()
		assert.NoError(t, err)
		assert.NoError(t, b.Close())
		assert.NoError(t, p.SetAttribute(driver.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0))
		assert.NoError(t, p.SetAccess(x.Device(), readWrite))
		assert.NoError(t, p.SetAttribute(driver.CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0))
		assert.NoError(t, p.Trim(0))
		if sharesFiles {
			f, err := p.Export()
			require.NoError(t, err)
			assert.NoError(t, f.Close())
		}
		assert.NoError(t, p.Close())
		_, err = safe.NewBufferFrom[int32](before, s, 1)
		assert.ErrorIs(t, err, safe.ErrCapturing)
	}
	everything()
	done := make(chan struct{})
	go func() { defer close(done); everything() }()
	<-done
	var g driver.CUgraph
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamEndCapture(s.Raw(), &g) }))
	require.NoError(t, driver.CuGraphDestroy(g))
}

// TestPoolRaces: many goroutines make pools current, borrow, use and close them.
func TestPoolRaces(t *testing.T) {
	x := open(t, 0)
	pool(t, x, safe.PoolOptions{}) // skips if the device has no pools
	var all sync.WaitGroup
	for g := range 8 {
		s := stream(t, x)
		all.Go(func() {
			for range 25 {
				var p *safe.Pool
				var err error
				if g%2 == 0 {
					p, err = safe.NewPool(x)
					if assert.NoError(t, err) {
						assert.NoError(t, p.MakeCurrent())
					}
				} else {
					p, err = safe.CurrentPool(x)
				}
				if !assert.NoError(t, err) {
					return
				}
				b, err := safe.NewBufferFrom[int32](p, s, 100)
				assert.NoError(t, err)
				assert.NoError(t, p.Close())
				assert.NoError(t, b.FillAsync(s, 0))
				assert.NoError(t, b.Close())
			}
		})
	}
	all.Wait()
	if !onGPU {
		assert.Empty(t, simulated.Violation())
	}
}

// poolUses are calls that must fail alike on a nil pointer, a zero value and a closed
// object.
func poolUses(x *safe.Context, s *safe.Stream, p *safe.Pool, b *safe.Buffer[int32]) map[string]func() error {
	return map[string]func() error{
		"NewPool":           func() error { _, err := safe.NewPool(x); return err },
		"DefaultPool":       func() error { _, err := safe.DefaultPool(x); return err },
		"CurrentPool":       func() error { _, err := safe.CurrentPool(x); return err },
		"ImportPool":        func() error { _, err := safe.ImportPool(x, os.Stdin); return err },
		"NewBufferFrom":     func() error { _, err := safe.NewBufferFrom[int32](p, s, 1); return err },
		"Pool.MakeCurrent":  p.MakeCurrent,
		"Pool.Trim":         func() error { return p.Trim(0) },
		"Pool.Attribute":    func() error { _, err := p.Attribute(1); return err },
		"Pool.SetAttribute": func() error { return p.SetAttribute(1, 1) },
		"Pool.SetAccess":    func() error { return p.SetAccess(x.Device(), readWrite) },
		"Pool.Export":       func() error { _, err := p.Export(); return err },
		"ImportBuffer": func() error {
			_, err := safe.ImportBuffer[int32](p, driver.CUmemPoolPtrExportData{}, 1)
			return err
		},
		"Buffer.ExportPointer": func() error { _, err := b.ExportPointer(); return err },
		"Buffer.IPCHandle":     func() error { _, err := b.IPCHandle(); return err },
		"OpenIPCBuffer":        func() error { _, err := safe.OpenIPCBuffer[int32](x, driver.CUipcMemHandle{}, 1); return err },
	}
}

func TestPoolClosed(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	p := pool(t, x, shared)
	b := bufferFrom[int32](t, p, s, 1)
	_, err := safe.NewBufferFrom[int32](p, nil, 1)
	assert.ErrorIs(t, err, safe.ErrClosed)
	for range 2 {
		for _, c := range []closer{x, p, b, s} {
			require.NoError(t, c.Close())
		}
	}
	refusedAll(t, poolUses(x, s, p, b))
	refusedAll(t, poolUses(nil, nil, nil, nil))
	zero := &safe.Pool{}
	refusedAll(t, poolUses(&safe.Context{}, &safe.Stream{}, zero, &safe.Buffer[int32]{}))
	assert.NoError(t, zero.Close())
	assert.Zero(t, zero.Raw())
	assert.NoError(t, (*safe.Pool)(nil).Close())
	assert.Zero(t, (*safe.Pool)(nil).Raw())
}
