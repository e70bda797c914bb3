//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// When pools are destroyed. On an H100, processes of calls in C crashed or hung in 18 of 18 cases
// where a pool was destroyed whose releases the host had not waited for, while other threads
// waited for streams. TestPoolDrained needs the simulated driver, which tells when.

package safe_test

import (
	"errors"
	"io"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFactPoolNotices: a pool has its memory until the host has waited for the release; a query
// is no wait.
func TestFactPoolNotices(t *testing.T) {
	startClean(t) // some releases of memory wait for all work
	x := open(t, 0)
	require.NoError(t, x.WithCurrent(func() error {
		props := driver.CUmemPoolProps{AllocType: driver.CU_MEM_ALLOCATION_TYPE_PINNED, Location: driver.CUmemLocation{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE}} // device 0
		var p driver.CUmemoryPool
		var s driver.CUstream
		var m driver.CUdeviceptr
		require.NoError(t, driver.CuMemPoolCreate(&p, &props))
		require.NoError(t, driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING))
		require.NoError(t, driver.CuMemAllocFromPoolAsync(&m, 1<<20, p, s))
		require.NoError(t, driver.CuMemFreeAsync(m, s))
		reserved := func() (n uint64) {
			require.NoError(t, driver.CuMemPoolTrimTo(p, 0))
			require.NoError(t, driver.CuMemPoolGetAttribute(p, driver.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, unsafe.Pointer(&n)))
			return n
		}
		for driver.CuStreamQuery(s) == driver.CUDA_ERROR_NOT_READY {
			time.Sleep(time.Millisecond)
		}
		assert.NotZero(t, reserved())
		require.NoError(t, driver.CuStreamSynchronize(s))
		assert.Zero(t, reserved())
		return errors.Join(driver.CuMemPoolDestroy(p), driver.CuStreamDestroy(s))
	}))
}

// TestFactPoolNoticesEvent: a wait for an event counts if it was recorded on the stream after the last release.
func TestFactPoolNoticesEvent(t *testing.T) {
	startClean(t) // some releases of memory wait for all work
	x := open(t, 0)
	for name, row := range map[string]struct {
		record  func(record func(s driver.CUstream), release func(), s, other driver.CUstream)
		noticed bool
	}{
		"after the releases": {func(record func(driver.CUstream), release func(), s, _ driver.CUstream) {
			release()
			release()
			record(s)
		}, true},
		"between them": {func(record func(driver.CUstream), release func(), s, _ driver.CUstream) {
			release()
			record(s)
			release()
		}, false},
		"on another stream": {func(record func(driver.CUstream), release func(), _, other driver.CUstream) {
			release()
			release()
			record(other)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, x.WithCurrent(func() error {
				props := driver.CUmemPoolProps{AllocType: driver.CU_MEM_ALLOCATION_TYPE_PINNED, Location: driver.CUmemLocation{Type: driver.CU_MEM_LOCATION_TYPE_DEVICE}} // device 0
				var p driver.CUmemoryPool
				var s, other driver.CUstream
				var e driver.CUevent
				require.NoError(t, errors.Join(driver.CuMemPoolCreate(&p, &props), driver.CuEventCreate(&e, driver.CU_EVENT_DISABLE_TIMING),
					driver.CuStreamCreate(&s, driver.CU_STREAM_NON_BLOCKING), driver.CuStreamCreate(&other, driver.CU_STREAM_NON_BLOCKING)))
				var m [2]driver.CUdeviceptr
				for i := range m {
					require.NoError(t, driver.CuMemAllocFromPoolAsync(&m[i], 64<<20, p, s))
				}
				left := m[:]
				release := func() {
					require.NoError(t, driver.CuMemFreeAsync(left[0], s))
					left = left[1:]
				}
				row.record(func(on driver.CUstream) { require.NoError(t, driver.CuEventRecord(e, on)) }, release, s, other)
				for driver.CuStreamQuery(s) == driver.CUDA_ERROR_NOT_READY {
					time.Sleep(time.Millisecond)
				}
				require.NoError(t, driver.CuEventSynchronize(e))
				var reserved uint64
				require.NoError(t, driver.CuMemPoolTrimTo(p, 0))
				require.NoError(t, driver.CuMemPoolGetAttribute(p, driver.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, unsafe.Pointer(&reserved)))
				assert.Equal(t, row.noticed, reserved == 0, "%d bytes are reserved", reserved)
				return errors.Join(driver.CuStreamSynchronize(s), driver.CuMemPoolDestroy(p), driver.CuEventDestroy(e), driver.CuStreamDestroy(s), driver.CuStreamDestroy(other))
			}))
		})
	}
}

