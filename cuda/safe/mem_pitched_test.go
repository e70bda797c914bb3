//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests copy and fill pitched memory of every kind. They run on the simulated
// driver and on a GPU.

package safe_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A volume is the values of pitched memory, row by row without padding.
type volume struct {
	safe.Extent
	values []uint16
}

func newVolume(e safe.Extent, from int) *volume {
	v := &volume{e, make([]uint16, e.Width*e.Height*e.Depth)}
	for i := range v.values {
		v.values[i] = uint16(from + i)
	}
	return v
}

func (v *volume) at(x, y, z int) *uint16 { return &v.values[(z*v.Height+y)*v.Width+x] }

// copy does what a copy of a part should do.
func (v *volume) copy(at safe.Position, src *volume, from safe.Position, e safe.Extent) {
	for z := range e.Depth {
		for y := range e.Height {
			for x := range e.Width {
				*v.at(at.X+x, at.Y+y, at.Z+z) = *src.at(from.X+x, from.Y+y, from.Z+z)
			}
		}
	}
}

// A side is pitched memory of some kind, as the source or destination of copies.
type side struct {
	name   string
	view   *safe.Pitched[uint16]
	pinned bool
	slice  bool
	load   func(t *testing.T, values []uint16)
	fetch  func(t *testing.T) []uint16
}

func (e *side) host() bool { return e.pinned || e.slice }

// onHost sets load and fetch for host memory whose rows are stride values apart.
func onHost(e *side, all safe.Extent, data []uint16, stride int) *side {
	rows := func(f func(row, dense int)) {
		for r := range all.Height * all.Depth {
			f(r*stride, r*all.Width)
		}
	}
	e.load = func(_ *testing.T, values []uint16) {
		rows(func(row, dense int) { copy(data[row:row+all.Width], values[dense:]) })
	}
	e.fetch = func(*testing.T) []uint16 {
		got := make([]uint16, all.Width*all.Height*all.Depth)
		rows(func(row, dense int) { copy(got[dense:dense+all.Width], data[row:]) })
		return got
	}
	return e
}

// onDevice returns a side that loads and fetches by copies of the whole memory.
func onDevice(name string, b *safe.Pitched[uint16]) *side {
	return &side{
		name: name, view: b,
		load: func(t *testing.T, values []uint16) { require.NoError(t, b.CopyFromHost(values)) },
		fetch: func(t *testing.T) []uint16 {
			e := b.Extent()
			got := make([]uint16, e.Width*e.Height*e.Depth)
			require.NoError(t, b.CopyToHost(got))
			return got
		},
	}
}

func pitched[T any](t testing.TB, x *safe.Context, e safe.Extent) *safe.Pitched[T] {
	t.Helper()
	b, err := safe.NewPitched[T](x, e)
	require.NoError(t, err)
	closing(t, b)
	return b
}

// sides are pitched memory of one extent, of all kinds.
func sides(t *testing.T, x *safe.Context, e safe.Extent) []*side {
	const more = 3 // values of padding between the rows
	stride := e.Width + more
	n := e.Width * e.Height * e.Depth
	room := stride*(e.Height*e.Depth-1) + e.Width // the last row has no padding
	pitch := uint64(stride) * 2
	must := func(b *safe.Pitched[uint16], err error) *safe.Pitched[uint16] {
		t.Helper()
		require.NoError(t, err)
		return b
	}
	h, wide := host[uint16](t, x, n), host[uint16](t, x, room)
	s, wideSlice := make([]uint16, n), make([]uint16, room)
	a, err := safe.NewArray[uint16](x, e, safe.ArrayOptions{})
	require.NoError(t, err)
	closing(t, a)
	return []*side{
		onDevice("pitched", pitched[uint16](t, x, e)),
		onDevice("dense", must(buffer[uint16](t, x, n).Pitched(e, 0))),
		onDevice("padded", must(buffer[uint16](t, x, room).Pitched(e, pitch))),
		onDevice("managed", must(managed[uint16](t, x, n).Pitched(e, 0))),
		onDevice("array", a.Pitched()),
		onHost(&side{name: "pinned", pinned: true, view: must(h.Pitched(e, 0))}, e, h.Data(), e.Width),
		onHost(&side{name: "pinned and padded", pinned: true, view: must(wide.Pitched(e, pitch))}, e, wide.Data(), stride),
		onHost(&side{name: "slice", slice: true, view: must(safe.PitchedOf(s, e, 0))}, e, s, e.Width),
		onHost(&side{name: "padded slice", slice: true, view: must(safe.PitchedOf(wideSlice, e, pitch))}, e, wideSlice, stride),
	}
}

