//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Opening a context while the last one of its device is being destroyed. Needs the
// simulated driver.

package safe_test

import (
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimOpenWhileEnding: a context opened while the last one of its device waits for its
// work, to be destroyed, stays usable.
func TestSimOpenWhileEnding(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	release := make(chan struct{})
	_, err = s.LaunchHostFunc(func() { <-release })
	require.NoError(t, err)
	require.NoError(t, s.Close())
	closed := make(chan error)
	go func() { closed <- x.Close() }()
	time.Sleep(5 * time.Millisecond)
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	y := open(t, 0)
	require.NoError(t, buffer[float32](t, y, 10).Fill(0))
	require.NoError(t, <-closed)
	assert.Zero(t, simulated.Lost())
}
