//go:build cgo && linux && (amd64 || arm64)

package library_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCloseBeforeCalled: Called may still use what the library has created, whoever closes the Object meanwhile.
func TestCloseBeforeCalled(t *testing.T) {
	x := open(t)
	for name, options := range map[string]library.Options{
		"retained": {}, "CallsOnly": {CallsOnly: true}, "handles": {Handles: 3}, "own memory": {Streams: 1, Workspace: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			s := stream(t, x)
			b := words(t, x)
			var destroyed atomic.Int32
			options.Name, options.Create = "object", func() error { return nil }
			options.Destroy = func() error { destroyed.Add(1); return nil }
			o := newObject(t, x, options)
			c, did := prepared(t, o, b)
			require.NoError(t, submit(c, s, b))
			called := c.Called
			c.Called = func(made bool) error {
				assert.NoError(t, o.Close())
				for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
					if !assert.Zero(t, destroyed.Load(), "the call still holds the Object") {
						break
					}
				}
				return called(made)
			}
			require.NoError(t, submit(c, s, b))
			assert.Equal(t, 2, did["made"])
			assert.Eventually(t, func() bool { return destroyed.Load() == 1 }, time.Minute, time.Millisecond)
		})
	}
}

// TestCloseBeforeUse: the error of a call whose Object is closed meanwhile is that of one that is closed before.
func TestCloseBeforeUse(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	b := words(t, x)
	o := newObject(t, x, counted(new(counts)))
	c, did := prepared(t, o, b)
	require.NoError(t, submit(c, s, b))
	c.Prepare = func(library.Place) []safe.RawCall {
		assert.NoError(t, o.Close())
		return nil // so that it is Do's turn
	}
	assert.Equal(t, safe.ErrClosed, submit(c, s, b))
	assert.Zero(t, did["Do"])
}

// TestReset: an Object of a primary context that other code has reset is not used on streams of the next one, which may
// have the same handle.
func TestReset(t *testing.T) {
	if onGPU {
		t.Skip("resets the context of the other tests")
	}
	for name, options := range map[string]library.Options{"retained": {}, "CallsOnly": {CallsOnly: true}} {
		for _, memory := range []int{0, 100} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, memory), func(t *testing.T) {
				drivertest.InChild(t, func(t *testing.T) { // a raw reset must not meet the destruction of other objects
					old, err := safe.Open(0)
					require.NoError(t, err)
					defer old.Close()
					options.Create, options.Destroy = func() error { return nil }, func() error { return nil }
					o, err := library.New(old, options)
					require.NoError(t, err)
					require.NoError(t, driver.CuDevicePrimaryCtxReset(old.Device().Raw()))
					x, err := safe.Open(0)
					require.NoError(t, err)
					assert.False(t, x.Equal(old))
					s, err := safe.NewStream(x)
					require.NoError(t, err)
					assert.True(t, x.Equal(s.Context()))
					assert.ErrorIs(t, o.Enqueue(s, memory, func(library.Place) error {
						t.Error("the library was called")
						return nil
					}), safe.ErrReset)
					next, err := library.New(x, options)
					require.NoError(t, err)
					require.NoError(t, next.Enqueue(s, memory, nothing), "it shares nothing with the old one")
					require.NoError(t, errors.Join(next.Close(), s.Close(), x.Close(), o.Close()))
				})
			})
		}
	}
}

// TestChangedCall: a function that changes its Call leaves nothing locked, and its work stays where its workspace is.
func TestChangedCall(t *testing.T) {
	x := open(t)
	s, other := stream(t, x), stream(t, x)
	b := words(t, x)
	beside := newObject(t, x, counted(new(counts)))
	for name, change := range map[string]func(c *library.Call){
		"no Object":    func(c *library.Call) { c.Object = nil },
		"other Object": func(c *library.Call) { c.Object = beside },
		"NoHandle":     func(c *library.Call) { c.NoHandle = !c.NoHandle },
		"Stream":       func(c *library.Call) { c.Stream = other },
		"everything":   func(c *library.Call) { *c = library.Call{} },
	} {
		for _, at := range []string{"Do", "Prepare", "Called"} {
			for _, no := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s in %s, NoHandle %v", name, at, no), func(t *testing.T) {
					o := newObject(t, x, counted(new(counts)))
					c, _ := prepared(t, o, b)
					require.NoError(t, submit(c, s, b))
					prepare, called := c.Prepare, c.Called
					c.NoHandle = no
					c.Prepare = func(p library.Place) []safe.RawCall {
						calls := prepare(p)
						if at == "Prepare" {
							change(c)
						}
						if at != "Called" {
							return nil
						}
						return calls
					}
					c.Called = func(made bool) error {
						if at == "Called" {
							change(c)
						}
						return called(made)
					}
					c.Do = func(p library.Place) error {
						assert.Equal(t, s.Raw(), p.Stream)
						if at == "Do" {
							change(c)
						}
						return nil
					}
					err := submit(c, s, b)
					if at == "Prepare" && name == "everything" { // Do, too
						assert.Error(t, err)
					} else {
						assert.NoError(t, err)
					}
					for _, o := range []*library.Object{o, beside} {
						require.NoError(t, o.Enqueue(s, 100, nothing))
					}
				})
			}
		}
	}
}

// TestHandleOfNone: a Call that locks no handle gets no number of one, whichever it had before.
func TestHandleOfNone(t *testing.T) {
	x := open(t)
	s := stream(t, x)
	options := counted(new(counts))
	options.Handles = 2
	c := library.Call{Object: newObject(t, x, options), Stream: s, Memory: 100}
	var got int
	c.Do = func(p library.Place) error { got = p.Handle; return nil }
	for range 2 { // a workspace's number selects the handle
		require.NoError(t, c.Submit())
		if got == 1 {
			break
		}
		c.Memory *= 1000
	}
	require.Equal(t, 1, got)
	c.Reset()
	c.Object, c.Stream, c.NoHandle = newObject(t, x, counted(new(counts))), s, true
	require.NoError(t, c.Submit())
	assert.Zero(t, got)
}
