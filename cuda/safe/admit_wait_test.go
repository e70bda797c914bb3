// Waiting for a stream's lock with a context. Needs no driver.

package safe

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLockContext: a canceled wait for a stream's lock leaves no goroutine. 1,000 of them
// for a lock that was held once left 1,000.
func TestLockContext(t *testing.T) {
	q := newQueue()
	q.mu.Lock()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	before := runtime.NumGoroutine()
	for range 1000 {
		require.ErrorIs(t, q.lockContext(canceled, "op"), context.Canceled)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+100, "those of the collector and the reaper come and go")
	q.mu.Unlock()
	require.NoError(t, q.lockContext(t.Context(), "op"))
	q.mu.Unlock()
}

// TestLockContextCanceled: waiters canceled at any moment neither keep the lock nor lose
// it.
func TestLockContextCanceled(t *testing.T) {
	q := newQueue()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 2000 {
				ctx, cancel := context.WithCancel(t.Context())
				if (n+i)%3 == 0 {
					go cancel()
				}
				err := q.lockContext(ctx, "op")
				if err == nil {
					runtime.Gosched()
					q.mu.Unlock()
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	require.NoError(t, q.lockContext(t.Context(), "op"))
	q.mu.Unlock()
}
