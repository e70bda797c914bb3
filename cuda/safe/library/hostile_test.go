//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// What no program should do: nothing may crash, hang or leak.

package library_test

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHostile calls every function and method with nil, zero and extreme values.
func TestHostile(t *testing.T) {
	for name, closed := range map[string]bool{"open": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			hostile(closed).Run(t, map[string]any{
				"Load": library.Load, "New": library.New, "Refuse": library.Refuse, "Rename": library.Rename,
			}, []any{&library.Object{}, &library.Call{}})
		})
	}
}

func hostile(closed bool) drivertest.Hostile {
	return drivertest.Hostile{Without: map[string]string{"library.Object.Acquire": "nobody would release it"}, Objects: func(t *testing.T) []any {
		x, err := safe.Open(0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, x.Close()) })
		s, err := safe.NewStream(x)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		o, err := library.New(x, counted(new(counts)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, o.Close()) })
		do := func(library.Place) error { return nil }
		if closed {
			require.NoError(t, errors.Join(o.Close(), s.Close(), x.Close()))
		}
		return []any{x, s, o, &library.Call{Object: o, Stream: s, Memory: 100, Do: do}, do, counted(new(counts))}
	}}
}

// counts are how often a library's object was created and destroyed.
type counts struct{ created, destroyed atomic.Int32 }

func counted(c *counts) library.Options {
	return library.Options{
		Name:    "counted object",
		Create:  func() error { c.created.Add(1); return nil },
		Destroy: func() error { c.destroyed.Add(1); return nil },
	}
}

// over waits until an object was destroyed, once.
func (c *counts) over(t *testing.T) {
	t.Helper()
	assert.Eventually(t, func() bool { runtime.GC(); return c.destroyed.Load() > 0 }, time.Minute, time.Millisecond)
	assert.Equal(t, int32(1), c.destroyed.Load())
}

func newObject(t testing.TB, x *safe.Context, o library.Options) *library.Object {
	t.Helper()
	v, err := library.New(x, o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, v.Close()) })
	return v
}

func nothing(library.Place) error { return nil }

// TestPanics: a function of the program's that panics, or ends its goroutine, leaves nothing locked. TestMain finds what is left.
func TestPanics(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	const large = 65 << 20 // memory that serves a single call
	for name, fail := range map[string]func(){"panic": func() { panic("on purpose") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			apart := func(f func()) {
				var all sync.WaitGroup
				all.Add(1)
				go func() {
					defer all.Done()
					defer func() { _ = recover() }()
					f()
				}()
				all.Wait()
			}
			apart(func() {
				_, _ = library.New(x, library.Options{Create: func() error { fail(); return nil }, Destroy: func() error { return nil }})
			})
			c := new(counts)
			o := newObject(t, x, counted(c))
			for _, size := range []int{0, 100, large} {
				apart(func() { _ = o.Enqueue(s, size, func(library.Place) error { fail(); return nil }) })
				g, err := s.Capture(func() error {
					apart(func() { _ = o.Enqueue(s, size, func(library.Place) error { fail(); return nil }) })
					return nil
				})
				require.NoError(t, errors.Join(err, g.Close()))
				require.NoError(t, o.Enqueue(s, size, nothing))
			}
			apart(func() { _ = o.Whole(func() error { fail(); return nil }) })
			require.NoError(t, o.Whole(func() error { return nil }))
			require.NoError(t, errors.Join(s.Synchronize(), o.Close()))
			c.over(t)

			for _, calls := range []bool{false, true} { // Close destroys those of CallsOnly
				d := counted(new(counts))
				d.Destroy, d.CallsOnly = func() error { fail(); return nil }, calls
				o, err := library.New(x, d)
				require.NoError(t, err)
				if err := o.Close(); err != nil {
					assert.ErrorAs(t, err, new(*safe.PanicError))
				}
			}
		})
	}
}

