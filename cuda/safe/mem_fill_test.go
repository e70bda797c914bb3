//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Fills with values of every size, on all kinds of memory. Both drivers.

package safe_test

import (
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type numbered struct {
	A float64
	B int32
}

func TestFillWide(t *testing.T) {
	x := open(t, 0)
	fillWide(t, x, float64(1.5), -2)
	fillWide(t, x, int64(-7), 1<<40)
	fillWide(t, x, complex(float32(1), 2), 3)
	fillWide(t, x, complex(1, 2), 3)
	fillWide(t, x, [3]float32{1, 2, 3}, [3]float32{4, 5, 6})
	fillWide(t, x, [3]byte{1, 2, 3}, [3]byte{})
	fillWide(t, x, [5]uint16{1, 2, 3, 4, 5}, [5]uint16{6})
	fillWide(t, x, numbered{1, 2}, numbered{3, 4})
	fillWide(t, x, counted[[8]uint64](), [8]uint64{1})
	fillWide(t, x, counted[[9]uint64](), [9]uint64{1})
	fillWide(t, x, counted[[500]uint64](), [500]uint64{1})
	fillWide(t, x, [3999]byte{3998: 1}, [3999]byte{5, 6})
}

// counted returns an array whose values differ.
func counted[T any]() (v T) {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&v)), unsafe.Sizeof(v)/8)
	for i := range words {
		words[i] = uint64(i + 1)
	}
	return v
}

// fillWide fills every kind of memory in every way with v and w.
func fillWide[T comparable](t *testing.T, x *safe.Context, v, w T) {
	t.Helper()
	const n = 9
	for _, way := range fillWays[T]() {
		t.Run(fmt.Sprintf("%T, %s", v, way.name), func(t *testing.T) {
			s, b := stream(t, x), buffer[T](t, x, n)
			require.NoError(t, b.Fill(*new(T)))
			part, err := b.Slice(1, n-1)
			require.NoError(t, err)
			way.fill(t, x, s, part, w, v)
			var zero T
			got, err := b.Download()
			require.NoError(t, err)
			want := []T{zero, v, v, v, v, v, v, v, zero}
			assert.True(t, assert.ObjectsAreEqual(want, got), "%.200v", got)
		})
	}
	t.Run(fmt.Sprintf("%T, Pinned", v), func(t *testing.T) { fillWidePinned(t, x, v, w) })
	t.Run(fmt.Sprintf("%T, Pitched", v), func(t *testing.T) { fillWidePitched(t, x, v) })
	noViolation(t)
}

// A fillWay fills a part of a buffer with other, and then with v.
type fillWay[T any] struct {
	name string
	fill func(t *testing.T, x *safe.Context, s *safe.Stream, b *safe.Buffer[T], other, v T)
}

