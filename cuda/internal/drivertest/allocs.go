package drivertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// NoAllocations fails the test if calls of f, which enqueues work for which settle waits, allocate in Go. It tries again for
// a while, as other goroutines may still destroy what tests have closed.
func NoAllocations(t testing.TB, name string, f, settle func() error) {
	t.Helper()
	require.NoError(t, f(), name)
	require.NoError(t, settle(), name)
	assert.Eventually(t, func() bool {
		got := testing.AllocsPerRun(20, func() {
			if err := f(); err != nil {
				t.Error(name, err)
			}
		})
		return settle() == nil && got == 0
	}, 10*time.Second, time.Millisecond, name)
}
