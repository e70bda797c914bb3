//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests allocate from arenas. They run on the simulated driver and on a GPU; those
// named TestSim need the simulated driver.

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

func init() {
	operations = append(operations, []operation{
		{"NewArena", func(w *world) error { _, err := safe.NewArena(w.s, 9); return err }},
		{"NewBufferIn", func(w *world) error {
			a, err := safe.NewArena(w.s, 9)
			if err != nil {
				return err
			}
			_, err = also(w, a, nil)
			if err == nil {
				_, err = safe.NewBufferIn[int32](a, 9)
			}
			return err
		}},
		{"Arena.Reset", func(w *world) error {
			a, err := safe.NewArena(w.s, 9)
			if err != nil {
				return err
			}
			return a.Reset()
		}},
	}...)
}

func newArenaOf(t testing.TB, s *safe.Stream, size int) *safe.Arena {
	t.Helper()
	a, err := safe.NewArena(s, size)
	require.NoError(t, err)
	closing(t, a)
	return a
}

func in[T any](t testing.TB, a *safe.Arena, n int) *safe.Buffer[T] {
	t.Helper()
	b, err := safe.NewBufferIn[T](a, n)
	require.NoError(t, err)
	return b
}

// TestArena: buffers are parts of one block, aligned and apart, until the arena is reset.
func TestArena(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	a := newArenaOf(t, s, 4096)
	for round := range 3 {
		one, two, none := in[byte](t, a, 1), in[float32](t, a, 100), in[int32](t, a, 0)
		assert.Zero(t, one.Raw()%256)
		assert.Equal(t, one.Raw()+256, two.Raw())
		assert.Zero(t, none.Raw())
		assert.Equal(t, 100, two.Len())
		require.NoError(t, one.FillAsync(s, 9))
		require.NoError(t, two.FillAsync(s, float32(round)))
		require.NoError(t, none.FillAsync(s, 0))
		require.NoError(t, two.Close(), "which does nothing")
		got, err := two.Download()
		require.NoError(t, err)
		assert.EqualValues(t, round, got[99])
		first, err := one.Download()
		require.NoError(t, err)
		assert.Equal(t, []byte{9}, first)
		part, err := two.Slice(1, 2)
		require.NoError(t, err)
		require.NoError(t, a.Reset())
		for _, err := range []error{one.FillAsync(s, 0), two.Fill(0), none.FillAsync(s, 0), part.Fill(0)} {
			assert.ErrorIs(t, err, safe.ErrClosed)
		}
		assert.Zero(t, two.Raw())
		require.NoError(t, a.Reset(), "again")
	}
	last := in[byte](t, a, 1)
	require.NoError(t, a.Close())
	assert.ErrorIs(t, last.Fill(0), safe.ErrClosed)
	_, err := safe.NewBufferIn[byte](a, 1)
	assert.ErrorIs(t, err, safe.ErrClosed)
	assert.ErrorIs(t, a.Reset(), safe.ErrClosed)
	require.NoError(t, a.Close(), "again")
	assert.Contains(t, a.String(), "closed")
}