// TestReleaseTooOften: a Release without an Acquire ends no call's use of the object.
func TestReleaseTooOften(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for name, callsOnly := range map[string]bool{"work": false, "calls only": true} {
		t.Run(name, func(t *testing.T) {
			c := new(counts)
			options := counted(c)
			options.CallsOnly = callsOnly
			o := newObject(t, x, options)
			require.NoError(t, o.Acquire())
			require.NoError(t, o.Enqueue(s, 0, func(library.Place) error {
				for range 3 {
					o.Release()
				}
				assert.NoError(t, o.Close())
				time.Sleep(20 * time.Millisecond)
				assert.Zero(t, c.destroyed.Load(), "inside of a call")
				return nil
			}))
			c.over(t)
			o.Release()
			assert.ErrorIs(t, o.Acquire(), safe.ErrClosed)
		})
	}
}

// TestFromWithin calls from within each of the program's functions. Whatever needs CUDA is refused, and Close waits for
// its turn.
func TestFromWithin(t *testing.T) {
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	for name, within := range map[string]func(o *library.Object, f func()) error{
		"Do": func(o *library.Object, f func()) error {
			return o.Enqueue(s, 100, func(library.Place) error { f(); return nil })
		},
		"Whole": func(o *library.Object, f func()) error { return o.Whole(func() error { f(); return nil }) },
		"Create": func(_ *library.Object, f func()) error {
			v, err := library.New(x, library.Options{Create: func() error { f(); return nil }, Destroy: func() error { return nil }})
			return errors.Join(err, v.Close())
		},
		"Destroy": func(_ *library.Object, f func()) error {
			done := make(chan bool)
			v, err := library.New(x, library.Options{Create: func() error { return nil }, Destroy: func() error { f(); close(done); return nil }})
			err = errors.Join(err, v.Close())
			<-done
			return err
		},
		"a host function": func(_ *library.Object, f func()) error {
			_, err := s.LaunchHostFunc(f)
			return errors.Join(err, s.Synchronize())
		},
	} {
		t.Run(name, func(t *testing.T) {
			own, foreign, made := new(counts), new(counts), new(counts)
			o, beside := newObject(t, x, counted(own)), newObject(t, x, counted(foreign))
			require.NoError(t, within(o, func() {
				for _, v := range []*library.Object{o, beside} {
					for _, on := range []*safe.Stream{s, other} {
						assert.ErrorIs(t, v.Enqueue(on, 0, nothing), safe.ErrInCallback)
						assert.ErrorIs(t, v.Enqueue(on, 100, nothing), safe.ErrInCallback)
					}
					assert.ErrorIs(t, v.Whole(func() error { return nil }), safe.ErrInCallback)
				}
				_, err := library.New(x, counted(made))
				assert.ErrorIs(t, err, safe.ErrInCallback)
				assert.NoError(t, o.Close())
				assert.NoError(t, beside.Close())
			}))
			assert.ErrorIs(t, o.Enqueue(s, 0, nothing), safe.ErrClosed)
			own.over(t)
			foreign.over(t)
			assert.Zero(t, made.created.Load())
		})
	}
}

// TestSameCall: a Call that its own function submits is refused.
func TestSameCall(t *testing.T) {
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	c := &library.Call{Object: newObject(t, x, counted(new(counts))), Stream: s, Memory: 100}
	c.Do = func(library.Place) error {
		assert.ErrorIs(t, c.Submit(), safe.ErrInUse)
		c.Reset()
		return nil
	}
	require.NoError(t, c.Submit())
	require.NoError(t, c.Submit(), "it was not reset meanwhile")
	c.Reset()
	require.ErrorIs(t, c.Submit(), safe.ErrClosed)

	// A copy is a call of its own.
	calls := make([]int, 2)
	first := library.Call{Object: newObject(t, x, counted(new(counts))), Stream: s, Do: func(library.Place) error { calls[0]++; return nil }}
	require.NoError(t, first.Submit())
	second := first
	second.Stream, second.Do = other, func(p library.Place) error {
		calls[1]++
		assert.Equal(t, other.Raw(), p.Stream)
		return nil
	}
	require.NoError(t, second.Submit())
	assert.Equal(t, []int{1, 1}, calls)
}

