//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// The memory that libraries work in: whose it is, and when it is released.

package library_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// allocations returns how many allocations of memory pools there are, without those that package safe keeps for later.
func allocations(t testing.TB, x *safe.Context) int {
	t.Helper()
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	require.NoError(t, x.TrimMemory())
	return simulated.Live("async")
}

// released checks that so many allocations are left soon.
func released(t testing.TB, x *safe.Context, want int, what string) {
	t.Helper()
	if !assert.Eventually(t, func() bool { return allocations(t, x) == want }, time.Minute, time.Millisecond, what) {
		assert.Equal(t, want, allocations(t, x), what)
	}
}

// places collects the memory of calls.
type places map[driver.CUdeviceptr]int

func (p places) add(at library.Place) error {
	p[at.Memory]++
	return nil
}

// TestMemoryInCapture: in a capture, each stream of CUDA has one piece of memory.
func TestMemoryInCapture(t *testing.T) {
	for name, row := range map[string]struct {
		streams, borrowed int // borrowed is how often the program borrows each stream
	}{
		"few streams":                   {streams: 3},
		"more than outside of captures": {streams: 20},
		"a stream that is borrowed":     {streams: 2, borrowed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			x := open(t)
			s, o := stream(t, x), newObject(t, x, counted(new(counts)))
			seen := places{}
			g, err := s.Capture(func() error {
				return s.Fork(row.streams, func(branches []*safe.Stream) (err error) {
					for range 3 {
						for _, b := range branches {
							err = errors.Join(err, o.Enqueue(b, 100, seen.add))
							for range row.borrowed {
								again, e := b.Borrow()
								err = errors.Join(err, e, o.Enqueue(again, 100, seen.add), again.Close())
							}
						}
					}
					return err
				})
			})
			require.NoError(t, err)
			assert.Len(t, seen, row.streams)
			require.NoError(t, g.Close())
		})
	}
}

// fresh is a context in which no other Objects share memory.
func fresh(t testing.TB) *safe.Context {
	t.Helper()
	x, err := safe.NewContext(must(safe.Devices())[0])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// TestMemorySize: a call gets as many bytes as it asks for, and the Object's Workspace at least. A larger piece takes the
// place of the stream's smaller one.
func TestMemorySize(t *testing.T) {
	for name, workspace := range map[string]int{"shared": 0, "own": 1000} {
		for _, captures := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in a capture %v", name, captures), func(t *testing.T) {
				options := counted(new(counts))
				options.Workspace, options.Streams = workspace, min(workspace, 3)
				x := fresh(t)
				s, o := stream(t, x), newObject(t, x, options)
				calls := func() (err error) {
					for _, size := range []int{1, 5000, 100, 20000, 5000} {
						err = errors.Join(err, o.Enqueue(s, size, func(p library.Place) error {
							assert.GreaterOrEqual(t, p.Size, uint64(max(size, workspace)))
							return nil
						}))
					}
					assert.Equal(t, 1, o.Workspaces())
					return err
				}
				if !captures {
					require.NoError(t, calls())
					return
				}
				g, err := s.Capture(calls)
				require.NoError(t, errors.Join(err, g.Close()))
			})
		}
	}
}

// TestLargeMemory: a stream keeps more than 64 MiB only if the Object has a Workspace of that size. A capture keeps it
// always, as the graph does.
func TestLargeMemory(t *testing.T) {
	const large = 65 << 20
	for name, row := range map[string]struct {
		workspace int
		captures  bool
		kept      int
	}{
		"shared":       {0, false, 0},
		"own":          {large, false, 1},
		"in a capture": {0, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			options := counted(new(counts))
			options.Workspace, options.Streams = row.workspace, min(row.workspace, 1)
			x := fresh(t)
			s, o := stream(t, x), newObject(t, x, options)
			calls := func() error {
				seen := places{}
				err := errors.Join(o.Enqueue(s, large, seen.add), o.Enqueue(s, large, seen.add))
				assert.Equal(t, row.kept, o.Workspaces())
				if row.kept > 0 {
					assert.Len(t, seen, 1)
				}
				return err
			}
			if !row.captures {
				require.NoError(t, calls())
				return
			}
			g, err := s.Capture(calls)
			require.NoError(t, errors.Join(err, g.Close()))
		})
	}
}

