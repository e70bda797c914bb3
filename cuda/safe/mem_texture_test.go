//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// These tests read and write arrays and memory through textures and surfaces. They run on
// the simulated driver and on a GPU.

package safe_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func array[T any](t testing.TB, x *safe.Context, e safe.Extent, o safe.ArrayOptions) *safe.Array[T] {
	t.Helper()
	a, err := safe.NewArray[T](x, e, o)
	require.NoError(t, err)
	closing(t, a)
	return a
}

func texture[T any](t testing.TB, a *safe.Array[T], o safe.TextureOptions) *safe.Texture {
	t.Helper()
	u, err := safe.NewTexture(a, o)
	require.NoError(t, err)
	closing(t, u)
	return u
}

// A sampling reads a texture at width x height points, which begin at start and are step
// apart.
type sampling struct {
	kernel        *safe.Kernel
	out           *safe.Buffer[float32]
	width, height int
}

func newSampling(t *testing.T, x *safe.Context, width, height int) *sampling {
	t.Helper()
	return &sampling{kernel(t, x, "sample"), buffer[float32](t, x, width*height), width, height}
}

func (s *sampling) launch(on *safe.Stream, u safe.Arg, step, start float32) error {
	return s.kernel.Launch(on, perValue(s.width*s.height), s.out.Arg(), u, safe.Val(uint32(s.width)), safe.Val(uint32(s.height)), safe.Val(step), safe.Val(start))
}

func (s *sampling) read(t *testing.T, on *safe.Stream, u *safe.Texture, step, start float32) []float32 {
	t.Helper()
	require.NoError(t, s.launch(on, u.Arg(), step, start))
	got := make([]float32, s.width*s.height)
	require.NoError(t, s.out.CopyToHost(got))
	return got
}

// TestTexture reads an image from an array and from pitched memory.
func TestTexture(t *testing.T) {
	x := open(t, 0)
	s := stream(t, x)
	const w, h = 37, 11
	a, b := array[float32](t, x, safe.Extent{Width: w, Height: h}, safe.ArrayOptions{}), pitched[float32](t, x, safe.Extent{Width: w, Height: h})
	pinned := host[float32](t, x, w*h)
	copy(pinned.Data(), count(w*h))
	require.NoError(t, b.CopyFromHostAsync(s, pinned))
	require.NoError(t, a.Pitched().CopyFromAsync(s, b))
	u, err := safe.NewPitchedTexture(b, safe.TextureOptions{})
	require.NoError(t, err)
	closing(t, u)
	v := texture(t, a, safe.TextureOptions{})
	for range 2 {
		require.NoError(t, a.Close(), "the texture keeps it")
	}
	_, err = safe.NewTexture(a, safe.TextureOptions{})
	assert.ErrorIs(t, err, safe.ErrClosed)
	all, around := newSampling(t, x, w, h), newSampling(t, x, w+4, h+4)
	clamped := make([]float32, 0, (w+4)*(h+4))
	for y := range h + 4 {
		for i := range w + 4 {
			clamped = append(clamped, float32(min(max(y-2, 0), h-1)*w+min(max(i-2, 0), w-1)))
		}
	}
	for name, u := range map[string]*safe.Texture{"pitched": u, "array": v} {
		assert.Equal(t, count(w*h), all.read(t, s, u, 1, 0.5), name)
		assert.Equal(t, clamped, around.read(t, s, u, 1, -1.5), name)
	}
}