// TestPitchedCopies copies parts between pitched memory of all kinds, and checks all
// values.
func TestPitchedCopies(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	for _, all := range []safe.Extent{{Width: 19, Height: 1, Depth: 1}, {Width: 7, Height: 5, Depth: 1}, {Width: 6, Height: 5, Depth: 4}} {
		from, to := sides(t, x, all), sides(t, x, all)
		random := rand.New(rand.NewPCG(1, 2))
		for _, src := range from {
			for _, dst := range to {
				t.Run(fmt.Sprintf("%v from %s to %s", all, src.name, dst.name), func(t *testing.T) {
					e, p, q := anyPart(random, all)
					a, err := src.view.Sub(p, e)
					require.NoError(t, err)
					b, err := dst.view.Sub(q, e)
					require.NoError(t, err)
					if src.host() && dst.host() {
						assert.ErrorIs(t, b.CopyFrom(a), safe.ErrInvalidArgument)
						assert.ErrorIs(t, b.CopyFromAsync(s, a), safe.ErrInvalidArgument)
						return
					}
					source, want := newVolume(all, 1000), newVolume(all, 0)
					want.copy(q, source, p, e)
					for _, async := range []bool{false, true} {
						src.load(t, source.values)
						dst.load(t, newVolume(all, 0).values)
						switch {
						case !async:
							require.NoError(t, b.CopyFrom(a))
						case src.slice || dst.slice:
							assert.ErrorIs(t, b.CopyFromAsync(s, a), safe.ErrInvalidArgument)
							continue
						default:
							require.NoError(t, b.CopyFromAsync(s, a))
							require.NoError(t, s.Synchronize())
						}
						require.Equal(t, want.values, dst.fetch(t), "async %v, %v from %v to %v", async, e, p, q)
					}
				})
			}
		}
	}
}

// anyPart returns the extent of a part, its position, and another position where it fits.
func anyPart(r *rand.Rand, all safe.Extent) (e safe.Extent, p, q safe.Position) {
	e = safe.Extent{Width: 1 + r.IntN(all.Width), Height: 1 + r.IntN(all.Height), Depth: 1 + r.IntN(all.Depth)}
	place := func() safe.Position {
		return safe.Position{X: r.IntN(all.Width - e.Width + 1), Y: r.IntN(all.Height - e.Height + 1), Z: r.IntN(all.Depth - e.Depth + 1)}
	}
	return e, place(), place()
}

// TestPitchedOverlap: parts can be copied to other parts of the same memory, unless they
// have values in common.
func TestPitchedOverlap(t *testing.T) {
	x := open(t, 0)
	all := safe.Extent{Width: 8, Height: 6, Depth: 4}
	s := stream(t, x)
	random := rand.New(rand.NewPCG(3, 4))
	common := func(a, b, n int) bool { return a < b+n && b < a+n }
	for _, end := range sides(t, x, all)[:5] { // those on a device
		t.Run(end.name, func(t *testing.T) {
			want := newVolume(all, 0)
			end.load(t, want.values)
			overlaps := 0
			for range 150 {
				e, p, q := anyPart(random, all)
				a, err := end.view.Sub(p, e)
				require.NoError(t, err)
				b, err := end.view.Sub(q, e)
				require.NoError(t, err)
				if common(p.X, q.X, e.Width) && common(p.Y, q.Y, e.Height) && common(p.Z, q.Z, e.Depth) {
					overlaps++
					require.ErrorIs(t, b.CopyFrom(a), safe.ErrOverlap, "%v at %v and %v", e, p, q)
					require.ErrorIs(t, b.CopyFromAsync(s, a), safe.ErrOverlap)
					continue
				}
				require.NoError(t, b.CopyFrom(a), "%v at %v and %v", e, p, q)
				want.copy(q, &volume{all, append([]uint16(nil), want.values...)}, p, e)
			}
			assert.Equal(t, want.values, end.fetch(t))
			assert.NotZero(t, overlaps)
			assert.Less(t, overlaps, 150)
		})
	}
	b := buffer[byte](t, x, 100)
	narrow, err := b.Pitched(safe.Extent{Width: 4, Height: 4}, 5)
	require.NoError(t, err)
	wide, err := b.Pitched(safe.Extent{Width: 4, Height: 4}, 10)
	require.NoError(t, err)
	assert.ErrorIs(t, wide.CopyFrom(narrow), safe.ErrOverlap, "other pitches")
	high, err := b.Pitched(safe.Extent{Width: 4, Height: 5, Depth: 2}, 10)
	require.NoError(t, err)
	part, err := b.Slice(40, 100)
	require.NoError(t, err)
	low, err := part.Pitched(safe.Extent{Width: 4, Height: 2, Depth: 2}, 10)
	require.NoError(t, err)
	assert.ErrorIs(t, high.CopyFrom(low), safe.ErrOverlap, "slices of other heights")
}

