//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Semaphores of other APIs beside other calls. They need the simulated driver, for which a
// file stands for a semaphore.

package safe_test

import (
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/require"
)

// TestSemaphoreNodeBesideClose: a node keeps its semaphores if one of them is closed while the
// call that adds the node runs.
func TestSemaphoreNodeBesideClose(t *testing.T) {
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