func fillWays[T any]() []fillWay[T] {
	return []fillWay[T]{
		{"Fill", func(t *testing.T, _ *safe.Context, _ *safe.Stream, b *safe.Buffer[T], other, v T) {
			require.NoError(t, errors.Join(b.Fill(other), b.Fill(v)))
		}},
		{"FillAsync", func(t *testing.T, _ *safe.Context, s *safe.Stream, b *safe.Buffer[T], other, v T) {
			require.NoError(t, errors.Join(b.FillAsync(s, other), b.FillAsync(s, v)))
		}},
		{"captured", func(t *testing.T, _ *safe.Context, s *safe.Stream, b *safe.Buffer[T], other, v T) {
			g, err := s.Capture(func() error { return errors.Join(b.FillAsync(s, other), b.FillAsync(s, v)) })
			require.NoError(t, err)
			closing(t, g)
			nodes, err := g.Nodes()
			require.NoError(t, err)
			assert.Len(t, nodes, 2)
			require.NoError(t, executable(t, g).Launch(s))
		}},
		{"node", func(t *testing.T, x *safe.Context, s *safe.Stream, b *safe.Buffer[T], other, v T) {
			g := newGraph(t, x)
			n := addNode(t, g, safe.FillNode(b, other))
			nodes, err := g.Nodes()
			require.NoError(t, err)
			assert.Len(t, nodes, 1)
			require.NoError(t, n.Set(safe.FillNode(b, other)))
			e := executable(t, g)
			require.NoError(t, e.Launch(s))
			require.NoError(t, e.Set(n, safe.FillNode(b, v)))
			require.NoError(t, e.Launch(s))
		}},
		{"batch", func(t *testing.T, x *safe.Context, s *safe.Stream, b *safe.Buffer[T], other, v T) {
			batch := newBatch(t, x)
			require.NoError(t, errors.Join(safe.BatchFill(batch, b, *new(T)), safe.BatchFill(batch, b, other), batch.Submit(s)))
			require.NoError(t, errors.Join(safe.SetBatchFill(batch, 1, b, v), batch.Submit(s)))
			require.NoError(t, s.Synchronize())
			g, err := s.Capture(func() error { return batch.Submit(s) })
			require.NoError(t, err)
			closing(t, g)
			require.NoError(t, errors.Join(b.Fill(other), executable(t, g).Launch(s)))
		}},
	}
}

// fillUnaligned fills values that have the size of a memset's, but are not aligned for one.
func fillUnaligned[T comparable](t *testing.T, v, w T) {
	t.Helper()
	x := open(t, 0)
	fillWide(t, x, v, w)
	const n = 4
	size, align := uint64(unsafe.Sizeof(v)), int(unsafe.Alignof(v))
	for _, way := range fillWays[T]() {
		t.Run(fmt.Sprintf("%T, %s, not aligned", v, way.name), func(t *testing.T) {
			s, all := stream(t, x), buffer[byte](t, x, 256)
			part, err := all.Slice(align, 256)
			require.NoError(t, err)
			values, err := safe.Cast[T](part)
			require.NoError(t, err)
			values, err = values.Slice(0, n)
			require.NoError(t, err)
			for _, pair := range [][2]T{{w, v}, {v, *new(T)}} {
				way.fill(t, x, s, values, pair[0], pair[1])
				got, err := values.Download()
				require.NoError(t, err)
				assert.Equal(t, []T{pair[1], pair[1], pair[1], pair[1]}, got)
			}
		})
	}
	t.Run(fmt.Sprintf("%T, Pitched, not aligned", v), func(t *testing.T) {
		s, all := stream(t, x), buffer[byte](t, x, 256)
		part, err := all.Slice(align, 256)
		require.NoError(t, err)
		values, err := safe.Cast[T](part)
		require.NoError(t, err)
		rows, err := values.Pitched(safe.Extent{Width: 3, Height: 2}, 4*size+uint64(align))
		require.NoError(t, err)
		require.NoError(t, errors.Join(rows.Fill(w), rows.FillAsync(s, v), s.Synchronize()))
		got := make([]T, 6)
		require.NoError(t, rows.CopyToHost(got))
		assert.Equal(t, []T{v, v, v, v, v, v}, got)
	})
	noViolation(t)
}

func TestFillUnaligned(t *testing.T) {
	fillUnaligned(t, [4]uint8{1, 2, 3, 4}, [4]uint8{5})
	fillUnaligned(t, [2]uint8{1, 2}, [2]uint8{3})
	fillUnaligned(t, [2]uint16{1, 2}, [2]uint16{3})
}

func fillWidePinned[T comparable](t *testing.T, x *safe.Context, v, w T) {
	s, h := stream(t, x), host[T](t, x, 5)
	var zero T
	for _, fill := range []func(p *safe.Pinned[T]) error{
		func(p *safe.Pinned[T]) error { return p.Fill(v) },
		func(p *safe.Pinned[T]) error {
			return errors.Join(p.FillAsync(s, w), p.FillAsync(s, v), s.Synchronize())
		},
		func(p *safe.Pinned[T]) error {
			g := newGraph(t, x)
			addNode(t, g, safe.FillNode(p, v))
			return errors.Join(executable(t, g).Launch(s), s.Synchronize())
		},
	} {
		clear(h.Data())
		part, err := h.Slice(1, 4)
		require.NoError(t, err)
		require.NoError(t, fill(part))
		assert.True(t, assert.ObjectsAreEqual([]T{zero, v, v, v, zero}, h.Data()), "%.200v", h.Data())
	}
}

