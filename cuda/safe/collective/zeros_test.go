//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package collective

import (
	"context"
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestZeros: nil, zero and closed receivers and arguments of everything that is exported cause no panic.
func TestZeros(t *testing.T) {
	needsDouble(t)
	x := open(t, 1)[0]
	s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer s.Close()
	b, err := safe.NewBuffer[float32](x, 4)
	require.NoError(t, err)
	defer b.Close()
	comms, err := Open(soon(t), x)
	require.NoError(t, err)
	closedStream, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	closedBuffer, err := safe.NewBuffer[float32](x, 4)
	require.NoError(t, err)
	closedComms, err := Open(soon(t), x)
	require.NoError(t, err)
	registered, err := Register(closedComms[0], b)
	require.NoError(t, err)
	require.NoError(t, errors.Join(closedStream.Close(), closedBuffer.Close(), registered.Close(), closedComms.Shutdown(soon(t))))
	closedContext, err := safe.NewContext(x.Device(), safe.ContextOptions{})
	require.NoError(t, err)
	require.NoError(t, closedContext.Close())

	a := drivertest.Arguments{}
	a.Usable(s, b, x, []*safe.Context{x}, comms[0], func(*Calls) error { return nil })
	a.Unusable(closedStream, closedBuffer, closedContext, closedComms[0])
	calls := map[string]any{
		"AllGather": AllGather[float32], "AllReduce": AllReduce[float32], "AllToAll": AllToAll[float32], "Broadcast": Broadcast[float32],
		"FromEnv": FromEnv, "Gather": Gather[float32], "Group": Group, "Join": Join, "Open": Open, "Recv": Recv[float32],
		"ReduceScatter": ReduceScatter[float32], "Reduce": Reduce[float32], "Register": Register[float32], "Scatter": Scatter[float32], "Send": Send[float32],
	}
	names := []string{"Comm", "PeerError", "Registration", "Comms", "Op"}
	for name, f := range calls {
		a.Call(t, name, f)
		names = append(names, name)
	}
	a.Methods(t, (*Comm)(nil), &Comm{}, closedComms[0], (*Comm)(nil).In(nil), closedComms[0].In(&Calls{}),
		&PeerError{}, (*Registration)(nil), &Registration{}, registered,
		Comms(nil), Comms{nil}, closedComms, Op(-1), Op(1<<40))
	drivertest.Covers(t, "../../../api/collective.txt", names...)
	assert.NoError(t, comms[0].Err(), "no call may end it")
	require.NoError(t, comms.Shutdown(soon(t)))
}

// TestNilArguments: errors name what is nil.
func TestNilArguments(t *testing.T) {
	needsDouble(t)
	x := open(t, 1)[0]
	comms, err := Open(soon(t), x)
	require.NoError(t, err)
	defer comms.Close()
	c := comms[0]
	s, err := safe.NewStream(x, safe.StreamOptions{})
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