// TestTextureOptions interpolates, and reads outside of the texture in all address modes.
func TestTextureOptions(t *testing.T) {
	x := open(t, 0)
	const n = 4
	s, a := stream(t, x), array[float32](t, x, safe.Extent{Width: n, Height: n}, safe.ArrayOptions{})
	values := make([]float32, n*n)
	for i := range values {
		values[i] = float32(i%n + 10*(i/n)) // x + 10 y
	}
	require.NoError(t, a.Pitched().CopyFromHost(values))
	around := newSampling(t, x, 3*n, 3*n) // from -1 to 2 in coordinates in which the texture is from 0 to 1
	for _, c := range []struct {
		mode  driver.CUaddress_mode
		index func(i int) int // -1 for the border
	}{
		{driver.CU_TR_ADDRESS_MODE_WRAP, func(i int) int { return (i + n) % n }},
		{driver.CU_TR_ADDRESS_MODE_CLAMP, func(i int) int { return min(max(i, 0), n-1) }},
		{driver.CU_TR_ADDRESS_MODE_MIRROR, func(i int) int { return max(min(i, 2*n-1-i), -1-i) }},
		{driver.CU_TR_ADDRESS_MODE_BORDER, func(i int) int {
			if i < 0 || i >= n {
				return -1
			}
			return i
		}},
	} {
		t.Run(fmt.Sprint(c.mode), func(t *testing.T) {
			o := safe.TextureOptions{Address: [3]driver.CUaddress_mode{c.mode, c.mode, c.mode}, Normalized: true, Border: [4]float32{5, 5, 5, 5}}
			var want []float32
			for y := -n; y < 2*n; y++ {
				for i := -n; i < 2*n; i++ {
					v := float32(5)
					if at, row := c.index(i), c.index(y); at >= 0 && row >= 0 {
						v = values[row*n+at]
					}
					want = append(want, v)
				}
			}
			assert.Equal(t, want, around.read(t, s, texture(t, a, o), 1./n, -1+0.5/n))
		})
	}

	between := newSampling(t, x, 2*n-1, 2*n-1) // the values and the points halfway between them
	var want []float32
	for y := range 2*n - 1 {
		for i := range 2*n - 1 {
			want = append(want, float32(i)/2+5*float32(y))
		}
	}
	u := texture(t, a, safe.TextureOptions{Filter: driver.CU_TR_FILTER_MODE_LINEAR})
	assert.InDeltaSlice(t, want, between.read(t, s, u, 0.5, 0.5), 0.01)
}

// TestLinearTexture reads a Buffer by index; beyond its end it reads zeros.
func TestLinearTexture(t *testing.T) {
	x := open(t, 0)
	const n = 100
	s, b, out := stream(t, x), buffer[float32](t, x, n), buffer[float32](t, x, n+10)
	require.NoError(t, b.CopyFromHost(count(n)))
	u, err := safe.NewLinearTexture(b, safe.TextureOptions{})
	require.NoError(t, err)
	closing(t, u)
	require.NoError(t, kernel(t, x, "lookup").Launch(s, perValue(n+10), out.Arg(), u.Arg(), safe.Val(uint32(n+10))))
	got := make([]float32, n+10)
	require.NoError(t, out.CopyToHost(got))
	assert.Equal(t, append(count(n), make([]float32, 10)...), got)
}

// TestTextureRefused: arguments that CUDA would refuse, or crash on.
func TestTextureRefused(t *testing.T) {
	x := open(t, 0)
	b := buffer[float32](t, x, 1000)
	part, err := b.Slice(1, 10)
	require.NoError(t, err)
	odd, err := b.Pitched(safe.Extent{Width: 5, Height: 2}, 36)
	require.NoError(t, err)
	deep := pitched[float32](t, x, safe.Extent{Width: 5, Height: 2, Depth: 2})
	inner, err := deep.Sub(safe.Position{X: 1}, safe.Extent{Width: 2, Height: 2})
	require.NoError(t, err)
	a := array[float32](t, x, square, safe.ArrayOptions{})
	own, err := safe.PitchedOf(make([]float32, 4), safe.Extent{Width: 2, Height: 2}, 0)
	require.NoError(t, err)
	doubles := pitched[float64](t, x, square)
	var none safe.TextureOptions
	half := safe.TextureOptions{Format: driver.CU_AD_FORMAT_HALF}
	for name, call := range map[string]func() (*safe.Texture, error){
		"a slice that is not aligned": func() (*safe.Texture, error) { return safe.NewLinearTexture(part, none) },
		"a type without a format":     func() (*safe.Texture, error) { return safe.NewLinearTexture(buffer[float64](t, x, 1), none) },
		"a format of another size":    func() (*safe.Texture, error) { return safe.NewLinearTexture(b, half) },
		"a format beside the array's": func() (*safe.Texture, error) { return safe.NewTexture(a, half) },
		"a pitch that is not aligned": func() (*safe.Texture, error) { return safe.NewPitchedTexture(odd, none) },
		"a start that is not aligned": func() (*safe.Texture, error) { return safe.NewPitchedTexture(inner, none) },
		"slices":                      func() (*safe.Texture, error) { return safe.NewPitchedTexture(deep, none) },
		"an array as pitched memory":  func() (*safe.Texture, error) { return safe.NewPitchedTexture(a.Pitched(), none) },
		"a Go slice":                  func() (*safe.Texture, error) { return safe.NewPitchedTexture(own, none) },
		"pitched doubles":             func() (*safe.Texture, error) { return safe.NewPitchedTexture(doubles, none) },
	} {
		_, err := call()
		assert.ErrorIs(t, err, safe.ErrInvalidArgument, name)
	}
	_, err = safe.NewSurface(a)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	for name, call := range map[string]func() error{
		"doubles":        func() error { _, err := safe.NewArray[float64](x, square, safe.ArrayOptions{}); return err },
		"three channels": func() error { _, err := safe.NewArray[[3]float32](x, square, safe.ArrayOptions{}); return err },
		"a format of 16 bits": func() error {
			_, err := safe.NewArray[uint8](x, square, safe.ArrayOptions{Format: driver.CU_AD_FORMAT_HALF})
			return err
		},
		"Go pointers":         func() error { _, err := safe.NewArray[*int](x, square, safe.ArrayOptions{}); return err },
		"memsets of an array": func() error { return a.Pitched().Fill(0) },
		"a filled array":      func() error { return a.Pitched().Fill(1) },
	} {
		assert.ErrorIs(t, call(), safe.ErrInvalidArgument, name)
	}
	_, err = safe.NewArray[uint8](x, safe.Extent{Height: 2}, safe.ArrayOptions{})
	assert.ErrorIs(t, err, safe.ErrRange)
}

