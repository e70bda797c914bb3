//go:build cudabind_lockorder

package admit_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/stretchr/testify/assert"
)

// TestOrder: locks are taken in the order of their ranks, and two of a rank in that of Order.
func TestOrder(t *testing.T) {
	var streams [2]admit.Mutex[admit.StreamRank]
	var graph admit.Mutex[admit.GraphRank]
	first, second := &streams[0], &streams[1]
	assert.Negative(t, admit.Order(first, second))
	second.Lock()
	assert.Panics(t, first.Lock, "two of a rank in the wrong order")
	assert.Panics(t, second.Lock, "the same one")
	assert.True(t, first.TryLock(), "trying needs no order")
	first.Unlock()
	second.Unlock()
	first.Lock()
	defer first.Unlock()
	assert.NotPanics(t, second.Lock)
	second.Unlock()
	assert.NotPanics(t, graph.Lock)
	defer graph.Unlock()
	assert.Panics(t, func() { admit.MayWait(second) }, "a lower rank")
}

// TestLeaf: under a leaf no mutex is waited for.
func TestLeaf(t *testing.T) {
	var leaf, other admit.Leaf
	var m admit.Mutex[admit.ExecRank]
	leaf.Lock()
	assert.Panics(t, m.Lock)
	assert.True(t, m.TryLock())
	m.Unlock()
	assert.NotPanics(t, func() { other.Lock(); other.Unlock() })
	leaf.Unlock()
	assert.NotPanics(t, func() { m.Lock(); m.Unlock() })
	assert.True(t, leaf.TryLock())
	assert.Panics(t, m.Lock)
	leaf.Unlock()
}

// TestGateBeforeStream: no stream is locked inside of a gate.
func TestGateBeforeStream(t *testing.T) {
	var g admit.Gate
	var m admit.Mutex[admit.StreamRank]
	assert.True(t, g.Enter())
	assert.Panics(t, m.Lock)
	g.Leave()
	assert.NotPanics(t, func() { m.Lock(); m.Unlock() })
}
