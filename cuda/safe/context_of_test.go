//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// The Context methods. Runs on any driver.

package safe_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestContextOf(t *testing.T) {
	x := open(t, 0)
	s, e, b, h := stream(t, x), event(t, x), buffer[int32](t, x, 64), host[int32](t, x, 64)
	k := kernel(t, x, "fill")
	m, err := safe.LoadFile(x, "testdata/kernels.ptx")
	require.NoError(t, err)
	closing(t, m)
	g, err := s.Capture(func() error { return b.FillAsync(s, 0) })
	require.NoError(t, err)
	closing(t, g)
	exec, err := g.Instantiate()
	require.NoError(t, err)
	closing(t, exec)
	legacy, err := safe.LegacyStream(x)
	require.NoError(t, err)
	closing(t, legacy)
	part, err := b.Slice(3, 4)
	require.NoError(t, err)

	for _, o := range []interface{ Context() *safe.Context }{
		s, e, b, h, k, m, g, exec, legacy, part,
	} {
		assert.Equal(t, s.Context(), o.Context(), "%v", o)
	}
	assert.Equal(t, x.Raw(), s.Context().Raw())
	assert.Equal(t, x.Device(), s.Context().Device())
	assert.Equal(t, x.String(), s.Context().String())
}

func TestContextOfNothing(t *testing.T) {
	for _, o := range []interface{ Context() *safe.Context }{
		(*safe.Stream)(nil), (*safe.Event)(nil), (*safe.Buffer[int])(nil), (*safe.Pinned[int])(nil), (*safe.Kernel)(nil), (*safe.Module)(nil),
		(*safe.Graph)(nil), (*safe.GraphExec)(nil), (*safe.GreenContext)(nil),
		&safe.Stream{}, &safe.Event{}, &safe.Buffer[int]{}, &safe.Pinned[int]{}, &safe.Kernel{}, &safe.Module{},
		&safe.Graph{}, &safe.GraphExec{}, &safe.GreenContext{},
	} {
		assert.Nil(t, o.Context(), "%T", o)
	}
	var none *safe.Context
	assert.Zero(t, none.Raw())
}

// TestContextOfLasts: the context of an object is usable as long as the object is open, even
// if the program has closed or dropped its own.
func TestContextOfLasts(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*safe.Context)
	}{
		{"closed", func(x *safe.Context) { x.Close() }},
		{"dropped", func(*safe.Context) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := func() *safe.Stream {
				x, err := safe.Open(0)
				require.NoError(t, err)
				s, err := safe.NewStream(x)
				require.NoError(t, err)
				test.end(x)
				return s
			}()
			drop()
			x := s.Context()
			assert.NotContains(t, x.String(), "closed")
			require.NoError(t, x.Close(), "which does nothing")
			b, err := safe.Upload(x, []int32{1, 2})
			require.NoError(t, err)
			require.NoError(t, s.Close())
			got, err := b.Download()
			require.NoError(t, err)
			assert.Equal(t, []int32{1, 2}, got)
			require.NoError(t, b.Close())
			runtime.KeepAlive(s)
			require.Eventually(t, func() bool { return x.Raw() == 0 }, atOnce, time.Millisecond, "nothing is open")
			_, err = safe.NewEvent(x)
			assert.ErrorIs(t, err, safe.ErrClosed)
			assert.Equal(t, driver.CUcontext(0), s.Context().Raw())
			assert.Contains(t, x.String(), "closed")
		})
	}
}

// TestViewOfDestroyed tests that a call on a destroyed context does not make it usable for others.
func TestViewOfDestroyed(t *testing.T) {
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	view := s.Context()
	require.NoError(t, errors.Join(s.Close(), x.Close()))
	settle(t)
	var stop atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for !stop.Load() {
			x.Synchronize()
		}
	})
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if err := view.WithCurrent(func() error { return nil }); !errors.Is(err, safe.ErrClosed) {
			t.Errorf("a destroyed context is used: %v", err)
			break
		}
	}
	stop.Store(true)
	all.Wait()
	noViolation(t)
}