// TestArrays copies to arrays of several types and shapes and back.
func TestArrays(t *testing.T) {
	x := open(t, 0)
	flat, cube := safe.Extent{Width: 12, Height: 3}, safe.Extent{Width: 4, Height: 3, Depth: 3}
	holds(t, x, [4]uint8{1, 2, 3, 4}, flat, safe.ArrayOptions{})
	holds(t, x, [2]float32{1, 2}, cube, safe.ArrayOptions{})
	holds(t, x, int16(5), safe.Extent{Width: 36}, safe.ArrayOptions{Surface: true})
	holds(t, x, uint16(0x3c00), cube, safe.ArrayOptions{Layered: true, Format: driver.CU_AD_FORMAT_HALF})
	holds(t, x, uint32(7), safe.Extent{Width: 9, Depth: 4}, safe.ArrayOptions{Layered: true})
}

// holds copies 36 values to an array and back.
func holds[T any](t *testing.T, x *safe.Context, v T, e safe.Extent, o safe.ArrayOptions) {
	t.Helper()
	a := array[T](t, x, e, o)
	assert.Equal(t, e, a.Extent())
	values, got := make([]T, 36), make([]T, 36)
	values[0], values[17], values[35] = v, v, v
	require.NoError(t, a.Pitched().CopyFromHost(values))
	require.NoError(t, a.Pitched().CopyToHost(got))
	assert.Equal(t, values, got)
	require.NoError(t, x.WithCurrent(func() error {
		var d driver.CUDA_ARRAY3D_DESCRIPTOR
		require.NoError(t, driver.CuArray3DGetDescriptor(&d, a.Raw()))
		assert.EqualValues(t, e.Width, d.Width)
		assert.EqualValues(t, e.Height, d.Height)
		assert.EqualValues(t, e.Depth, d.Depth)
		return nil
	}))
	if o.Surface {
		u, err := safe.NewSurface(a)
		require.NoError(t, err)
		closing(t, u)
		assert.NotZero(t, u.Raw())
	}
}

// TestSurface: kernels write to an array, which outlives its Close until the surface is
// closed.
func TestSurface(t *testing.T) {
	x := open(t, 0)
	const w, h = 21, 9
	s, out := stream(t, x), pitched[float32](t, x, safe.Extent{Width: w, Height: h})
	a := array[float32](t, x, safe.Extent{Width: w, Height: h}, safe.ArrayOptions{Surface: true})
	u, err := safe.NewSurface(a)
	require.NoError(t, err)
	closing(t, u)
	require.NoError(t, kernel(t, x, "draw").Launch(s, perValue(w*h), u.Arg(), safe.Val(uint32(w)), safe.Val(uint32(h))))
	require.NoError(t, out.CopyFrom(a.Pitched()), "after the kernel")
	got := make([]float32, w*h)
	require.NoError(t, out.CopyToHost(got))
	assert.Equal(t, count(w*h), got)
}