// TestSharedUses: goroutines may share a slice with room at its end.
func TestSharedUses(t *testing.T) {
	x := open(t)
	o := newObject(t, x, counted(new(counts)))
	b, err := safe.NewBuffer[int32](x, 4)
	require.NoError(t, err)
	defer b.Close()
	uses := make([]safe.Arg, 1, 10)
	uses[0] = b.Arg()
	var all sync.WaitGroup
	for range 4 {
		s := stream(t, x)
		all.Go(func() {
			for range 50 {
				assert.NoError(t, o.Enqueue(s, 100, nothing, uses...))
			}
		})
	}
	all.Wait()
	assert.Equal(t, safe.Arg{}, uses[:2][1], "nothing writes there")
}

// TestSubmitAgain: a Call that is submitted again uses what the program has listed, and nothing of the calls before.
func TestSubmitAgain(t *testing.T) {
	x := open(t)
	s, b := stream(t, x), words(t, x)
	o := newObject(t, x, counted(new(counts)))
	c := library.Call{Object: o, Stream: s, Memory: 100, Uses: []safe.Arg{b.Arg()}, Do: nothing}
	for range 3 {
		require.NoError(t, c.Submit())
		assert.Len(t, c.Uses, 1)
		require.NoError(t, o.Enqueue(s, 10000, nothing)) // which ends the memory of a smaller call
	}
}

// TestCopiedCalls: goroutines may submit copies of one Call, whose Uses have room at their end.
func TestCopiedCalls(t *testing.T) {
	x := open(t)
	b := words(t, x)
	first := library.Call{Object: newObject(t, x, counted(new(counts))), Stream: stream(t, x), Memory: 100, Uses: append(make([]safe.Arg, 0, 10), b.Arg()), Do: nothing}
	require.NoError(t, first.Submit())
	var all sync.WaitGroup
	for range 4 {
		c := first
		c.Stream = stream(t, x)
		all.Go(func() {
			for range 50 {
				assert.NoError(t, c.Submit())
			}
		})
	}
	all.Wait()
	assert.Equal(t, safe.Arg{}, first.Uses[:2][1], "nothing writes there")
}

// TestCallInCall: a Call into which its function writes another one that is being submitted leaves that one's uses alone.
func TestCallInCall(t *testing.T) {
	x := open(t)
	o, b := newObject(t, x, counted(new(counts))), words(t, x)
	var saved library.Call
	first := library.Call{Object: o, Stream: stream(t, x), Uses: []safe.Arg{b.Arg()}, NoHandle: true}
	first.Do = func(library.Place) error { saved = first; return nil }
	require.NoError(t, first.Submit())

	second := library.Call{Object: o, Stream: stream(t, x), NoHandle: true}
	second.Do = func(library.Place) error { second = saved; return nil }
	first.Prepare = func(library.Place) []safe.RawCall {
		var other sync.WaitGroup
		other.Go(func() { assert.NoError(t, second.Submit()) })
		other.Wait()
		return nil
	}
	first.Called = func(bool) error { return nil }
	first.Do = nothing
	assert.NoError(t, first.Submit())
}

// TestInCapture: what may wait for the context is refused, and Close waits for the end of the capture.
func TestInCapture(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	for name, only := range map[string]bool{"retained": false, "CallsOnly": true} {
		t.Run(name, func(t *testing.T) {
			c, made := new(counts), new(counts)
			options := counted(c)
			options.CallsOnly = only
			o := newObject(t, x, options)
			e, err := s.CaptureExecutable(func() error {
				_, err := library.New(x, counted(made))
				assert.ErrorIs(t, err, safe.ErrCapturing)
				assert.ErrorIs(t, o.Whole(func() error { return nil }), safe.ErrCapturing)
				assert.NoError(t, o.Enqueue(s, 100, func(p library.Place) error {
					assert.NotZero(t, p.Capture)
					return nil
				}))
				assert.NoError(t, o.Close())
				assert.ErrorIs(t, o.Enqueue(s, 100, nothing), safe.ErrClosed)
				time.Sleep(5 * time.Millisecond)
				assert.Zero(t, c.destroyed.Load(), "a stream captures")
				return nil
			})
			require.NoError(t, err)
			if !only {
				time.Sleep(5 * time.Millisecond)
				assert.Zero(t, c.destroyed.Load(), "the graph keeps it")
			}
			require.NoError(t, errors.Join(e.Launch(s), s.Synchronize(), e.Close()))
			c.over(t)
			assert.Zero(t, made.created.Load())
		})
	}
}

