package drivertest

import (
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// WithRace tells whether the tests were built with the race detector.
func WithRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// NotWithRace skips a test of allocations under the race detector: there, a [sync.Pool] forgets values on purpose.
func NotWithRace(t testing.TB) {
	t.Helper()
	if WithRace() {
		t.Skip("the race detector makes sync.Pool forget")
	}
}

// NoAllocations fails the test if calls of f, which enqueues work for which settle waits, allocate in Go. It tries again for
// a while, as other goroutines may still destroy what tests have closed.
func NoAllocations(t testing.TB, name string, f, settle func() error) {
	t.Helper()
	NotWithRace(t)
	require.NoError(t, f(), name)
	require.NoError(t, settle(), name)
	got := 1.0
	for end := time.Now().Add(time.Minute); got > 0 && time.Now().Before(end); {
		got = testing.AllocsPerRun(20, func() {
			if err := f(); err != nil { // require allocates
				require.NoError(t, err, name)
			}
		})
		require.NoError(t, settle(), name)
	}
	assert.Zero(t, got, name)
}
