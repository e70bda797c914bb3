//go:build cgo && linux && (amd64 || arm64)

package tour

import (
	"context"
	"errors"
	"log"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/collective"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sumAll adds up one buffer of each GPU of this process. Every buffer gets the sum.
func sumAll(ctx context.Context, comms collective.Comms, streams []*safe.Stream, buffers []*safe.Buffer[float32]) error {
	err := collective.Group(func(g *collective.Calls) error {
		for i, c := range comms {
			if err := collective.AllReduce(c.In(g), streams[i], buffers[i], buffers[i], collective.Sum); err != nil {
				return err
			}
		}
		return nil
	})
	for i, c := range comms {
		err = errors.Join(err, c.Wait(ctx, streams[i]))
	}
	return err
}

// registerAll registers one buffer of each GPU, and adds them up a hundred times.
func registerAll(ctx context.Context, comms collective.Comms, streams []*safe.Stream, buffers []*safe.Buffer[float32]) error {
	for i, c := range comms {
		r, err := collective.Register(c, buffers[i])
		if err != nil {
			return err
		}
		defer r.Close()
	}
	for range 100 {
		if err := sumAll(ctx, comms, streams, buffers); err != nil {
			return err
		}
	}
	return nil
}

// limited calls f, and aborts the communicator if ctx ends first.
func limited(ctx context.Context, c *collective.Comm, f func() error) error {
	defer context.AfterFunc(ctx, func() { c.Abort(context.Cause(ctx)) })()
	return f()
}

// rank is the program of each process: it averages gradients over all of them.
func rank(ctx context.Context) error {
	o, err := collective.FromEnv()
	if errors.Is(err, collective.ErrNoLauncher) {
		o, err = collective.Options{Size: 1}, nil // one GPU alone
	}
	if err != nil {
		return err
	}
	x, err := safe.Open(o.LocalRank)
	if err != nil {
		return err
	}
	defer x.CloseAll()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	if err != nil {
		return err
	}
	gradients, err := safe.NewZeroed[float32](x, 1000)
	if err != nil {
		return err
	}
	meeting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := collective.Join(meeting, x, o)
	if err != nil {
		return err
	}
	for range 10 {
		// ... kernels that compute gradients on s
		if err := collective.AllReduce(c, s, gradients, gradients, collective.Average); err != nil {
			return err
		}
	}
	if err := c.Wait(ctx, s); err != nil {
		return err
	}
	return c.Shutdown(meeting)
}

// report tells what became of a communicator.
func report(err error) {
	var lost *collective.PeerError
	switch {
	case errors.As(err, &lost):
		log.Printf("rank %d is lost (%s): restart the job from the last checkpoint", lost.Rank, lost.Reason)
	case errors.Is(err, collective.ErrAborted):
		log.Printf("the job was aborted: %v", err)
	case errors.Is(err, errors.ErrUnsupported):
		log.Printf("NCCL is missing or too old: %v", err)
	}
}

// TestScale needs NCCL and a GPU.
func TestScale(t *testing.T) {
	needsLibrary(t, nccl.Library)
	report(rank(t.Context()))
	require.NoError(t, rank(t.Context()))
	devices, err := safe.Devices()
	require.NoError(t, err)
	var contexts []*safe.Context
	var streams []*safe.Stream
	var buffers []*safe.Buffer[float32]
	for i := range devices {
		x, err := safe.Open(i)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, x.Close()) })
		contexts, streams = append(contexts, x), append(streams, nonBlocking(t, x))
		b, err := safe.NewBufferWith[float32](x, 1000, safe.BufferOptions{Plain: true})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, b.Close()) })
		require.NoError(t, b.Fill(1))
		buffers = append(buffers, b)
	}
	comms, err := collective.Open(t.Context(), contexts...)
	require.NoError(t, err)
	require.NoError(t, limited(t.Context(), comms[0], func() error { return sumAll(t.Context(), comms, streams, buffers) }))
	assert.EqualValues(t, len(devices), contents(t, buffers[0])[999])
	require.NoError(t, registerAll(t.Context(), comms, streams, buffers))
	require.NoError(t, comms.Shutdown(t.Context()))
}
