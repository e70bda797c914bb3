//go:build cudabind_lockorder

package admit_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/stretchr/testify/assert"
)

// TestOrder: locks are taken in the order of their ranks, and two of a rank by Second alone.
func TestOrder(t *testing.T) {
	var a, b admit.Mutex[admit.StreamRank]
	var c admit.Mutex[admit.GraphRank]
	a.Lock()
	defer a.Unlock()
	assert.Panics(t, b.Lock, "two of a rank")
	assert.NotPanics(t, func() {
		b.Second().Lock()
		defer b.Unlock()
		c.Lock()
		defer c.Unlock()
		assert.Panics(t, func() { admit.MayWait(&a) }, "a lower rank")
	})
}

// TestGateBeforeStream: no stream is locked inside of a gate.
func TestGateBeforeStream(t *testing.T) {
	var g admit.Gate
	var m admit.Mutex[admit.StreamRank]
	assert.True(t, g.Enter())
	assert.Panics(t, m.Lock)
	assert.Panics(t, func() { m.Second().Lock() })
	g.Leave()
	assert.NotPanics(t, func() { m.Lock(); m.Unlock() })
}
