//go:build cgo && linux && (amd64 || arm64)

package safe_test

import (
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimOpenWhileEnding: while the last context of a device waits for its work, to
// end, another one is opened, which does not end with it.
func TestSimOpenWhileEnding(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	s, err := safe.NewStream(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	release := make(chan struct{})
	_, err = s.LaunchHostFunc(func() { <-release }, safe.HostFuncOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	closed := make(chan error)
	go func() { closed <- x.Close() }()
	time.Sleep(5 * time.Millisecond)
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	y := open(t, 0)
	require.NoError(t, buffer[float32](t, y, 10).Zero())
	require.NoError(t, <-closed)
	assert.Zero(t, simulated.Lost())
}
