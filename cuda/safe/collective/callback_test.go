//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Calls in host functions, which must not wait: the work that they would wait for may need the
// driver's thread.

package collective

import (
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
	_, err := s.LaunchHostFunc(func() { done <- f() }, safe.HostFuncOptions{})
	require.NoError(t, err)
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		free()
		return errors.Join(errors.New("the host function has waited"), <-done)
	}
}

// TestOperationInHostFunc: an operation in a host function returns at once, also while another call
// holds the communicator.
func TestOperationInHostFunc(t *testing.T) {
	needsDouble(t)
	w := newRegistered(t, 100)
	other, err := safe.NewStream(w.contexts[0], safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer other.Close()
	tell(t, &told.Busy, 1<<30)
	before := told.get(&told.Operations)
	busy := make(chan error, 1)
	go func() { busy <- Broadcast(w.comms[0], w.streams[0], w.b[0], 0) }()
	for told.get(&told.Operations) == before {
		runtime.Gosched()
	}
	abort := func() { w.comms[0].Abort(errors.New("enough")) }
	for name, f := range map[string]func() error{
		"alone": func() error { return Broadcast(w.comms[0], other, w.b[0], 0) },
		"in a group": func() error {
			return Group(func(g *Calls) error { return Broadcast(w.comms[0].In(g), other, w.b[0], 0) })
		},
	} {
		assert.ErrorIs(t, inHostFunc(t, other, f, abort), safe.ErrInCallback, name)
	}
	abort()
	assert.ErrorIs(t, <-busy, ErrAborted)
}