func TestPitchedBounds(t *testing.T) {
	x := open(t, 0)
	b, h := buffer[int32](t, x, 100), host[int32](t, x, 100)
	s := make([]int32, 100)
	const most = math.MaxInt
	for _, c := range []struct {
		name  string
		e     safe.Extent
		pitch uint64
		fits  bool
	}{
		{"a row", safe.Extent{Width: 100}, 0, true},
		{"rows", safe.Extent{Width: 10, Height: 10}, 0, true},
		{"slices", safe.Extent{Width: 5, Height: 5, Depth: 4}, 0, true},
		{"room between rows", safe.Extent{Width: 10, Height: 9}, 45, true},
		{"no padding after the last row", safe.Extent{Width: 10, Height: 4}, 120, true},
		{"a byte less", safe.Extent{Width: 10, Height: 4}, 121, false},
		{"a value too long", safe.Extent{Width: 101}, 0, false},
		{"a row too many", safe.Extent{Width: 10, Height: 11}, 0, false},
		{"a slice too many", safe.Extent{Width: 5, Height: 5, Depth: 5}, 0, false},
		{"rows that overlap", safe.Extent{Width: 10, Height: 2}, 39, false},
		{"no width", safe.Extent{Height: 1, Depth: 1}, 0, false},
		{"negative width", safe.Extent{Width: -1}, 0, false},
		{"negative height", safe.Extent{Width: 1, Height: -1}, 0, false},
		{"negative depth", safe.Extent{Width: 1, Height: 1, Depth: -1}, 0, false},
		{"endless width", safe.Extent{Width: most}, 0, false},
		{"endless height", safe.Extent{Width: 1, Height: most}, 0, false},
		{"endless depth", safe.Extent{Width: 1, Height: 1, Depth: most}, 0, false},
		{"wraps around", safe.Extent{Width: 1, Height: 1 << 32, Depth: 1 << 32}, 0, false},
		{"wraps around to little", safe.Extent{Width: 1, Height: 1 << 31, Depth: 1 << 31}, 4, false},
		{"endless pitch", safe.Extent{Width: 1, Height: 2}, math.MaxUint64, false},
		{"endless pitch of slices", safe.Extent{Width: 1, Height: 2, Depth: 2}, 1 << 63, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err1 := b.Pitched(c.e, c.pitch)
			_, err2 := h.Pitched(c.e, c.pitch)
			_, err3 := safe.PitchedOf(s, c.e, c.pitch)
			for _, err := range []error{err1, err2, err3} {
				if c.fits {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, safe.ErrRange)
				}
			}
		})
	}
	_, err := safe.PitchedOf([]*int{nil}, safe.Extent{Width: 1}, 0)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument, "Go pointers")
	_, err = safe.NewPitched[int](x, safe.Extent{})
	assert.ErrorIs(t, err, safe.ErrRange)
	_, err = safe.NewPitched[int](x, safe.Extent{Width: 1, Height: most, Depth: most})
	assert.ErrorIs(t, err, safe.ErrRange)

	all, err := b.Pitched(safe.Extent{Width: 5, Height: 5, Depth: 4}, 0)
	require.NoError(t, err)
	for _, c := range []struct {
		at safe.Position
		e  safe.Extent
	}{
		{safe.Position{X: -1}, safe.Extent{Width: 1}},
		{safe.Position{X: 5}, safe.Extent{Width: 1}},
		{safe.Position{X: 1}, safe.Extent{Width: 5}},
		{safe.Position{X: most}, safe.Extent{Width: most}},
		{safe.Position{}, safe.Extent{}},
		{safe.Position{Y: 1}, safe.Extent{Width: 1, Height: 5}},
		{safe.Position{}, safe.Extent{Width: 1, Height: -1}},
		{safe.Position{Z: 4}, safe.Extent{Width: 1}},
		{safe.Position{Z: 3}, safe.Extent{Width: 1, Height: 1, Depth: 2}},
	} {
		_, err := all.Sub(c.at, c.e)
		assert.ErrorIs(t, err, safe.ErrRange, "%v at %v", c.e, c.at)
	}
}

