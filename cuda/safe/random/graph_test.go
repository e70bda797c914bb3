//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package random_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/random"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// captured returns an executable of what f enqueues on s.
func captured(t testing.TB, s *safe.Stream, f func() error) *safe.GraphExec {
	t.Helper()
	e, err := s.CaptureExecutable(f)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// TestGraph: each launch of a graph gets new numbers, the first one those that a call would have got.
func TestGraph(t *testing.T) {
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	const n = 5001 // so that a copy is part of the graph
	want := func() [2][]float32 {
		g := generator(t, x, random.Philox, random.Options{Seed: 5})
		take(t, g, s, 1000, normal[float32])
		first := take(t, g, s, n, normal[float32])
		require.NoError(t, g.Seek(1000+5004)) // the next multiple of 4
		return [2][]float32{first, take(t, g, s, n, random.Uniform[float32])}
	}()
	for _, mode := range []safe.CaptureMode{safe.CaptureThreadLocal, safe.CaptureGlobal, safe.CaptureRelaxed} {
		g := generator(t, x, random.Philox, random.Options{Seed: 5})
		take(t, g, other, 1000, normal[float32])
		b, c := buffer[float32](t, x, n), buffer[float32](t, x, n)
		graph, err := s.CaptureWith(t.Context(), safe.CaptureOptions{Mode: mode}, func() error {
			return errors.Join(normal(g, s, b), random.Uniform(g, s, c))
		})
		require.NoError(t, err)
		defer graph.Close()
		e, err := graph.Instantiate()
		require.NoError(t, err)
		defer e.Close()
		second, err := graph.Instantiate()
		require.NoError(t, err, "a graph with memory of its own has one executable")
		require.NoError(t, second.Close())
		assert.Zero(t, download(t, b)[0], "captured, not run")
		require.NoError(t, g.Close(), "the graph keeps the generator")
		require.NoError(t, e.Launch(s))
		same(t, want[0], download(t, b), "%v", mode)
		same(t, want[1], download(t, c), "%v", mode)
		seen := map[float32]bool{}
		for range 5 {
			numbers := download(t, c)
			for _, v := range numbers[:3] {
				assert.False(t, seen[v], "a launch repeats %v", v)
				seen[v] = true
			}
			require.NoError(t, e.Launch(other))
		}
	}
}

// TestGraphOwns: a generator that a capture has used belongs to its graph.
func TestGraphOwns(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	g := generator(t, x, random.Philox, random.Options{})
	b := buffer[float32](t, x, 100)
	_ = captured(t, s, func() error { return normal(g, s, b) })
	for name, err := range map[string]error{"a call": normal(g, s, b), "Seek": g.Seek(0), "Poisson": poisson(g, s, buffer[uint32](t, x, 100))} {
		assert.ErrorIs(t, err, safe.ErrInUse, name)
		assert.ErrorContains(t, err, "make one for each graph", name)
	}
	_, err := s.Capture(func() error { return normal(g, s, b) })
	assert.ErrorIs(t, err, safe.ErrInUse, "another capture")
	assert.EqualError(t, normal(g, s, b), "cuda: random.Normal: in use: the generator belongs to the graph of a capture that used it: make one for each graph, and others for calls")
}

// TestGraphBranches: calls on several streams of a capture keep their order in the graph.
func TestGraphBranches(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	const n = 10000
	g := generator(t, x, random.Philox, random.Options{Seed: 6})
	var buffers [4]*safe.Buffer[float32]
	for i := range buffers {
		buffers[i] = buffer[float32](t, x, n)
	}
	e := captured(t, s, func() error {
		return s.Fork(2, func(branches []*safe.Stream) (err error) {
			for i, b := range buffers {
				err = errors.Join(err, random.Uniform(g, branches[i%2], b))
			}
			return err
		})
	})
	require.NoError(t, e.Launch(s))
	all := take(t, generator(t, x, random.Philox, random.Options{Seed: 6}), s, 4*n, random.Uniform[float32])
	for i, b := range buffers {
		same(t, all[i*n:(i+1)*n], download(t, b), "buffer %d", i)
	}
}

// TestGraphAfterCalls: a capture waits for the calls before, since its graph may be launched on any stream.
func TestGraphAfterCalls(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	g := generator(t, x, random.Philox, random.Options{})
	b := buffer[float32](t, x, 100)
	release := make(chan struct{})
	require.NoError(t, other.AddCallback(func(error) { <-release }))
	require.NoError(t, normal(g, other, b))
	done := make(chan struct{})
	go func() {
		defer close(done)
		e, err := s.CaptureExecutable(func() error { return normal(g, s, b) })
		assert.NoError(t, errors.Join(err, e.Close()))
	}()
	select {
	case <-done:
		t.Error("it has not waited")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	<-done
}

// TestGraphScratch: the graph keeps the memory that its calls fill.
func TestGraphScratch(t *testing.T) {
	needsDouble(t)
	x := open(t)
	s := stream(t, x)
	g, b := generator(t, x, random.Philox, random.Options{}), buffer[float32](t, x, 5001)
	calls := logged(t, "n", func() { _ = captured(t, s, func() error { return normal(g, s, b) }) })
	require.Len(t, calls, 1)
	for range 50 {
		other := buffer[float32](t, x, 5002)
		require.NotEqual(t, calls[0].out, fmt.Sprintf("%#x", uint64(other.Raw())), "it was freed")
	}
}

// TestCloseAllInCapture: a generator that is closed in a capture keeps the context until its end, also if the
// program closes everything.
func TestCloseAllInCapture(t *testing.T) {
	needsDouble(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	g, err := random.New(x, random.Philox, random.Options{})
	require.NoError(t, err)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	destroyed := logged(t, "destroy", func() {
		graph, err := s.Capture(func() error { return errors.Join(g.Close(), x.CloseAll(), x.Close()) })
		require.NoError(t, errors.Join(err, graph.Close()))
		assert.Eventually(t, func() bool { return simulated.Live("") == 0 }, time.Minute, time.Millisecond, "nothing keeps the context")
	})
	assert.NotEmpty(t, destroyed)
}

// TestGraphRefused: what a graph cannot contain is refused in captures.
func TestGraphRefused(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	g := generator(t, x, random.Philox, random.Options{})
	_, err := s.CaptureExecutable(func() error { return poisson(g, s, buffer[uint32](t, x, 100)) })
	assert.ErrorIs(t, err, safe.ErrCapturing)
	_ = take(t, g, s, 100, random.Uniform[float32]) // it does not belong to a graph
	_, err = s.CaptureExecutable(func() error {
		_, err := random.New(x, random.Philox, random.Options{})
		return err
	})
	assert.ErrorIs(t, err, safe.ErrCapturing)
	_, err = s.CaptureExecutable(func() error { return g.Seek(1) })
	assert.ErrorIs(t, err, safe.ErrCapturing)
}

// TestGraphKinds: the first launch of a graph gets the numbers of calls. Later ones get new numbers with
// pseudo-random kinds, and the same ones with quasi-random kinds.
func TestGraphKinds(t *testing.T) {
	for _, k := range append(slices.Clone(pseudo), quasi...) {
		t.Run(k.String(), func(t *testing.T) {
			if k == random.MTGP32 {
				x := open(t)
				s, g := stream(t, x), generator(t, x, k, random.Options{})
				_, err := s.CaptureExecutable(func() error { return random.Bits(g, s, buffer[uint32](t, x, 4096)) })
				assert.ErrorIs(t, err, safe.ErrNotSupported)
				return
			}
			for _, n := range []int{1, 2, 3, 4, 5, 8, 32, 127, 128, 4096, 5001, 100000} {
				if k < random.Sobol64 {
					graphKind(t, k, n, random.Bits[uint32])
				} else {
					graphKind(t, k, n, random.Bits[uint64])
				}
			}
		})
	}
}

func graphKind[T comparable](t *testing.T, k random.Kind, n int, f func(*random.Generator, *safe.Stream, *safe.Buffer[T]) error) {
	t.Helper()
	x := open(t)
	s := stream(t, x)
	calls, g := generator(t, x, k, random.Options{}), generator(t, x, k, random.Options{})
	b, c := buffer[T](t, x, n), buffer[T](t, x, n)
	e, err := s.CaptureExecutable(func() error { return errors.Join(f(g, s, b), f(g, s, c)) })
	require.NoError(t, err)
	defer e.Close()
	want := take(t, calls, s, n, f)
	if k == random.Philox {
		require.NoError(t, calls.Seek(uint64(n+3)&^3))
	}
	want = append(want, take(t, calls, s, n, f)...)
	var before []T
	for launch := range 4 {
		require.NoError(t, e.Launch(s))
		got := append(download(t, b), download(t, c)...)
		again := 0
		for i := range before {
			if got[i] == before[i] {
				again++
			}
		}
		before = got
		switch {
		case launch == 0:
			require.True(t, slices.Equal(want, got), "%v, %d numbers: the first launch", k, n)
		case slices.Contains(quasi, k):
			require.True(t, slices.Equal(want, got), "%v, %d numbers: launch %d", k, n, launch)
		default:
			require.Zero(t, again, "%v, %d numbers: launch %d", k, n, launch)
		}
	}
}

// TestAfterCloseAll: calls that cuRAND gets outside of a stream's order are refused, too, once the context was emptied or the
// stream is closed.
func TestAfterCloseAll(t *testing.T) {
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, closed := stream(t, x), stream(t, x)
	g, err := random.New(x, random.Philox, random.Options{})
	require.NoError(t, err)
	b := buffer[uint32](t, x, 100)
	require.NoError(t, closed.Close())
	assert.ErrorIs(t, poisson(g, closed, b), safe.ErrClosed)
	require.NoError(t, x.CloseAll())
	assert.ErrorIs(t, g.Seek(1), safe.ErrClosed)
	assert.ErrorIs(t, poisson(g, s, b), safe.ErrClosed)
	require.NoError(t, errors.Join(g.Close(), x.Close()))
}

// TestGraphPlaces: launches repeat no number of Philox, wherever the capture begins and its calls end.
func TestGraphPlaces(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for name, c := range map[string]struct {
		offset uint64
		before []int
		draws  []int
	}{
		"one":                        {0, nil, []int{1}},
		"one and one":                {0, nil, []int{1, 1}},
		"after one":                  {0, []int{1}, []int{4}},
		"after three":                {0, []int{3}, []int{8}},
		"after calls of one stream":  {0, []int{1, 1, 2}, []int{4, 4}},
		"from an odd place":          {7, nil, []int{4, 2}},
		"from an odd place far away": {1<<33 + 1, []int{2}, []int{5, 5, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			g := generator(t, x, random.Philox, random.Options{Seed: 3, Offset: c.offset})
			for _, n := range c.before {
				take(t, g, s, n, random.Uniform[float32])
			}
			var all []*safe.Buffer[float32]
			for _, n := range c.draws {
				all = append(all, buffer[float32](t, x, n))
			}
			e := captured(t, s, func() (err error) {
				for _, b := range all {
					err = errors.Join(err, random.Uniform(g, s, b))
				}
				return err
			})
			seen := map[float32]bool{}
			for launch := range 4 {
				require.NoError(t, e.Launch(s))
				for _, b := range all {
					for _, v := range download(t, b) {
						assert.False(t, seen[v], "launch %d repeats %v", launch, v)
						seen[v] = true
					}
				}
			}
		})
	}
	g := generator(t, x, random.Philox, random.Options{})
	b, word := buffer[float64](t, x, 1), buffer[uint64](t, x, 1)
	e := captured(t, s, func() error { return errors.Join(normal(g, s, b), random.Bits(g, s, word)) })
	normals, words := map[float64]bool{}, map[uint64]bool{}
	for range 4 {
		require.NoError(t, e.Launch(s))
		normals[download(t, b)[0]], words[download(t, word)[0]] = true, true
	}
	assert.Len(t, normals, 4)
	assert.Len(t, words, 4)

	g = generator(t, x, random.Philox, random.Options{})
	pair, four := buffer[uint64](t, x, 2), buffer[uint32](t, x, 4)
	e = captured(t, s, func() error { return errors.Join(random.Bits(g, s, pair), random.Bits(g, s, four)) })
	seen := map[uint32]bool{}
	for range 4 {
		require.NoError(t, e.Launch(s))
		for _, v := range download(t, pair) {
			seen[uint32(v)], seen[uint32(v>>32)] = true, true
		}
		for _, v := range download(t, four) {
			seen[v] = true
		}
	}
	assert.Len(t, seen, 32, "a number of 64 bits takes two")
}

// TestBesideCapture: calls outside of a capture leave the capture of another stream valid.
func TestBesideCapture(t *testing.T) {
	x := open(t)
	s, err := safe.NewStream(x) // which waits for the legacy stream
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	other := stream(t, x)
	b := buffer[float32](t, x, 101)
	for _, k := range append(slices.Clone(pseudo), random.Sobol32) {
		for name, f := range map[string]func(g *random.Generator) error{
			"a call": func(g *random.Generator) error { return normal(g, other, b) },
			"Poisson": func(g *random.Generator) error {
				assert.ErrorIs(t, random.Poisson(g, other, buffer[uint32](t, x, 100), 7.5), safe.ErrCapturing)
				return normal(g, other, b)
			},
		} {
			g := generator(t, x, k, random.Options{})
			for _, mode := range []safe.CaptureMode{safe.CaptureGlobal, safe.CaptureThreadLocal} {
				graph, err := s.CaptureWith(t.Context(), safe.CaptureOptions{Mode: mode}, func() error {
					return errors.Join(b.FillAsync(s, 0), f(g))
				})
				if assert.NoError(t, err, "%v: %s, %v", k, name, mode) {
					require.NoError(t, graph.Close())
				}
			}
		}
	}
}