// rawRelease allocates memory of a pool on a stream and releases it by raw calls.
func rawRelease(p *safe.Pool, raw driver.CUstream) error {
	var m driver.CUdeviceptr
	err := driver.CuMemAllocFromPoolAsync(&m, 16, p.Raw(), raw)
	return errors.Join(err, driver.CuMemFreeAsync(m, raw))
}

// TestPoolDrained: a closed pool is destroyed, but not before the driver has noticed that its
// memory was released.
func TestPoolDrained(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	var raw driver.CUstream
	require.NoError(t, x.WithCurrent(func() error { return driver.CuStreamCreate(&raw, 0) }))
	defer func() { assert.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) })) }()
	own := func() *safe.Stream {
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		return s
	}
	lent := func() *safe.Stream {
		s, err := safe.BorrowStream(raw, x, nil)
		require.NoError(t, err)
		return s
	}
	from := func(p *safe.Pool, s *safe.Stream) *safe.Buffer[uint32] {
		b, err := safe.NewBufferFrom[uint32](p, s, 4)
		require.NoError(t, err)
		return b
	}
	current := func(p *safe.Pool, s *safe.Stream) *safe.Buffer[uint32] {
		require.NoError(t, p.MakeCurrent())
		b, err := safe.NewBufferAsync[uint32](s, 4)
		require.NoError(t, err)
		return b
	}
	byRawCalls := func(p *safe.Pool, s *safe.Stream) *safe.Buffer[uint32] {
		require.NoError(t, s.EnqueueRaw(func(raw driver.CUstream) error { return rawRelease(p, raw) }))
		return nil
	}
	for name, row := range map[string]struct {
		stream func() *safe.Stream
		buffer func(p *safe.Pool, s *safe.Stream) *safe.Buffer[uint32]
		close  bool // the stream, before the work is over
	}{
		"a stream":                           {own, from, false},
		"a stream that is closed":            {own, from, true},
		"another's":                          {lent, from, false},
		"another's, closed":                  {lent, from, true},
		"the legacy stream":                  {func() *safe.Stream { return legacy }, from, false},
		"another's, by raw calls, closed":    {lent, byRawCalls, true},
		"memory of the current pool":         {own, current, false},
		"memory of the current pool, closed": {own, current, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := safe.NewPool(x)
			require.NoError(t, err)
			s := row.stream()
			pools := simulated.Live("pool")
			simulated.Hold(true)
			defer simulated.Hold(false)
			b := row.buffer(p, s)
			if b != nil {
				require.NoError(t, b.FillAsync(s, 7))
			}
			_, err = s.LaunchHostFunc(func() {})
			require.NoError(t, err)
			require.NoError(t, b.Close())
			if row.close {
				require.NoError(t, s.Close())
			}
			require.NoError(t, p.Close())
			time.Sleep(20 * time.Millisecond)
			assert.Equal(t, pools, simulated.Live("pool"), "the memory is in use")
			byDefault, err := safe.CurrentPool(x)
			require.NoError(t, err)
			require.NoError(t, byDefault.Close())
			simulated.Hold(false)
			assert.Eventually(t, func() bool { return simulated.Live("pool") < pools }, atOnce, time.Millisecond)
			require.NoError(t, s.Close())
		})
	}
	noViolation(t)
}

// trimmed trims a pool of which nothing is used until nothing is left: the driver may notice a release later than a Trim
// waits for that.
func trimmed(t *testing.T, p *safe.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := p.Trim(0)
		reserved, _ := aboutPool(t, p)
		return err == nil && reserved == 0
	}, atOnce, time.Millisecond)
}

