package main

import (
	"os"
	"runtime"
	"testing"

	"github.com/cudabind/cudabind/internal/process"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A goroutine that ends while it is locked to its thread ends that as well, but
// until then it is one more.
func TestThreads(t *testing.T) {
	before, err := process.Threads(os.Getpid())
	require.NoError(t, err)
	assert.Positive(t, before)
	peak := (&gpu{threads: 0}).countThreads()
	locked, end := make(chan bool), make(chan bool)
	const more = 20
	for range more {
		go func() {
			runtime.LockOSThread()
			locked <- true
			<-end
		}()
	}
	for range more {
		<-locked
	}
	most, err := peak()
	close(end)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, most, more)
}