func TestArenaRefuses(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	_, err := safe.NewArena(s, 0)
	assert.ErrorIs(t, err, safe.ErrRange)
	a := newArenaOf(t, s, 1)
	_, err = safe.NewBufferIn[*int](a, 1)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	_, err = safe.NewBufferIn[int](a, -1)
	assert.ErrorIs(t, err, safe.ErrRange)
	_, err = safe.NewBufferIn[byte](a, 1<<50)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
	in[byte](t, a, 100)
	g, err := s.Capture(func() error {
		_, err := safe.NewBufferIn[byte](a, 1000)
		assert.ErrorIs(t, err, safe.ErrCapturing, "no room")
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
	closed, err := safe.NewStream(x)
	require.NoError(t, err)
	late := newArenaOf(t, closed, 1)
	require.NoError(t, closed.Close())
	_, err = safe.NewBufferIn[byte](late, 1)
	assert.ErrorIs(t, err, safe.ErrClosed)
}

// TestArenaGrows: an arena takes further blocks, and after a reset one of their total size.
func TestArenaGrows(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	a := newArenaOf(t, s, 1000)
	work := func() {
		for i := range 10 {
			b := in[int32](t, a, 200)
			require.NoError(t, b.FillAsync(s, int32(i)))
		}
	}
	work()
	assert.Greater(t, simulated.Live("async"), 1)
	for range 3 {
		require.NoError(t, a.Reset())
		before := simulated.Calls("cuMemAllocFromPoolAsync")
		work()
		assert.Equal(t, 1, simulated.Calls("cuMemAllocFromPoolAsync")-before)
	}
	require.NoError(t, s.Synchronize())
	assert.Equal(t, 1, simulated.Live("async"))
	require.NoError(t, x.CloseAll())
	s = stream(t, x)
	assert.Eventually(t, func() bool { return simulated.Live("async") == 0 }, atOnce, time.Millisecond)
}

// TestArenaUsedElsewhere: what a graph or another stream uses stays until they are done.
func TestArenaUsedElsewhere(t *testing.T) {
	x := open(t, 0)
	s, other, e, g := stream(t, x), stream(t, x), event(t, x), newGate(t, x)
	a := newArenaOf(t, s, 1<<16)
	h := host[int32](t, x, 4)
	b := in[int32](t, a, 4)
	exec, err := s.CaptureExecutable(func() error {
		captured := in[int32](t, a, 4)
		return errors.Join(captured.FillAsync(s, 5), captured.CopyToHostAsync(s, h))
	})
	require.NoError(t, err)
	closing(t, exec)
	g.shut(t, other)
	require.NoError(t, errors.Join(s.Record(e), other.WaitEvent(e), b.FillAsync(other, 1)))
	require.NoError(t, a.Reset(), "it does not wait")
	for range 100 {
		require.NoError(t, in[int32](t, a, 1000).FillAsync(s, 8))
		require.NoError(t, a.Reset())
	}
	require.NoError(t, exec.Launch(s))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, []int32{5, 5, 5, 5}, h.Data())
	g.open()
	require.NoError(t, other.Synchronize())
}

// TestArenaInScope: an arena has the memory that a scope needs.
func TestArenaInScope(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	a := newArenaOf(t, s, 1<<16)
	for n := range 4 {
		v, got := count(100*n), make([]float32, 100*n)
		require.NoError(t, s.Scope(func(c *safe.Scope) error {
			defer a.Reset()
			b, err := safe.NewBufferIn[float32](a, len(v))
			if err != nil {
				return err
			}
			return errors.Join(safe.CopyFromSlice(c, b, v), safe.CopyToSlice(c, got, b))
		}))
		assert.Equal(t, v, got)
	}
}

// TestArenaDropped: the collector releases what a dropped arena has.
func TestArenaDropped(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	s := stream(t, x)
	b := func() *safe.Buffer[int32] {
		a, err := safe.NewArena(s, 1<<16)
		require.NoError(t, err)
		return in[int32](t, a, 4)
	}()
	drop()
	require.NoError(t, b.Fill(0), "a buffer keeps its block")
	b = nil
	assert.Eventually(t, func() bool { drop(); return simulated.Live("async") == 0 }, atOnce, time.Millisecond)
}

// TestArenaRace: goroutines allocate while others reset the arena.
func TestArenaRace(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	a := newArenaOf(t, s, 1<<12)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 200 {
				b, err := safe.NewBufferIn[int32](a, i)
				assert.NoError(t, err)
				if err := b.FillAsync(s, 1); err != nil {
					assert.ErrorIs(t, err, safe.ErrClosed)
				}
				if i%16 == 0 {
					assert.NoError(t, a.Reset())
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkNewBufferIn measures allocations from an arena of 64 MiB, which is reset when it
// is full.
func BenchmarkNewBufferIn(b *testing.B) {
	x := open(b, 0)
	a := newArenaOf(b, stream(b, x), 64<<20)
	for name, size := range map[string]int{"256 B": 256, "4 KiB": 4 << 10, "1 MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			left := 64 << 20
			for b.Loop() {
				if left -= size; left < 0 {
					if err := a.Reset(); err != nil {
						b.Fatal(err)
					}
					left = 64<<20 - size
				}
				if _, err := safe.NewBufferIn[byte](a, size); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