func fillWidePitched[T comparable](t *testing.T, x *safe.Context, v T) {
	s := stream(t, x)
	all, at, e := safe.Extent{Width: 5, Height: 4, Depth: 3}, safe.Position{X: 1, Y: 1, Z: 1}, safe.Extent{Width: 3, Height: 2, Depth: 2}
	for _, fill := range []func(b *safe.Pitched[T]) error{
		func(b *safe.Pitched[T]) error { return b.Fill(v) },
		func(b *safe.Pitched[T]) error { return b.FillAsync(s, v) },
	} {
		b := pitched[T](t, x, all)
		require.NoError(t, b.Fill(*new(T)))
		part, err := b.Sub(at, e)
		require.NoError(t, err)
		require.NoError(t, fill(part))
		got := make([]T, 60)
		require.NoError(t, b.CopyToHost(got))
		var zero T
		for i := range got {
			px, py, pz := i%5, i/5%4, i/20
			want := zero
			if px >= 1 && px < 4 && py >= 1 && py < 3 && pz >= 1 && pz < 3 {
				want = v
			}
			require.True(t, want == got[i], "%d, %d, %d: %.200v", px, py, pz, got[i])
		}
	}
}

// TestFillWideElsewhere fills managed memory, much memory, nothing, and on a green context's stream.
func TestFillWideElsewhere(t *testing.T) {
	x := open(t, 0)
	const n = 1<<20 + 3
	b := buffer[complex128](t, x, n)
	require.NoError(t, b.Fill(1+2i))
	got, err := b.Download()
	require.NoError(t, err)
	for i := range got {
		require.True(t, got[i] == 1+2i, i)
	}
	none, err := b.Slice(n, n)
	require.NoError(t, err)
	assert.NoError(t, errors.Join(none.Fill(1), none.FillAsync(stream(t, x), 1)))
	_, err = newGraph(t, x).Add(safe.FillNode(none, 1))
	assert.ErrorIs(t, err, safe.ErrRange)

	m := managed[float64](t, x, 100)
	require.NoError(t, m.Fill(2.5))
	assert.Equal(t, 2.5, m.Data()[99])
	t.Run("green", func(t *testing.T) {
		s, f := greenStream(t, green(t, x, splitInto(t, 1)[0])), buffer[float64](t, x, 1000)
		require.NoError(t, f.FillAsync(s, 7))
		got, err := f.Download()
		require.NoError(t, err)
		assert.Equal(t, 7.0, got[999])
	})
	noViolation(t)
}

// TestFillWideRefused: what is too large, closed, or of no device is named.
func TestFillWideRefused(t *testing.T) {
	x := open(t, 0)
	s, large := stream(t, x), buffer[[501]float64](t, x, 1)
	batch := newBatch(t, x)
	g := newGraph(t, x)
	value := [501]float64{1: 1}
	require.NoError(t, large.Fill([501]float64{}), "zeros are no matter of size")
	const why = "a value has 4008 bytes, but the device can fill with values of up to 4000: copy it instead"
	for name, err := range map[string]error{
		"Fill":      large.Fill(value),
		"FillAsync": large.FillAsync(s, value),
		"BatchFill": safe.BatchFill(batch, large, value),
		"FillNode":  func() error { _, err := g.Add(safe.FillNode(large, value)); return err }(),
	} {
		assert.ErrorIs(t, err, safe.ErrInvalidArgument, name)
		assert.ErrorContains(t, err, why, name)
	}
	closed := buffer[float64](t, x, 1)
	require.NoError(t, closed.Close())
	for name, err := range map[string]error{
		"Fill":      closed.Fill(1),
		"FillAsync": closed.FillAsync(s, 1),
		"BatchFill": safe.BatchFill(batch, closed, 1),
		"FillNode":  func() error { _, err := g.Add(safe.FillNode(closed, 1)); return err }(),
	} {
		assert.ErrorIs(t, err, safe.ErrClosed, name)
	}
}

