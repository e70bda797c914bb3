//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Calls in host functions, which must not wait: the work that they would wait for may need the
// driver's thread.

package collective

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inHostFunc returns what f returns in a host function of s. It calls free if f waits.
func inHostFunc(t *testing.T, s *safe.Stream, f func() error, free func()) error {
	t.Helper()
	done := make(chan error, 1)
	_, err := s.LaunchHostFunc(func() { done <- f() })
	require.NoError(t, err)
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		free()
		return errors.Join(errors.New("the host function has waited"), <-done)
	}
}

// TestOperationInHostFunc: an operation in a host function returns at once, also while another call
// holds the communicator.
func TestOperationInHostFunc(t *testing.T) {
	needsDouble(t)
	t.Run("registered memory", func(t *testing.T) {
		w := newRegistered(t, 100)
		operationInHostFunc(t, w.world, w.b[0])
	})
	t.Run("other memory", func(t *testing.T) {
		w := newWorld(t)
		operationInHostFunc(t, w, filled(t, w, 4, func(int, int) int32 { return 1 })[0])
	})
}

func operationInHostFunc(t *testing.T, w *world, b *safe.Buffer[int32]) {
	other, err := safe.NewStreamWith(w.contexts[0], safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer other.Close()
	tell(t, &told.Busy, 1<<30)
	before := told.get(&told.Operations)
	busy := make(chan error, 1)
	go func() { busy <- Broadcast(w.comms[0], w.streams[0], b, 0) }()
	for told.get(&told.Operations) == before {
		runtime.Gosched()
	}
	abort := func() { w.comms[0].Abort(errors.New("enough")) }
	for name, f := range map[string]func() error{
		"alone": func() error { return Broadcast(w.comms[0], other, b, 0) },
		"in a group": func() error {
			return Group(func(g *Calls) error { return Broadcast(w.comms[0].In(g), other, b, 0) })
		},
	} {
		assert.ErrorIs(t, inHostFunc(t, other, f, abort), safe.ErrInCallback, name)
	}
	abort()
	assert.ErrorIs(t, <-busy, ErrAborted)
}

// TestShutdownInHostFunc: Shutdown in a host function does not wait, and the communicators end in order.
func TestShutdownInHostFunc(t *testing.T) {
	needsDouble(t)
	for name, shutdown := range map[string]func(*world, context.Context) error{
		"one": func(w *world, ctx context.Context) error {
			return errors.Join(w.comms[0].Shutdown(ctx), w.comms[1].Close())
		},
		"all": func(w *world, ctx context.Context) error { return w.comms.Shutdown(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := filled(t, w, 4, func(int, int) int32 { return 1 })
			w.warm(t, b)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			begin, done := make(chan struct{}), make(chan error, 1)
			_, err := w.streams[0].LaunchHostFunc(func() { <-begin; done <- shutdown(w, ctx) })
			require.NoError(t, err)
			require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Sum) }))
			close(begin)
			assert.ErrorIs(t, <-done, safe.ErrInCallback)
			for _, c := range w.comms {
				<-c.Done()
				assert.Equal(t, safe.ErrClosed, c.Err(), "no abort")
			}
		})
	}
	assert.NoError(t, (*Comm)(nil).Shutdown(context.Background()))
}

// TestJoinInHostFunc: Join in a host function fails before the other ranks hear of this one.
func TestJoinInHostFunc(t *testing.T) {
	x := open(t, 1)[0]
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer s.Close()
	o := Options{Size: 2, Rank: 1, Address: freeAddress(t)}
	h := hosts(t, o)
	join := func() error { _, err := Join(soon(t), x, o); return err }
	assert.ErrorIs(t, inHostFunc(t, s, join, h.end), safe.ErrInCallback)
	time.Sleep(50 * time.Millisecond)
	h.has(t, 0)
	assert.NoError(t, h.session.failure())
}

// TestRefusedInHostFunc: calls that wait for other ranks return at once in a host function, and leave the
// communicators as they are.
func TestRefusedInHostFunc(t *testing.T) {
	w := newWorld(t)
	b := plain(t, w, 100)[0]
	for name, f := range map[string]func() error{
		"Open":     func() error { _, err := Open(soon(t), w.contexts...); return err },
		"Split":    func() error { _, err := w.comms[0].Split(soon(t), 0, 0); return err },
		"split":    func() error { _, err := w.comms.Split(soon(t), 0, 0); return err },
		"Register": func() error { _, err := Register(w.comms[0], b); return err },
	} {
		assert.ErrorIs(t, inHostFunc(t, w.streams[0], f, func() {}), safe.ErrInCallback, name)
	}
	for _, c := range w.comms {
		assert.NoError(t, c.Err())
	}
	w.warm(t, filled(t, w, 4, func(int, int) int32 { return 1 }))
}
