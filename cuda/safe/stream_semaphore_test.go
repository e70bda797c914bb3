//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Semaphores of other APIs beside other calls. They need the simulated driver, for which a
// file stands for a semaphore.

package safe_test

import (
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSemaphoreNodeBesideClose: a node keeps its semaphores if one of them is closed while the
// call that adds the node runs.
func TestSemaphoreNodeBesideClose(t *testing.T) {
	startClean(t) // semaphores of earlier tests would be counted
	x := open(t, 0)
	f := exported(t)
	other, _, _ := semaphore(t, x, safe.ExternalSemaphoreOptions{})
	ops := make([]safe.SemaphoreOp, 20_000) // so that Close comes during the call
	for i := range ops {
		ops[i].Semaphore = other
	}
	end := time.Now().Add(stormTime(t))
	for i := 0; time.Now().Before(end); i++ {
		e, err := safe.ImportExternalSemaphore(x, f, safe.ExternalSemaphoreOptions{})
		require.NoError(t, err)
		before := simulated.Live("external")
		ops[0].Semaphore = e
		g := newGraph(t, x)
		added := make(chan error)
		go func() {
			_, err := g.Add(safe.SignalExternalNode(ops...))
			added <- err
		}()
		time.Sleep(time.Duration(i%5) * 50 * time.Microsecond)
		require.NoError(t, e.Close())
		if err := <-added; err != nil {
			require.ErrorIs(t, err, safe.ErrClosed)
		} else {
			settle(t)
			require.Equal(t, before, simulated.Live("external"), "the graph has a destroyed semaphore")
		}
		require.NoError(t, g.Close())
		settle(t)
	}
	noViolation(t)
}

// TestManySemaphores: more operations than a queue has room for wait outside of the driver, and hold up
// nothing else.
func TestManySemaphores(t *testing.T) {
	needsSimulated(t)
	needsFiles(t)
	drivertest.InChild(t, func(t *testing.T) {
		watch(t)
		x := open(t, 0)
		e, set, get := semaphore(t, x, safe.ExternalSemaphoreOptions{Timeline: true})
		s, other := stream(t, x), stream(t, x)
		waits := background(func() { assert.NoError(t, s.WaitExternal(rising(e, queued)...)) })
		assert.False(t, closed(waits), "it finds room")
		began := background(func() {
			g, err := other.Capture(func() error { return nil })
			assert.NoError(t, err)
			assert.NoError(t, g.Close())
		})
		soon(t, began, "a capture of another stream waits")
		set(queued)
		soon(t, waits, "it finds no room")
		require.NoError(t, s.Synchronize())
		set(0)
		require.NoError(t, s.SignalExternal(rising(e, queued)...))
		require.NoError(t, s.Synchronize())
		assert.EqualValues(t, queued, get())
	})
}

// TestManySemaphoresCaptured: a capture records them as one node.
func TestManySemaphoresCaptured(t *testing.T) {
	x := open(t, 0)
	e, _, get := semaphore(t, x, safe.ExternalSemaphoreOptions{Timeline: true})
	s := stream(t, x)
	g, err := s.Capture(func() error { return s.SignalExternal(rising(e, queued)...) })
	require.NoError(t, err)
	closing(t, g)
	nodes, err := g.Nodes()
	require.NoError(t, err)
	assert.Len(t, nodes, 1)
	launch(t, executable(t, g), s)
	assert.EqualValues(t, queued, get())
}

// rising returns operations with the values from 1 to n.
func rising(e *safe.ExternalSemaphore, n int) []safe.SemaphoreOp {
	ops := make([]safe.SemaphoreOp, n)
	for i := range ops {
		ops[i] = safe.SemaphoreOp{Semaphore: e, Value: uint64(i + 1)}
	}
	return ops
}
