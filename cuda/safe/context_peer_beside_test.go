//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Changes of access between devices beside each other and beside copies. Needs the
// simulated driver.

package safe_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPeerAccessBesideItself: whatever comes last of enabling and disabling access at once, a kernel that the
// layer admits can access the memory.
func TestPeerAccessBesideItself(t *testing.T) {
	needsSimulated(t)
	withPeer(t, func(t *testing.T, x, y *safe.Context) {
		b, s, fill := buffer[float32](t, y, 4), stream(t, x), kernel(t, x, "fill")
		simulated.Delay("cuMemPoolSetAccess", 10*time.Millisecond)
		simulated.Delay("cuCtxEnablePeerAccess", 10*time.Millisecond)
		for range 20 {
			var both sync.WaitGroup
			both.Go(func() { assert.NoError(t, x.EnablePeerAccess(y)) })
			both.Go(func() {
				time.Sleep(5 * time.Millisecond)
				assert.NoError(t, x.DisablePeerAccess(y))
			})
			both.Wait()
			assert.NoError(t, except(fill.Launch(s, one, safe.Val(uint32(1)), safe.Val(float32(3)), b.Arg()), safe.ErrContextMismatch))
			require.NoError(t, s.Synchronize())
			require.NoError(t, x.DisablePeerAccess(y))
		}
		simulated.Reset()
	})
}

// TestPeerAccessAfterReset: changing the access to a context that was reset changes nothing for the new one.
func TestPeerAccessAfterReset(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuCtxGetId")
	withPeer(t, func(t *testing.T, x, y *safe.Context) {
		reset(t, y)
		z, err := safe.Open(1)
		require.NoError(t, err)
		require.NoError(t, x.EnablePeerAccess(z))
		assert.ErrorIs(t, x.EnablePeerAccess(y), safe.ErrReset)
		assert.ErrorIs(t, x.DisablePeerAccess(y), safe.ErrReset)
		b, err := safe.NewBufferWith[float32](z, 4, safe.BufferOptions{Plain: true})
		require.NoError(t, err)
		s, fill := stream(t, x), kernel(t, x, "fill")
		assert.NoError(t, errors.Join(fill.Launch(s, one, safe.Val(uint32(1)), safe.Val(float32(3)), b.Arg()), s.Synchronize()))
		noViolation(t)
		require.NoError(t, errors.Join(b.Close(), z.Close()))
	})
}

// TestImportPoolBesidePeerCopies: no pool of another device gets its access while a copy between devices begins.
func TestImportPoolBesidePeerCopies(t *testing.T) {
	needsSimulated(t)
	needsFiles(t)
	drivertest.InChild(t, func(t *testing.T) {
		defer simulated.Reset()
		simulated.Widen(50 * time.Microsecond)
		x, y := open(t, 0), second(t)
		p := pool(t, x, shared)
		var c racers
		for _, pair := range [][2]*safe.Context{{x, y}, {y, x}} {
			k := &crossing{here: pair[0], there: pair[1], s: stream(t, pair[0])}
			c.add(1, func() error { return k.async() })
		}
		for end := time.Now().Add(stormTime(t)); time.Now().Before(end); {
			f, err := p.Export()
			require.NoError(t, err)
			q, err := safe.ImportPool(y, f)
			require.NoError(t, err)
			require.NoError(t, errors.Join(q.Close(), f.Close()))
		}
		require.NoError(t, c.end())
		noViolation(t)
	})
}
