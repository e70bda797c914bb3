package ffi

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRestoreSignals: what signal() of C sets, which NVRTC calls, is undone, and what the program has asked for is not.
func TestRestoreSignals(t *testing.T) {
	require.Empty(t, RestoreSignals())
	signal.Ignore(syscall.SIGUSR2, syscall.SIGURG)
	defer signal.Reset(syscall.SIGUSR2, syscall.SIGURG)
	var before, ignored action
	require.True(t, sigaction(syscall.SIGTERM, nil, &before))
	require.True(t, sigaction(syscall.SIGUSR2, nil, &ignored))
	require.NotEqual(t, before.handler, ignored.handler)

	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGXFSZ} {
		changed := before
		changed.rest[0] &^= needs
		changed.rest[2] = 0 // the signals to block while it is handled
		require.NotEqual(t, before, changed)
		require.True(t, sigaction(s, &changed, nil))
	}
	assert.Equal(t, []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGXFSZ}, RestoreSignals())
	assert.Empty(t, RestoreSignals())
	var after action
	require.True(t, sigaction(syscall.SIGTERM, nil, &after))
	assert.Equal(t, before, after)
	require.True(t, sigaction(syscall.SIGUSR2, nil, &after))
	assert.Equal(t, ignored, after)

	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	defer signal.Stop(c)
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	assert.Equal(t, syscall.SIGTERM, <-c)
}