// TestPitchedRoom: the destination of a copy may be larger, but not smaller.
func TestPitchedRoom(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	small, large := pitched[int32](t, x, safe.Extent{Width: 3, Height: 2}), pitched[int32](t, x, safe.Extent{Width: 4, Height: 3, Depth: 2})
	require.NoError(t, large.Fill(0))
	require.NoError(t, small.CopyFromHost([]int32{1, 2, 3, 4, 5, 6}))
	require.NoError(t, large.CopyFrom(small))
	got := make([]int32, 25) // one more than there are
	require.NoError(t, large.CopyToHost(got))
	assert.Equal(t, []int32{1, 2, 3, 0, 4, 5, 6, 0, 0}, got[:9])
	assert.ErrorIs(t, small.CopyFrom(large), safe.ErrRange)
	assert.ErrorIs(t, small.CopyFromAsync(s, large), safe.ErrRange)
	assert.ErrorIs(t, small.CopyFromHost(got[:5]), safe.ErrRange)
	assert.ErrorIs(t, small.CopyFromHost(got[:7]), safe.ErrRange)
	assert.ErrorIs(t, small.CopyToHost(got[:5]), safe.ErrRange)

	h, more := host[int32](t, x, 6), host[int32](t, x, 7)
	copy(h.Data(), []int32{7, 8, 9, 10, 11, 12})
	require.NoError(t, small.CopyFromHostAsync(s, h))
	require.NoError(t, small.CopyToHostAsync(s, more))
	require.NoError(t, s.Synchronize())
	assert.Equal(t, h.Data(), more.Data()[:6])
	assert.ErrorIs(t, small.CopyFromHostAsync(s, more), safe.ErrRange)
	assert.ErrorIs(t, large.CopyToHostAsync(s, h), safe.ErrRange)

	assert.Equal(t, safe.Extent{Width: 4, Height: 3, Depth: 2}, large.Extent())
	assert.GreaterOrEqual(t, large.Pitch(), uint64(16))
	assert.Equal(t, 3*large.Pitch(), large.SlicePitch())
	row, err := large.Sub(safe.Position{X: 1, Y: 2, Z: 1}, safe.Extent{Width: 2})
	require.NoError(t, err)
	assert.EqualValues(t, 5*large.Pitch()+4, row.Raw()-large.Raw())
	assert.Contains(t, row.String(), "2x1x1 values")
	require.NoError(t, row.Close(), "a part is not the owner")
	require.NoError(t, row.Fill(0))
}

// TestPitchedKernel passes the address of pitched memory to a kernel.
func TestPitchedKernel(t *testing.T) {
	x := open(t, 0)
	s, b, fill := stream(t, x), pitched[float32](t, x, safe.Extent{Width: 5, Height: 3}), kernel(t, x, "fill")
	require.NoError(t, b.Fill(0))
	row, err := b.Sub(safe.Position{X: 1, Y: 1}, safe.Extent{Width: 3})
	require.NoError(t, err)
	require.NoError(t, fill.Launch(s, perValue(3), safe.Val(uint32(3)), safe.Val(float32(2)), row.Arg()))
	got := make([]float32, 15)
	require.NoError(t, b.CopyToHost(got), "after the kernel")
	assert.Equal(t, []float32{0, 0, 0, 0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 0, 0}, got)
	h, err := host[float32](t, x, 3).Pitched(safe.Extent{Width: 3}, 0)
	require.NoError(t, err)
	for _, arg := range []safe.Arg{h.Arg(), (*safe.Pitched[float32])(nil).Arg(), (&safe.Pitched[float32]{}).Arg()} {
		assert.ErrorIs(t, fill.Launch(s, perValue(3), safe.Val(uint32(3)), safe.Val(float32(2)), arg), safe.ErrClosed)
	}
}

