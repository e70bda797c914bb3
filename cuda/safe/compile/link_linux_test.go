//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package compile

import (
	"context"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLinkEnded: the linker goes on when ctx has ended, but does not read the caller's Code.
func TestLinkEnded(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		needsNVRTC(t, "13.5")
		needsNvJitLink(t, "13.5")
		o := own(t)
		piece := func(source string) []byte {
			p, err := compile(context.Background(), must(t, "sm_90"), text{source: source}, Options{Format: PTX, CacheFolder: o.CacheFolder}, true)
			require.NoError(t, err)
			return p.Code
		}
		second, err := syscall.Mmap(-1, 0, 1<<12, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		require.NoError(t, err)
		copy(second, piece(callee))
		inputs := []Input{{Code: piece(slow)}, {Code: second}}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err = Link(ctx, inputs, o)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, syscall.Munmap(second))
		for linking() { // or the process, and the cache, would end under it
			time.Sleep(time.Millisecond)
		}
	})
}

// linking returns whether a link goes on, or writes to the cache.
func linking() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "compile.await[")
}
