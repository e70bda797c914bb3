//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Functions of the program that end their goroutine. Runs on any driver.

package safe_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/require"
)

func TestReleaseGoexit(t *testing.T) {
	x := open(t, 0)
	r, err := safe.NewResource(x, runtime.Goexit)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	time.Sleep(20 * time.Millisecond)
	r, gone := resource(t, x)
	require.NoError(t, r.Close())
	soon(t, gone, "nothing is released any more")
}

func TestOnReleaseGoexit(t *testing.T) {
	x := open(t, 0)
	g := newGraph(t, x)
	gone := make(chan struct{})
	require.NoError(t, g.OnRelease(runtime.Goexit))
	require.NoError(t, g.OnRelease(func() { close(gone) }))
	require.NoError(t, g.Close())
	soon(t, gone, "the second function does not run")
}

func TestOnErrorGoexit(t *testing.T) {
	x := open(t, 0)
	safe.OnError(func(error) { runtime.Goexit() })
	defer safe.OnError(nil)
	r, err := safe.NewResource(x, func() { panic("no") })
	require.NoError(t, err)
	require.NoError(t, r.Close())
	time.Sleep(20 * time.Millisecond)
	r, gone := resource(t, x)
	require.NoError(t, r.Close())
	soon(t, gone, "nothing is released any more")
}