func TestPitchedFill(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	fillPitched(t, x, s, uint8(7))
	fillPitched(t, x, s, int16(-7))
	fillPitched(t, x, s, float32(0.5))

	doubles := pitched[float64](t, x, safe.Extent{Width: 3, Height: 2})
	require.NoError(t, doubles.CopyFromHost([]float64{1, 2, 3, 4, 5, 6}))
	require.NoError(t, doubles.FillAsync(s, 0))
	got := make([]float64, 6)
	require.NoError(t, doubles.CopyToHost(got))
	assert.Zero(t, got[5])
	odd, err := buffer[uint16](t, x, 10).Pitched(safe.Extent{Width: 2, Height: 2}, 7)
	require.NoError(t, err)
	pinned, err := host[uint16](t, x, 10).Pitched(safe.Extent{Width: 2, Height: 2}, 0)
	require.NoError(t, err)
	own, err := safe.PitchedOf(make([]uint16, 10), safe.Extent{Width: 2, Height: 2}, 0)
	require.NoError(t, err)
	assert.ErrorIs(t, odd.Fill(1), safe.ErrInvalidArgument)
	assert.NoError(t, odd.Fill(0))
	assert.ErrorIs(t, pinned.Fill(1), safe.ErrInvalidArgument)
	assert.ErrorIs(t, own.Fill(0), safe.ErrInvalidArgument)
	assert.ErrorIs(t, own.FillAsync(s, 0), safe.ErrInvalidArgument)
}

func fillPitched[T uint8 | int16 | float32](t *testing.T, x *safe.Context, s *safe.Stream, v T) {
	t.Helper()
	all := safe.Extent{Width: 5, Height: 4, Depth: 3}
	b := pitched[T](t, x, all)
	for _, c := range []struct {
		at safe.Position
		e  safe.Extent
	}{
		{safe.Position{}, all},
		{safe.Position{X: 1, Y: 1, Z: 1}, safe.Extent{Width: 3, Height: 2, Depth: 2}},
		{safe.Position{X: 2, Y: 3}, safe.Extent{Width: 3, Height: 1, Depth: 3}},
		{safe.Position{X: 4, Z: 2}, safe.Extent{Width: 1, Height: 4}},
	} {
		part, err := b.Sub(c.at, c.e)
		require.NoError(t, err)
		for _, fill := range []struct {
			call func() error
			want T
		}{
			{func() error { return part.Fill(v) }, v},
			{func() error { return part.FillAsync(s, v) }, v},
			{func() error { return part.Fill(0) }, 0},
			{func() error { return part.FillAsync(s, 0) }, 0},
		} {
			want := make([]T, 60)
			for i := range want {
				want[i] = 99
			}
			require.NoError(t, b.CopyFromHost(want))
			require.NoError(t, fill.call())
			for z := range max(c.e.Depth, 1) {
				for y := range c.e.Height {
					for i := range c.e.Width {
						want[((c.at.Z+z)*4+c.at.Y+y)*5+c.at.X+i] = fill.want
					}
				}
			}
			got := make([]T, 60)
			require.NoError(t, b.CopyToHost(got))
			require.Equal(t, want, got, "%v at %v of %d bytes", c.e, c.at, unsafe.Sizeof(v))
		}
	}
}

// TestPitchedFar: rows may be further apart than 2 GiB, in spite of CU_DEVICE_ATTRIBUTE_MAX_PITCH.
func TestPitchedFar(t *testing.T) {
	x := open(t, 0)
	e := safe.Extent{Width: 8, Height: 1}
	if onGPU { // the simulated driver would write to all memory that lies between
		e.Height = 2
	}
	for _, pitch := range []uint64{1<<31 - 4, 1 << 31, 5 << 30} {
		t.Run(fmt.Sprint(pitch), func(t *testing.T) {
			n := e.Width + (e.Height-1)*int(pitch/4)
			from, to := buffer[uint32](t, x, n), buffer[uint32](t, x, n)
			a, err := from.Pitched(e, pitch)
			require.NoError(t, err)
			b, err := to.Pitched(e, pitch)
			require.NoError(t, err)
			require.NoError(t, errors.Join(a.Fill(7), b.Fill(0), b.CopyFrom(a)))
			end, err := to.Slice(n-e.Width, n)
			require.NoError(t, err)
			got, err := end.Download()
			require.NoError(t, err)
			assert.Equal(t, []uint32{7, 7, 7, 7, 7, 7, 7, 7}, got)
		})
	}
}
