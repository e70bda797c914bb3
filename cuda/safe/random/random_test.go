//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package random_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/random"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pseudo are the kinds with a seed.
var pseudo = []random.Kind{random.Philox, random.XORWOW, random.MRG32k3a, random.MTGP32}

// quasi are those with dimensions.
var quasi = []random.Kind{random.Sobol32, random.ScrambledSobol32, random.Sobol64, random.ScrambledSobol64}

// TestSeed: the same numbers for a seed, others for another, and others for another kind.
func TestSeed(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	var before []float32
	for _, k := range pseudo {
		one := take(t, generator(t, x, k, random.Options{Seed: 1}), s, 100, random.Uniform[float32])
		again := take(t, generator(t, x, k, random.Options{Seed: 1}), s, 100, random.Uniform[float32])
		two := take(t, generator(t, x, k, random.Options{Seed: 2}), s, 100, random.Uniform[float32])
		same(t, one, again, "%v", k)
		assert.NotEqual(t, one, two, k)
		assert.NotEqual(t, one, before, k)
		before = one
	}
}

// TestLengths: buffers of any length at any address are filled, and nothing beside them.
func TestLengths(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for _, k := range append(slices.Clone(pseudo), quasi...) {
		g := generator(t, x, k, random.Options{})
		lengths(t, g, s, normal[float32])
		lengths(t, g, s, normal[float64])
		lengths(t, g, s, logNormal[float32])
		lengths(t, g, s, logNormal[float64])
		lengths(t, g, s, random.Uniform[float32])
		lengths(t, g, s, random.Uniform[float64])
		if k < random.Sobol64 {
			lengths(t, g, s, random.Bits[uint32])
		}
		if k < random.Sobol32 || k >= random.Sobol64 {
			lengths(t, g, s, random.Bits[uint64])
		}
		lengths(t, g, s, func(g *random.Generator, s *safe.Stream, b *safe.Buffer[uint32]) error {
			return random.Poisson(g, s, b, 50) // hardly ever 0
		})
	}
}

func lengths[T comparable](t *testing.T, g *random.Generator, s *safe.Stream, f func(*random.Generator, *safe.Stream, *safe.Buffer[T]) error) {
	t.Helper()
	for _, part := range [][2]int{{0, 0}, {0, 1}, {0, 2}, {0, 33}, {1, 2}, {1, 33}, {2, 34}, {3, 64}, {4, 64}, {63, 64}} {
		b := buffer[T](t, g.Context(), 64)
		slice, err := b.Slice(part[0], part[1])
		require.NoError(t, err)
		require.NoError(t, f(g, s, slice), "%v of %T, %v", g, *new(T), part)
		for i, v := range download(t, b) {
			// The first point of a quasi-random sequence may be 0 in bits.
			if inside := i >= part[0] && i < part[1]; !inside {
				require.Zero(t, v, "%v, %v: %d is outside", g, part, i)
			} else if i > part[0] {
				require.NotZero(t, v, "%v, %v: %d is inside", g, part, i)
			}
		}
	}
}

// TestOneSequence: calls on several streams get what they get on one.
func TestOneSequence(t *testing.T) {
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	for _, k := range append(slices.Clone(pseudo), random.Sobol32) {
		run := func(streams ...*safe.Stream) (all []float32) {
			g := generator(t, x, k, random.Options{})
			var buffers []*safe.Buffer[float32]
			for i, n := range []int{1000, 1001, 3, 70000, 1, 4096} {
				b := buffer[float32](t, x, n)
				buffers = append(buffers, b)
				on := streams[i%len(streams)]
				if i%2 == 0 {
					require.NoError(t, normal(g, on, b))
				} else {
					require.NoError(t, random.Uniform(g, on, b))
				}
			}
			for _, b := range buffers {
				all = append(all, download(t, b)...)
			}
			return all
		}
		one := run(s)
		same(t, one, run(s, other), "%v", k)
		same(t, one, run(other, s, s), "%v", k)
	}
}

// TestOrder: the work of a call waits for that of the call before, on another stream, too.
func TestOrder(t *testing.T) {
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	g := generator(t, x, random.XORWOW, random.Options{})
	var buffers [3]*safe.Buffer[float32]
	for i := range buffers {
		buffers[i] = buffer[float32](t, x, 500)
	}
	release := make(chan struct{})
	require.NoError(t, s.AddCallback(func(error) { <-release }))
	for i, on := range []*safe.Stream{s, other, s} {
		require.NoError(t, random.Uniform(g, on, buffers[i]))
	}
	time.Sleep(20 * time.Millisecond)
	done, err := other.Query()
	require.NoError(t, err)
	assert.False(t, done)
	close(release)
	all := take(t, generator(t, x, random.XORWOW, random.Options{}), s, 1500, random.Uniform[float32])
	for i, b := range buffers {
		same(t, all[500*i:][:500], download(t, b), "call %d", i)
	}
}

