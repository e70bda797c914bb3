//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe

import (
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
)

// TestWaitQueuesOrder: waits of a queue are polled in the order of their records, in whichever they come.
func TestWaitQueuesOrder(t *testing.T) {
	var l waitQueues
	for _, order := range []uint64{3, 5, 4, 1, 2, 6} {
		l.add(&waiter{queue: "a", order: order, event: driver.CUevent(order)})
	}
	l.add(&waiter{queue: "b", event: 7})
	l.add(&waiter{event: 8})
	l.add(&waiter{event: 9})
	var orders []uint64
	for _, w := range l.lists[0] {
		orders = append(orders, w.order)
	}
	assert.Equal(t, []uint64{1, 2, 3, 4, 5, 6}, orders)
	assert.Equal(t, driver.CUevent(1), l.entries[0].Event, "the first is polled")
	assert.Equal(t, driver.CUevent(7), l.entries[1].Event)
	assert.Len(t, l.lists, 4, "each without a queue has one of its own")
}

// TestSteady: a wait is steady if the last two of its stream took alike.
func TestSteady(t *testing.T) {
	var c streamCore
	for i, want := range []bool{false, true, true, false, false, true} {
		took := []time.Duration{200, 210, 190, 400, 200, 221}[i] * time.Microsecond
		c.learn(took)
		assert.Equal(t, want, c.steady.Load(), "%v", took)
		assert.Equal(t, int64(took), c.took.Load())
	}
	assert.Equal(t, int64(5), entry(&waiter{takes: 5}).Expected)
	assert.Zero(t, entry(&waiter{takes: -5}).Expected, "longer than expected")
}
