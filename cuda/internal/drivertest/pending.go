package drivertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// AllPending makes calls of f, which enqueue work on a stream, and fails the test if one of them waits for room. hold
// enqueues a host function before them, which waits for their end.
func AllPending(t testing.TB, calls int, hold func(wait func()) error, f func() error) {
	t.Helper()
	released := make(chan struct{})
	require.NoError(t, hold(func() { <-released }))
	over := make(chan error, 1)
	go func() {
		for range calls {
			if err := f(); err != nil {
				over <- err
				return
			}
		}
		over <- nil
	}()
	timer := time.AfterFunc(time.Minute, func() { close(released) })
	err := <-over
	require.True(t, timer.Stop(), "a call waits for room")
	close(released)
	require.NoError(t, err)
}
