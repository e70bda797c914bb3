//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package collective

import (
	"context"
	"runtime"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHostile calls every function and method with nil, zero and extreme values.
func TestHostile(t *testing.T) {
	needsDouble(t)
	drivertest.Hostile{
		Objects: func(t *testing.T) []any {
			x, err := safe.Open(0)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, x.Close()) })
			s, err := safe.NewStream(x)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			b, err := safe.NewBuffer[float32](x, 8)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			comms, err := Open(t.Context(), x)
			require.NoError(t, err)
			t.Cleanup(func() {
				comms[0].Abort(nil) // it may wait for itself, for instance in Send
				assert.NoError(t, comms.Close())
			})
			return []any{x, s, b, comms[0], comms, Options{Size: 1}}
		},
	}.Run(t, map[string]any{
		"AllGather": AllGather[float32], "AllReduce": AllReduce[float32], "AllToAll": AllToAll[float32], "Broadcast": Broadcast[float32],
		"FromEnv": FromEnv, "Gather": Gather[float32], "Group": Group, "Join": Join, "NewUniqueID": NewUniqueID, "Open": Open, "Recv": Recv[float32], "Reduce": Reduce[float32],
		"ReduceScatter": ReduceScatter[float32], "Register": Register[float32], "ScaledSum": ScaledSum, "ScaledSumBy": ScaledSumBy[float32], "Scatter": Scatter[float32],
		"Send": Send[float32],
	}, []any{&Comm{}, &PeerError{}, &Registration{}, Comms{}, Op{}})
}

// TestGroupPanics: a panic goes to the caller, and nothing can be added any more.
func TestGroupPanics(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("in f") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var kept *Calls
			over := make(chan any)
			go func() {
				defer func() { over <- recover() }()
				_ = Group(func(g *Calls) error { kept = g; end(); return nil })
			}()
			if v := <-over; name == "panic" {
				assert.Equal(t, "in f", v)
			}
			assert.ErrorIs(t, kept.add("AllReduce", &call{}), safe.ErrInvalidArgument)
		})
	}
}

// TestNilArguments: errors name what is nil.
func TestNilArguments(t *testing.T) {
	needsDouble(t)
	x := open(t, 1)[0]
	comms, err := Open(soon(t), x)
	require.NoError(t, err)
	defer comms.Close()
	c := comms[0]
	s, err := safe.NewStream(x)
	require.NoError(t, err)
	defer s.Close()
	var none context.Context
	for op, call := range map[string]func() error{
		"collective.Open":  func() error { _, err := Open(none, x); return err },
		"collective.Join":  func() error { _, err := Join(none, x, Options{Size: 1}); return err },
		"Comm.Wait":        func() error { return c.Wait(none, s) },
		"Comm.Split":       func() error { _, err := c.Split(none, 0, 0); return err },
		"Comms.Split":      func() error { _, err := comms.Split(none, 0); return err },
		"collective.Group": func() error { return Group(nil) },
	} {
		err := call()
		assert.ErrorIs(t, err, safe.ErrInvalidArgument, op)
		var e *safe.Error
		require.ErrorAs(t, err, &e, op)
		assert.Equal(t, op, e.Op)
		assert.Contains(t, e.Detail, " is nil", op)
	}
	assert.NoError(t, c.Err())
	err = c.Shutdown(none)
	assert.ErrorIs(t, err, safe.ErrInvalidArgument)
	assert.ErrorContains(t, err, "Comm.Shutdown: invalid argument: the context.Context is nil")
	<-c.core.gone // it is closed
}
