package drivertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// AllPending makes 100 calls of f, which enqueue work on a stream, after a first one that may take longer. It fails the test
// if one of the 100 waits for room. launch enqueues a host function before them, which waits for their end.
func AllPending[F any](t testing.TB, launch func(func()) (F, error), f func() error) {
	t.Helper()
	require.NoError(t, f())
	released := make(chan struct{})
	_, err := launch(func() { <-released })
	require.NoError(t, err)
	over := make(chan error, 1)
	go func() {
		for range 100 {
			if err := f(); err != nil {
				over <- err
				return
			}
		}
		over <- nil
	}()
	timer := time.AfterFunc(time.Minute, func() { close(released) })
	err = <-over
	require.True(t, timer.Stop(), "a call waits for room")
	close(released)
	require.NoError(t, err)
}