// TestCloseAtOnce: whoever closes an object while others call it, none of them is inside when it ends.
func TestCloseAtOnce(t *testing.T) {
	x := open(t)
	for name, options := range map[string]library.Options{
		"retained": {}, "CallsOnly": {CallsOnly: true}, "handles": {Handles: 3}, "own memory": {Streams: 1, Workspace: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				c := new(counts)
				var inside atomic.Int32
				options.Name, options.Create = "object", func() error { return nil }
				options.Destroy = func() error {
					assert.Zero(t, inside.Load())
					c.destroyed.Add(1)
					return nil
				}
				o := newObject(t, x, options)
				var all sync.WaitGroup
				for size := range 3 {
					s := stream(t, x)
					all.Go(func() {
						for {
							err := o.Enqueue(s, 1000*size, func(library.Place) error {
								inside.Add(1)
								defer inside.Add(-1)
								assert.Zero(t, c.destroyed.Load())
								return nil
							})
							if err != nil {
								assert.ErrorIs(t, err, safe.ErrClosed)
								return
							}
						}
					})
				}
				for range 2 {
					all.Go(func() { assert.NoError(t, o.Close()) })
				}
				all.Wait()
				c.over(t)
			}
		})
	}
}

// TestWrongPlaces: streams and memory of another context or device, and objects that outlive their context's.
func TestWrongPlaces(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	o := newObject(t, x, counted(new(counts)))
	y, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	defer y.Close()
	foreign := stream(t, y)
	b, err := safe.NewBuffer[int32](y, 4)
	require.NoError(t, err)
	assert.ErrorIs(t, o.Enqueue(foreign, 0, nothing), safe.ErrContextMismatch)
	assert.ErrorIs(t, o.Enqueue(foreign, 100, nothing), safe.ErrContextMismatch)
	assert.ErrorIs(t, o.Matches(foreign), safe.ErrContextMismatch)
	require.NoError(t, b.Close())
	assert.ErrorIs(t, o.Enqueue(s, 0, nothing, b.Arg()), safe.ErrClosed)
	z, err := safe.NewContext(x.Device())
	require.NoError(t, err)
	gone, err := safe.NewStream(z)
	require.NoError(t, errors.Join(err, gone.Close(), z.Close()))
	assert.ErrorIs(t, o.Enqueue(gone, 100, nothing), safe.ErrClosed)
	assert.ErrorIs(t, o.Matches(gone), safe.ErrClosed)
	assert.ErrorIs(t, o.Enqueue(s, 0, nothing, safe.Val(int32(3))), safe.ErrInvalidArgument)
	assert.ErrorIs(t, o.Enqueue(nil, 0, nothing), safe.ErrClosed)
	assert.ErrorIs(t, o.Enqueue(s, -1, nothing), safe.ErrInvalidArgument)
	assert.Error(t, o.Enqueue(s, math.MaxInt, nothing))
	for _, handles := range []int{-1, 4097, math.MaxInt} {
		options := counted(new(counts))
		options.Handles = handles
		_, err := library.New(x, options)
		assert.ErrorIs(t, err, safe.ErrRange, "%d handles", handles)
	}
	_, err = library.New(x, library.Options{})
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
}

// TestCloseAllFirst: an object whose context was emptied refuses calls, and ends.
func TestCloseAllFirst(t *testing.T) {
	x, err := safe.NewContext(must(safe.Devices())[0])
	require.NoError(t, err)
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	c := new(counts)
	o, err := library.New(x, counted(c))
	require.NoError(t, err)
	require.NoError(t, o.Enqueue(s, 100, nothing))
	require.NoError(t, x.CloseAll())
	assert.ErrorIs(t, o.Whole(func() error { t.Error("the library's object is gone"); return nil }), safe.ErrClosed)
	require.NoError(t, x.Close())
	assert.ErrorIs(t, o.Enqueue(s, 100, nothing), safe.ErrClosed)
	assert.NoError(t, o.Close())
	c.over(t)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestDropped: the garbage collector ends what the program has forgotten.
func TestDropped(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	c := new(counts)
	func() {
		o, err := library.New(x, counted(c))
		require.NoError(t, err)
		require.NoError(t, o.Enqueue(s, 100, nothing))
	}()
	c.over(t)
}