// spaceOf returns the number of the workspace that a call on a stream gets.
func spaceOf(t *testing.T, o *library.Object, s *safe.Stream) (number uint64) {
	t.Helper()
	assert.NoError(t, o.Enqueue(s, 1, func(p library.Place) error { number = p.Space; return nil }))
	return number
}

// TestFewStreams: one stream more takes the place of the one that was used least recently, unless a call uses that now.
func TestFewStreams(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	x := open(t)
	options := counted(new(counts))
	options.Streams, options.Workspace, options.Handles = 2, 100, 2
	a, b, c, o := stream(t, x), stream(t, x), stream(t, x), newObject(t, x, options)
	ofA, ofB := spaceOf(t, o, a), spaceOf(t, o, b)
	require.Equal(t, ofA, spaceOf(t, o, a))
	ofC := spaceOf(t, o, c) // in the place of b
	assert.Equal(t, ofA, spaceOf(t, o, a))
	assert.Equal(t, ofC, spaceOf(t, o, c))
	assert.NotEqual(t, ofB, spaceOf(t, o, b)) // in the place of a
	ofB = spaceOf(t, o, b)
	assert.Equal(t, ofC, spaceOf(t, o, c))
	require.NoError(t, o.Enqueue(c, 1000, nothing))
	assert.Equal(t, ofB, spaceOf(t, o, b), "the larger piece takes the place of the stream's own")
	assert.Equal(t, 2, o.Workspaces())

	options.Streams = 1
	o = newObject(t, x, options)
	ofA = spaceOf(t, o, a)
	before := simulated.Live("async")
	require.NoError(t, o.Enqueue(a, 1, func(library.Place) error {
		var other sync.WaitGroup
		other.Go(func() { spaceOf(t, o, b) })
		other.Wait()
		assert.Equal(t, 1, o.Workspaces())
		return nil
	}))
	assert.Equal(t, ofA, spaceOf(t, o, a), "it was in use")
	require.NoError(t, b.Synchronize())
	assert.Equal(t, before, simulated.Live("async"), "the other call's memory was its alone")
}

// TestMemoryBesideCapture: what a capture keeps does not count among the streams outside of it, and stays.
func TestMemoryBesideCapture(t *testing.T) {
	x := open(t)
	options := counted(new(counts))
	options.Streams, options.Workspace = 1, 100
	s, other, o := stream(t, x), stream(t, x), newObject(t, x, options)
	ofOther := spaceOf(t, o, other)
	g, err := s.Capture(func() error {
		inCapture := spaceOf(t, o, s)
		assert.Equal(t, ofOther, spaceOf(t, o, other))
		assert.NotEqual(t, ofOther, spaceOf(t, o, stream(t, x)))
		assert.Equal(t, inCapture, spaceOf(t, o, s))
		assert.Equal(t, 2, o.Workspaces())
		return nil
	})
	require.NoError(t, errors.Join(err, g.Close()))
}

// TestStateOfCapture: a call learns of the capture whatever its edges are, and does nothing in one that is invalid.
func TestStateOfCapture(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	x := open(t)
	s, o := stream(t, x), newObject(t, x, counted(new(counts)))
	var in []uint64
	call := func() error {
		return o.Enqueue(s, 100, func(p library.Place) error { in = append(in, p.Capture); return nil })
	}
	g, err := s.Capture(func() error {
		simulated.Fail("cuStreamGetCaptureInfo_v2", 1, uint32(driver.CUDA_ERROR_LOSSY_QUERY))
		defer simulated.Reset()
		err := errors.Join(call(), call())
		assert.Equal(t, "cuStreamGetCaptureInfo_v2", simulated.Failed())
		return err
	})
	require.NoError(t, errors.Join(err, g.Close()))
	require.Len(t, in, 2)
	assert.NotZero(t, in[0])
	assert.Equal(t, in[0], in[1])

	_, err = s.Capture(func() error {
		assert.ErrorIs(t, x.WithCurrent(func() error { return driver.CuStreamSynchronize(s.Raw()) }), driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		assert.ErrorIs(t, call(), driver.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
		return nil
	})
	assert.Error(t, err)
	assert.Len(t, in, 2)
}

// TestMemoryOfPastCapture: the memory of a graph ends with it, whatever comes after its capture.
func TestMemoryOfPastCapture(t *testing.T) {
	for name, after := range map[string]func(t *testing.T, x *safe.Context, s *safe.Stream, o *library.Object) (memory int){
		"a capture": func(t *testing.T, x *safe.Context, s *safe.Stream, o *library.Object) int {
			g, err := s.Capture(func() error { return o.Enqueue(s, 100, nothing) })
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, g.Close()) })
			return 1
		},
		"an Object that is made": func(t *testing.T, x *safe.Context, s *safe.Stream, o *library.Object) int {
			newObject(t, x, counted(new(counts)))
			return 0
		},
		"an Object that is closed": func(t *testing.T, x *safe.Context, s *safe.Stream, o *library.Object) int {
			v := newObject(t, x, counted(new(counts)))
			g, err := s.Capture(func() error { return o.Enqueue(s, 100, nothing) })
			require.NoError(t, errors.Join(err, g.Close(), v.Close()))
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !onGPU {
				require.NoError(t, drivertest.LeftOver(simulated), "of other tests")
			}
			x := open(t)
			s, o := stream(t, x), newObject(t, x, counted(new(counts)))
			before := allocations(t, x)
			g, err := s.Capture(func() error { return o.Enqueue(s, 100, nothing) })
			require.NoError(t, err)
			want := before + after(t, x, s, o)
			require.NoError(t, g.Close())
			released(t, x, want, "the memory of the graph")
		})
	}
}