// TestStreamReplaced: that is so, too, if the program has written another stream into the object of the call before.
func TestStreamReplaced(t *testing.T) {
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	g := generator(t, x, random.XORWOW, random.Options{})
	a, b := buffer[float32](t, x, 500), buffer[float32](t, x, 500)
	h, err := safe.NewPinned[uint32](x, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	word := &h.Data()[0]
	require.NoError(t, safe.WaitValue(s, h.At(0), uint32(1), driver.CU_STREAM_WAIT_VALUE_GEQ))
	require.NoError(t, random.Uniform(g, s, a))
	undo := drivertest.Replace(s, other)
	require.NoError(t, random.Uniform(g, s, b))
	undo()
	time.Sleep(20 * time.Millisecond)
	done, err := other.Query()
	require.NoError(t, err)
	assert.False(t, done, "two calls use the state at once")
	atomic.StoreUint32(word, 1)
	require.NoError(t, errors.Join(s.Synchronize(), other.Synchronize()))
}

// TestSeek: after Seek, and with an offset, calls give what one long call has there.
func TestSeek(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for _, k := range []random.Kind{random.Philox, random.XORWOW, random.MRG32k3a, random.Sobol32, random.ScrambledSobol32} {
		seek(t, x, s, k, random.Uniform[float32])
		seek(t, x, s, k, random.Bits[uint32])
		seek(t, x, s, k, poisson)
	}
	for _, k := range []random.Kind{random.Philox, random.Sobol32, random.Sobol64, random.ScrambledSobol64} {
		seek(t, x, s, k, random.Uniform[float64])
		seek(t, x, s, k, normal[float32])
		seek(t, x, s, k, normal[float64])
		seek(t, x, s, k, logNormal[float32])
	}
	seek(t, x, s, random.Sobol64, random.Bits[uint64])
	g := generator(t, x, random.MTGP32, random.Options{})
	err := g.Seek(1)
	assert.ErrorIs(t, err, safe.ErrNotSupported)
	assert.EqualError(t, err, "cuda: random.Generator.Seek: unsupported operation: MTGP32 has no offset")
}

func seek[T comparable](t *testing.T, x *safe.Context, s *safe.Stream, k random.Kind, f func(*random.Generator, *safe.Stream, *safe.Buffer[T]) error) {
	t.Helper()
	g := generator(t, x, k, random.Options{})
	all := take(t, g, s, 12000, f)
	for _, at := range []int{0, 2, 4, 10000, 4096, 4} {
		require.NoError(t, g.Seek(uint64(at)))
		same(t, all[at:at+1000], take(t, g, s, 1000, f), "%v of %T at %d", k, *new(T), at)
		same(t, all[at+1000:at+1500], take(t, g, s, 500, f), "%v of %T after %d", k, *new(T), at+1000)
		offset := generator(t, x, k, random.Options{Offset: uint64(at)})
		same(t, all[at:at+1000], take(t, offset, s, 1000, f), "%v of %T with offset %d", k, *new(T), at)
	}
}

// TestDimensions: the first dimension comes first; lengths must be multiples.
func TestDimensions(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for _, k := range quasi {
		g := generator(t, x, k, random.Options{Dimensions: 3})
		points := take(t, g, s, 3*64, random.Uniform[float32])
		one := take(t, generator(t, x, k, random.Options{}), s, 64, random.Uniform[float32])
		same(t, one, points[:64], "%v", k)
		assert.NotEqual(t, points[:64], points[64:128], k)
		require.NoError(t, g.Seek(0))
		first, second := take(t, g, s, 3*40, random.Uniform[float32]), take(t, g, s, 3*24, random.Uniform[float32])
		for d := range 3 {
			same(t, points[64*d:][:64], append(first[40*d:][:40:40], second[24*d:][:24]...), "%v: dimension %d", k, d)
		}
		err := random.Uniform(g, s, buffer[float32](t, x, 64))
		assert.ErrorIs(t, err, safe.ErrRange)
		assert.EqualError(t, err, "cuda: random.Uniform: out of range: 64 values are no multiple of 3 dimensions")
		require.NoError(t, g.Seek(0))
		assert.Equal(t, points, take(t, g, s, 3*64, random.Uniform[float32]), "a refused call takes nothing")
	}
}

// TestRefused: what cuRAND cannot do is refused by name, and takes no number.
func TestRefused(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	g := generator(t, x, random.Philox, random.Options{Seed: 3})
	f, u := buffer[float32](t, x, 8), buffer[uint32](t, x, 8)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	newGenerator := func(k random.Kind, o random.Options) func() error {
		return func() error { _, err := random.New(x, k, o); return err }
	}
	for _, c := range []struct {
		name string
		f    func() error
		want error
		text string
	}{
		{"negative stddev", func() error { return random.Normal(g, s, f, 0, -1) }, safe.ErrInvalidArgument, "cuda: random.Normal: invalid argument: mean is 0, stddev -1"},
		{"NaN", func() error { return random.LogNormal(g, s, f, nan, 1) }, safe.ErrInvalidArgument, "random.LogNormal"},
		{"infinite", func() error { return random.Normal(g, s, f, 0, inf) }, safe.ErrInvalidArgument, "+Inf"},
		{"no lambda", func() error { return random.Poisson(g, s, u, 0) }, safe.ErrRange, "cuda: random.Poisson: out of range: lambda is 0, not above 0 and at most 400000"},
		{"NaN lambda", func() error { return random.Poisson(g, s, u, math.NaN()) }, safe.ErrRange, "NaN"},
		{"large lambda", func() error { return random.Poisson(g, s, u, 4e5+1) }, safe.ErrRange, "400001"},
		{"bits of Sobol64", func() error { return random.Bits(generator(t, x, random.Sobol64, random.Options{}), s, u) }, safe.ErrNotSupported, "Sobol64 has numbers of 64 bits"},
		{"unknown kind", newGenerator(99, random.Options{}), safe.ErrInvalidArgument, "99 is no constant of Kind"},
		{"seed of Sobol32", newGenerator(random.Sobol32, random.Options{Seed: 1}), safe.ErrNotSupported, "Sobol32 has no seed"},
		{"dimensions of Philox", newGenerator(random.Philox, random.Options{Dimensions: 2}), safe.ErrNotSupported, "Philox has no dimensions"},
		{"too many dimensions", newGenerator(random.Sobol32, random.Options{Dimensions: 20001}), safe.ErrRange, "20001"},
		{"offset of MTGP32", newGenerator(random.MTGP32, random.Options{Offset: 1}), safe.ErrNotSupported, "MTGP32 has no offset"},
	} {
		err := c.f()
		assert.ErrorIs(t, err, c.want, c.name)
		assert.ErrorContains(t, err, c.text, c.name)
	}
	assert.Equal(t, take(t, generator(t, x, random.Philox, random.Options{Seed: 3}), s, 8, random.Bits[uint32]), take(t, g, s, 8, random.Bits[uint32]))
}

// TestScratch: memory of its own is used where cuRAND cannot fill the buffer, and nowhere else.
func TestScratch(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s := stream(t, x)
	g := generator(t, x, random.Philox, random.Options{})
	b := buffer[float32](t, x, 64)
	for _, c := range []struct {
		from, to int
		n        string
		direct   bool
	}{{0, 64, "64", true}, {4, 64, "60", true}, {1, 63, "62", false}, {0, 63, "64", false}} {
		part, err := b.Slice(c.from, c.to)
		require.NoError(t, err)
		calls := logged(t, "n", func() { require.NoError(t, normal(g, s, part)) })
		require.Len(t, calls, 1)
		assert.Equal(t, c.n, calls[0].n)
		assert.Equal(t, c.direct, calls[0].out == fmt.Sprintf("%#x", uint64(part.Raw())), "%v", c)
	}
}

// TestNoAllocations: calls allocate nothing in Go.
func TestNoAllocations(t *testing.T) {
	x := open(t)
	s, g := stream(t, x), generator(t, x, random.Philox, random.Options{})
	single, double, words := buffer[float32](t, x, 63), buffer[float64](t, x, 64), buffer[uint64](t, x, 64)
	for name, f := range map[string]func() error{
		"Uniform":     func() error { return random.Uniform(g, s, single) },
		"Normal, odd": func() error { return random.Normal(g, s, single, 1, 2) },
		"LogNormal":   func() error { return random.LogNormal(g, s, double, 1, 2) },
		"Bits":        func() error { return random.Bits(g, s, words) },
	} {
		drivertest.NoAllocations(t, name, f, s.Synchronize)
	}
}

// TestClosed: closed objects are refused, and work that is enqueued completes.
func TestClosed(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	b := buffer[float32](t, x, 33)
	g, err := random.New(x, random.Philox, random.Options{})
	require.NoError(t, err)
	require.NoError(t, normal(g, s, b))
	require.NoError(t, g.Close())
	require.NoError(t, g.Close(), "again")
	assert.NotZero(t, download(t, b)[32])
	for name, err := range map[string]error{
		"normal": normal(g, s, b), "seek": g.Seek(0), "nil": normal(nil, s, b), "nil seek": (*random.Generator)(nil).Seek(0), "zero": random.Uniform(&random.Generator{}, s, b),
	} {
		assert.ErrorIs(t, err, safe.ErrClosed, name)
	}
	g = generator(t, x, random.Philox, random.Options{})
	assert.ErrorIs(t, normal(g, nil, b), safe.ErrClosed)
	assert.ErrorIs(t, normal[float32](g, s, nil), safe.ErrClosed)
	require.NoError(t, b.Close())
	assert.ErrorIs(t, normal(g, s, b), safe.ErrClosed)
	require.NoError(t, x.Close())
	b, err = safe.NewBuffer[float32](g.Context(), 8)
	require.NoError(t, err, "the generator keeps the context")
	defer b.Close()
	require.NoError(t, normal(g, s, b))
}

// TestDropped: the garbage collector destroys generators that the program has not closed.
func TestDropped(t *testing.T) {
	needsDouble(t)
	x := open(t)
	created := logged(t, "create", func() {
		g, err := random.New(x, random.XORWOW, random.Options{})
		require.NoError(t, err)
		require.NoError(t, normal(g, stream(t, x), buffer[float32](t, x, 100)))
	})
	require.Len(t, created, 1)
	assert.Eventually(t, func() bool {
		runtime.GC()
		all, err := readLog()
		return assert.NoError(t, err) && slices.ContainsFunc(all[slices.Index(all, created[0]):], func(e entry) bool {
			return e.op == "destroy" && e.generator == created[0].generator
		})
	}, time.Minute, time.Millisecond)
}

// TestOtherContext: streams of other devices are refused.
func TestOtherContext(t *testing.T) {
	devices, err := safe.Devices()
	require.NoError(t, err)
	if len(devices) < 2 {
		t.Skip("needs two devices")
	}
	x := open(t)
	y, err := safe.Open(1)
	require.NoError(t, err)
	defer y.Close()
	g, s := generator(t, x, random.Philox, random.Options{}), stream(t, y)
	for op, err := range map[string]error{"Normal": normal(g, s, buffer[float32](t, y, 8)), "Poisson": poisson(g, s, buffer[uint32](t, y, 8))} {
		assert.ErrorIs(t, err, safe.ErrContextMismatch)
		assert.ErrorContains(t, err, "cuda: random."+op+": objects of different contexts: the generator belongs to a context of device 0")
	}
}

// TestConcurrent: goroutines share a generator on many streams; each number is taken once.
func TestConcurrent(t *testing.T) {
	x := open(t)
	for _, k := range []random.Kind{random.Philox, random.XORWOW} {
		g := generator(t, x, k, random.Options{Seed: 4})
		const each, n = 20, 1001
		var all sync.WaitGroup
		var mu sync.Mutex
		var got []uint32
		for range 6 {
			s := stream(t, x)
			all.Go(func() {
				for range each {
					b, err := safe.NewBuffer[uint32](x, n)
					if !assert.NoError(t, err) {
						return
					}
					err = random.Bits(g, s, b)
					values, down := b.Download()
					if !assert.NoError(t, errors.Join(err, down, b.Close())) {
						return
					}
					mu.Lock()
					got = append(got, values...)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		want := take(t, generator(t, x, k, random.Options{Seed: 4}), stream(t, x), 6*each*n, random.Bits[uint32])
		slices.Sort(want)
		slices.Sort(got)
		assert.True(t, slices.Equal(want, got), k)
	}
}

// TestNoLibrary: where there is no cuRAND, New says that it would not work with the simulated driver.
func TestNoLibrary(t *testing.T) {
	needsDouble(t)
	drivertest.InChild(t, func(t *testing.T) {
		if _, _, err := curand.Library(); err == nil {
			t.Skip("this machine has cuRAND")
		}
		_, err := random.New(open(t), random.Philox, random.Options{})
		assert.ErrorIs(t, err, safe.ErrNotSupported)
		var missing *curand.LibraryError
		require.ErrorAs(t, err, &missing)
		assert.Equal(t, "cuda: random.New: NVIDIA's libraries need a GPU, and do not work with the simulated driver: see Limits in docs/testing.md", err.Error())
	}, "CUDABIND_TEST_NO_CURAND=1", "CUDA_HOME=", "CUDA_PATH=", "VIRTUAL_ENV=", "CONDA_PREFIX=", "XDG_CACHE_HOME="+t.TempDir(), "LD_LIBRARY_PATH=")
}

// TestHostile calls every function and method with nil, zero and extreme values.
func TestHostile(t *testing.T) {
	needsDouble(t)
	drivertest.Hostile{Objects: func(t *testing.T) []any {
		x := open(t)
		return []any{x, stream(t, x), generator(t, x, random.Philox, random.Options{}), buffer[float32](t, x, 16), buffer[uint32](t, x, 16)}
	}}.Run(t, map[string]any{
		"Bits": random.Bits[uint32], "LogNormal": random.LogNormal[float32], "New": random.New, "Normal": random.Normal[float32],
		"Poisson": random.Poisson, "Uniform": random.Uniform[float32],
	}, []any{&random.Generator{}, random.Kind(0)})
}

// TestOutOfMemory: New makes room if cuRAND, or the driver, finds too little memory for the generator.
func TestOutOfMemory(t *testing.T) {
	needsDouble(t)
	x := open(t)
	for name, row := range map[string]struct {
		seed   uint64
		driver bool
	}{
		"cuRAND":     {seed: 4003}, // for which the double fails twice
		"the driver": {driver: true},
	} {
		t.Run(name, func(t *testing.T) {
			if row.driver {
				simulated.Fail("cuMemAlloc_v2", 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
				defer simulated.Reset()
			}
			g, err := random.New(x, random.Philox, random.Options{Seed: row.seed})
			require.NoError(t, err)
			require.NoError(t, g.Close())
		})
	}
}

// TestFailures: an error of cuRAND, or of the driver after it, is that of the call, the first one of a stream or a later one.
func TestFailures(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s, other, b := stream(t, x), stream(t, x), buffer[float32](t, x, 64)
	g := generator(t, x, random.XORWOW, random.Options{})
	for function, want := range map[string]error{"cuLaunchHostFunc": curand.CURAND_STATUS_LAUNCH_FAILURE, "cuEventRecord": driver.CUDA_ERROR_UNKNOWN} {
		for name, before := range map[string]*safe.Stream{"first": other, "later": s} {
			t.Run(function+", "+name, func(t *testing.T) {
				require.NoError(t, errors.Join(random.Uniform(g, before, b), x.Synchronize()))
				simulated.Fail(function, 1, uint32(driver.CUDA_ERROR_UNKNOWN))
				defer simulated.Reset()
				err := random.Uniform(g, s, b)
				assert.ErrorIs(t, err, want)
				assert.ErrorContains(t, err, "cuda: random.Uniform: ")
			})
		}
	}
	require.NoError(t, errors.Join(random.Uniform(g, s, b), s.Synchronize()))
}

// TestPoissonReleases: Poisson keeps neither the buffer nor memory of its own after the call.
func TestPoissonReleases(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s, g := stream(t, x), generator(t, x, random.Philox, random.Options{})
	whole, err := safe.NewBufferWith[uint32](x, 64, safe.BufferOptions{Plain: true})
	require.NoError(t, err)
	part, err := whole.Slice(1, 64) // which cuRAND cannot fill
	require.NoError(t, err)
	require.NoError(t, x.TrimMemory())
	plain, async := simulated.Live("memory"), simulated.Live("async")
	require.NoError(t, poisson(g, s, part))
	require.NoError(t, whole.Close())
	assert.Equal(t, plain-1, simulated.Live("memory"))
	require.NoError(t, x.TrimMemory())
	assert.LessOrEqual(t, simulated.Live("async"), async)
}

// TestNothingDrawn: an empty buffer is no call of cuRAND, and no use of the generator by a graph.
func TestNothingDrawn(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s, g := stream(t, x), generator(t, x, random.Philox, random.Options{})
	none := buffer[float32](t, x, 0)
	_ = take(t, g, s, 8, random.Uniform[float32])
	assert.Empty(t, logged(t, "u", func() {
		require.NoError(t, random.Uniform(g, s, none))
		_ = captured(t, s, func() error { return random.Uniform(g, s, none) })
	}))
	_ = take(t, g, s, 8, random.Uniform[float32])
}

// TestManyPending: a stream takes 100 calls before one waits.
func TestManyPending(t *testing.T) {
	x := open(t)
	s, g := stream(t, x), generator(t, x, random.Philox, random.Options{})
	b := buffer[float32](t, x, 64)
	draw := func() error { return random.Uniform(g, s, b) }
	drivertest.AllPending(t, s.LaunchHostFunc, draw)
	require.NoError(t, s.Synchronize())
}