// TestFillWideAfterClose: no kernel is loaded into a context that is closed.
func TestFillWideAfterClose(t *testing.T) {
	x, err := safe.Open(0)
	require.NoError(t, err)
	b, batch := buffer[[3]byte](t, x, 10), newBatch(t, x)
	require.NoError(t, x.Close())
	assert.ErrorIs(t, safe.BatchFill(batch, b, [3]byte{1, 2, 3}), safe.ErrClosed)
	assert.NoError(t, safe.BatchFill(batch, b, [3]byte{}), "a memset needs none")
}

// TestFillWideWhileCapturing loads the kernels while another stream captures in each mode.
func TestFillWideWhileCapturing(t *testing.T) {
	for _, m := range factModes {
		t.Run(m.name, func(t *testing.T) {
			x, err := safe.NewContext(open(t, 0).Device()) // without kernels
			require.NoError(t, err)
			closing(t, x)
			s, other, b := stream(t, x), stream(t, x), buffer[float64](t, x, 10)
			g, err := s.CaptureWith(t.Context(), safe.CaptureOptions{Mode: m.own}, func() error {
				return errors.Join(b.FillAsync(other, 1), b.FillAsync(s, 2))
			})
			require.NoError(t, err)
			closing(t, g)
			got, err := b.Download()
			require.NoError(t, err)
			assert.Equal(t, 1.0, got[9])
			require.NoError(t, executable(t, g).Launch(s))
			got, err = b.Download()
			require.NoError(t, err)
			assert.Equal(t, 2.0, got[9])
			noViolation(t)
		})
	}
}

// TestFillWideAtOnce has goroutines fill first at the same time.
func TestFillWideAtOnce(t *testing.T) {
	x, err := safe.NewContext(open(t, 0).Device())
	require.NoError(t, err)
	closing(t, x)
	var c racers
	for i := range 8 {
		b := buffer[float64](t, x, 100)
		c.add(1, func() error {
			if err := b.Fill(float64(i)); err != nil {
				return err
			}
			got, err := b.Download()
			if err == nil && got[99] != float64(i) {
				err = fmt.Errorf("%v instead of %d", got[99], i)
			}
			return err
		})
	}
	time.Sleep(time.Millisecond)
	require.NoError(t, c.end())
	noViolation(t)
}

// BenchmarkFill compares fills of types of other sizes with that of a 4-byte type.
func BenchmarkFill(b *testing.B) {
	x := open(b, 0)
	s := stream(b, x)
	sizes := []int{1 << 10, 1 << 20}
	if onGPU {
		sizes = append(sizes, 256<<20)
	}
	for _, size := range sizes {
		benchmarkFill(b, x, s, size, float32(1))
		benchmarkFill(b, x, s, size, float64(1))
		benchmarkFill(b, x, s, size, complex(1, 2))
		benchmarkFill(b, x, s, size, [3]float32{1, 2, 3})
		benchmarkFill(b, x, s, size, [9]float64{1})
		benchmarkFill(b, x, s, size, [3]byte{1})
	}
}

func benchmarkFill[T any](b *testing.B, x *safe.Context, s *safe.Stream, size int, v T) {
	m := buffer[T](b, x, size/int(unsafe.Sizeof(v)))
	require.NoError(b, m.Fill(v))
	b.Run(fmt.Sprintf("%d bytes of %T", size, v), func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			require.NoError(b, m.FillAsync(s, v))
		}
		require.NoError(b, s.Synchronize())
	})
}