// TestMakeRoom: memory that a library has worked in goes back to the system when something else finds too little.
func TestMakeRoom(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver")
	}
	require.NoError(t, drivertest.LeftOver(simulated), "of other tests")
	x := open(t)
	s, o := stream(t, x), newObject(t, x, counted(new(counts)))
	free := func() (free uint64) {
		var total uint64
		require.NoError(t, x.WithCurrent(func() error { return driver.CuMemGetInfo(&free, &total) }))
		return free
	}
	const large = 256 << 20 // it serves a single call
	before := free()
	require.NoError(t, errors.Join(o.Enqueue(s, large, nothing), s.Synchronize()))
	assert.LessOrEqual(t, free(), before-large, "the pool keeps it")
	defer simulated.Reset()
	full := func() error { // a call that finds too little memory
		simulated.Fail("cuMemAlloc_v2", 1, uint32(driver.CUDA_ERROR_OUT_OF_MEMORY))
		b, err := safe.NewBufferWith[byte](x, 1<<20, safe.BufferOptions{Plain: true})
		return errors.Join(err, b.Close())
	}
	// The driver may take longer to notice that the memory was released than one call waits for it.
	for end := time.Now().Add(time.Minute); free() <= before-large && time.Now().Before(end); {
		require.NoError(t, full())
	}
	assert.Greater(t, free(), before-large)
}

// TestStreamReplaced: memory belongs to a stream, whatever the program writes into the object that stands for it.
func TestStreamReplaced(t *testing.T) {
	for name, direct := range map[string]bool{"Do": false, "Prepare": true} {
		t.Run(name, func(t *testing.T) {
			x := open(t)
			s, other, o := stream(t, x), stream(t, x), newObject(t, x, counted(new(counts)))
			streams, memory := map[uint64]driver.CUstream{}, map[driver.CUdeviceptr]driver.CUstream{}
			add := func(p library.Place) error {
				for _, before := range []driver.CUstream{streams[p.Space], memory[p.Memory]} {
					if before != 0 {
						assert.Equal(t, before, p.Stream)
					}
				}
				streams[p.Space], memory[p.Memory] = p.Stream, p.Stream
				return nil
			}
			c := library.Call{Object: o, Stream: s, Memory: 100, Do: add}
			if direct {
				c.Prepare = func(p library.Place) []safe.RawCall { _ = add(p); return nil }
				c.Called = func(bool) error { return nil }
			}
			require.NoError(t, errors.Join(c.Submit(), c.Submit()))
			undo := drivertest.Replace(s, other)
			require.NoError(t, errors.Join(c.Submit(), c.Submit()))
			undo()
			require.NoError(t, errors.Join(c.Submit(), c.Submit()))
			assert.Len(t, streams, 2)
		})
	}
}

// TestContextReplaced: an Object stays in its context, whatever the program writes into what Context has returned.
func TestContextReplaced(t *testing.T) {
	x := open(t)
	s, o := stream(t, x), newObject(t, x, counted(new(counts)))
	drivertest.Replace(o.Context(), &safe.Context{})
	assert.True(t, x.Equal(o.Context()))
	require.NoError(t, o.Enqueue(s, 100, nothing))
}
