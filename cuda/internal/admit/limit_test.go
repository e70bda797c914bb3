// The limiter. Needs no driver.

package admit

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBound(t *testing.T) {
	b := Limiter{Patience: Patience}
	var inside, most atomic.Int32
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			for range 100 {
				b.Enter()
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				inside.Add(-1)
				b.Leave()
			}
		})
	}
	all.Wait()
	assert.Zero(t, b.inside.Load())
	assert.Zero(t, b.waiting.Load())
	assert.Empty(t, b.queue)
	assert.Positive(t, most.Load())
}

// TestLimiterPatience: no call waits for ever, even if none of those admitted returns.
func TestLimiterPatience(t *testing.T) {
	b := Limiter{Patience: Patience}
	n := 5 * int(b.Limit())
	var all sync.WaitGroup
	for range n {
		all.Go(b.Enter)
	}
	all.Wait()
	assert.EqualValues(t, n, b.inside.Load())
	for range n {
		b.Leave()
	}
	assert.Zero(t, b.inside.Load())
	assert.Zero(t, b.extra.Load())
}