// TestTextureOrder: work that uses a texture counts as work on its memory, and retains
// both.
func TestTextureOrder(t *testing.T) {
	x := open(t, 0)
	g, all := newGate(t, x), newSampling(t, x, 4, 4)
	s, a := stream(t, x), array[float32](t, x, square, safe.ArrayOptions{})
	require.NoError(t, a.Pitched().CopyFromHost(fours(1)))
	u, err := safe.NewTexture(a, safe.TextureOptions{})
	require.NoError(t, err)
	g.shut(t, s)
	require.NoError(t, all.launch(s, u.Arg(), 1, 0.5))
	done := make(chan error, 2)
	go func() { done <- u.Close() }()
	go func() { done <- a.Pitched().CopyFromHost(fours(2)) }()
	select {
	case <-done:
		t.Error("before the kernel that reads the texture")
	case <-time.After(20 * time.Millisecond):
	}
	g.open()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	got := make([]float32, 16)
	require.NoError(t, all.out.CopyToHost(got))
	assert.Equal(t, fours(1), got)
	assert.ErrorIs(t, all.launch(s, u.Arg(), 1, 0.5), safe.ErrClosed)
	require.NoError(t, u.Close())
}

// TestTextureCapture: a graph retains a texture and its array.
func TestTextureCapture(t *testing.T) {
	x := open(t, 0)
	s, all := stream(t, x), newSampling(t, x, 4, 4)
	a, err := safe.NewArray[float32](x, square, safe.ArrayOptions{})
	require.NoError(t, err)
	require.NoError(t, a.Pitched().CopyFromHost(fours(3)))
	u, err := safe.NewTexture(a, safe.TextureOptions{})
	require.NoError(t, err)
	g, err := s.Capture(func() error { return all.launch(s, u.Arg(), 1, 0.5) })
	require.NoError(t, err)
	e := executable(t, g)
	require.NoError(t, a.Close())
	require.NoError(t, u.Close())
	require.NoError(t, g.Close())
	require.NoError(t, e.Launch(s))
	got := make([]float32, 16)
	require.NoError(t, all.out.CopyToHost(got))
	assert.Equal(t, fours(3), got)
}

// TestTextureArguments: a texture is no argument for a kernel of another context.
func TestTextureArguments(t *testing.T) {
	x := open(t, 0)
	s, all := stream(t, x), newSampling(t, x, 4, 4)
	for name, arg := range map[string]safe.Arg{
		"nil texture": (*safe.Texture)(nil).Arg(), "no texture": (&safe.Texture{}).Arg(),
		"nil surface": (*safe.Surface)(nil).Arg(), "no surface": (&safe.Surface{}).Arg(),
	} {
		assert.ErrorIs(t, all.launch(s, arg, 1, 0), safe.ErrClosed, name)
	}
	store := kernel(t, x, "three")
	u := texture(t, array[float32](t, x, square, safe.ArrayOptions{}), safe.TextureOptions{})
	needs(t, "cuFuncGetParamInfo")
	assert.ErrorIs(t, store.Launch(s, one, safe.Val(uint64(0)), u.Arg(), safe.Val(float32(0))), safe.ErrInvalidArgument, "a parameter of 4 bytes")
	y := second(t)
	require.NoError(t, x.EnablePeerAccess(y))
	foreign := texture(t, array[float32](t, y, square, safe.ArrayOptions{}), safe.TextureOptions{})
	assert.ErrorIs(t, all.launch(s, foreign.Arg(), 1, 0), safe.ErrContextMismatch)
	require.NoError(t, x.DisablePeerAccess(y))
}

// TestTextureOfGraphMemory tests that a kernel reads memory of a graph by a texture only while
// the memory is allocated.
func TestTextureOfGraphMemory(t *testing.T) {
	needs(t, "cuMemAllocAsync")
	x := open(t, 0)
	s, lookup, out := stream(t, x), kernel(t, x, "lookup"), buffer[float32](t, x, 4)
	g, b := allocating[float32](t, s, 4)
	closing(t, g)
	e := executable(t, g)
	require.NoError(t, errors.Join(e.Launch(s), s.Synchronize()))
	texture, err := safe.NewLinearTexture(b, safe.TextureOptions{})
	require.NoError(t, err)
	closing(t, texture)
	launch := func() error {
		return lookup.Launch(s, one, out.Arg(), texture.Arg(), safe.Val(uint32(1)))
	}
	require.NoError(t, launch())
	require.NoError(t, b.FreeAsync(s))
	assert.ErrorIs(t, launch(), safe.ErrNotAllocated)
	require.NoError(t, errors.Join(e.Launch(s), launch(), s.Synchronize()))
}