// TestNoticeForeign: trimming a pool does not touch a borrowed stream unless package safe may have freed
// memory there, and then once: its owner may be beginning a capture with raw calls.
func TestNoticeForeign(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	raw := rawStream(t, x)
	defer func() { assert.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) })) }()
	s, err := safe.BorrowStream(raw, x, nil)
	require.NoError(t, err)
	p, err := safe.NewPool(x)
	require.NoError(t, err)
	closing(t, p)
	records := func() int {
		before := simulated.Calls("cuEventRecord")
		require.NoError(t, p.Trim(0))
		return simulated.Calls("cuEventRecord") - before
	}
	from := func() *safe.Buffer[uint32] {
		b, err := safe.NewBufferFrom[uint32](p, s, 4)
		require.NoError(t, err)
		return b
	}
	gate := newGate(t, x)
	assert.Zero(t, records(), "unused")
	require.NoError(t, errors.Join(from().Close(), s.Synchronize()))
	assert.NotZero(t, records(), "a release")
	trimmed(t, p)
	assert.Zero(t, records(), "noticed")
	require.NoError(t, errors.Join(safe.EnqueueRaw(func() error { return rawRelease(p, raw) }, safe.RawWork{Stream: s}), s.Synchronize()))
	assert.NotZero(t, records(), "a release by a raw call")
	trimmed(t, p)
	gate.shut(t, s)
	require.NoError(t, from().Close())
	assert.NotZero(t, records(), "a release that is pending")
	gate.open()
	require.NoError(t, errors.Join(s.Synchronize(), from().Close(), s.Synchronize()))
	assert.NotZero(t, records(), "a release after the record for an earlier one")
	trimmed(t, p)
	again, err := s.Borrow()
	require.NoError(t, err)
	defer again.Close()
	require.NoError(t, errors.Join(from().Close(), s.Close(), again.Synchronize()))
	assert.NotZero(t, records(), "a release on a stream that was closed and is borrowed")
	trimmed(t, p)
}

// TestNoticeBesideCapture: a function of EnqueueRaw may release memory on a stream beside one that captures.
func TestNoticeBesideCapture(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	raw, capturing := rawStream(t, x), stream(t, x)
	defer func() { assert.NoError(t, x.WithCurrent(func() error { return driver.CuStreamDestroy(raw) })) }()
	s, err := safe.BorrowStream(raw, x, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	p, err := safe.NewPool(x)
	require.NoError(t, err)
	closing(t, p)
	g, err := capturing.Capture(func() error {
		return safe.EnqueueRaw(func() error { return rawRelease(p, raw) }, safe.RawWork{Stream: s}, safe.RawWork{Stream: capturing})
	})
	require.NoError(t, errors.Join(err, s.Synchronize(), g.Close()))
	trimmed(t, p)
}

// TestPoolBesideFree: a pool is not destroyed while the driver waits for work before it frees memory.
func TestPoolBesideFree(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	for call, create := range map[string]func() (io.Closer, error){
		"cuMemFree_v2":        func() (io.Closer, error) { return safe.NewBufferWith[uint32](x, 4, safe.BufferOptions{Plain: true}) },
		"cuMemFreeHost":       func() (io.Closer, error) { return safe.NewPinned[uint32](x, 4) },
		"cuMemHostUnregister": func() (io.Closer, error) { return safe.RegisterPinned(x, make([]uint32, 4096)) },
		"cuLibraryUnload":     func() (io.Closer, error) { return safe.Load(x, compiled) },
		"cuArrayDestroy":      func() (io.Closer, error) { return safe.NewArray[uint8](x, safe.Extent{Width: 8}, safe.ArrayOptions{}) },
	} {
		t.Run(call, func(t *testing.T) {
			needs(t, call)
			defer simulated.Reset()
			object, err := create()
			require.NoError(t, err)
			p, err := safe.NewPool(x)
			require.NoError(t, err)
			simulated.Delay(call, hang)
			destroyed := simulated.Calls("cuMemPoolDestroy")
			freed := background(func() { assert.NoError(t, object.Close()) })
			inside(t, "driver.C"+call[1:])
			require.NoError(t, p.Close())
			time.Sleep(50 * time.Millisecond)
			assert.Equal(t, destroyed, simulated.Calls("cuMemPoolDestroy"))
			simulated.Reset() // ends the delay
			<-freed
			assert.Eventually(t, func() bool { return simulated.Calls("cuMemPoolDestroy") > destroyed }, atOnce, time.Millisecond)
		})
	}
}
