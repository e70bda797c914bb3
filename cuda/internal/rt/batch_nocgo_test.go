//go:build !cgo && cudabind_nocgo && linux && (amd64 || arm64)

package rt

import (
	"runtime"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// doubles makes functions of C stand for the driver's until the test ends.
func doubles(t *testing.T, with map[*uintptr]string) {
	before := cu
	t.Cleanup(func() { cu = before })
	c, err := purego.Dlopen("libc.so.6", purego.RTLD_LAZY)
	require.NoError(t, err)
	for address, name := range with {
		*address, err = purego.Dlsym(c, name)
		require.NoError(t, err)
	}
}

// TestListEnd: the garbage collector finds no pointer past the end of a list, to memory that Go
// may have freed.
func TestListEnd(t *testing.T) {
	const words, sleep = 5 * 8192 / 8, 50 * time.Millisecond // whole pages
	var lists [64][]uint64
	for i := range lists {
		lists[i] = make([]uint64, words)
	}
	for i := 1; i < len(lists); i += 2 {
		lists[i] = nil
	}
	runtime.GC()
	doubles(t, map[*uintptr]string{
		&cu[fnExchangeMode]:  "abs",
		&cu[fnEventRecord]:   "usleep",
		&cu[fnSetKernelNode]: "usleep",
	})
	list := lists[len(lists)/2]
	for _, c := range []struct {
		name string
		make func() (driver.CUresult, int)
	}{
		{"batch", func() (driver.CUresult, int) {
			list[0], list[1] = header(otherCall, words-3), two(uint32(fnEventRecord), 1)
			list[words-3], list[words-2], list[words-1] = header(otherCall, 3), two(uint32(fnEventRecord), 6), uint64(sleep.Microseconds())
			return Batch(0, 2, list, 2, false)
		}},
		{"nodes", func() (driver.CUresult, int) {
			list[0] = words - 6
			list[words-6] = 6
			return KernelNodes(0, 0, SetNode, list, []driver.CUgraphNode{0, driver.CUgraphNode(sleep.Microseconds())})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clear(list)
			made := make(chan bool)
			go func() {
				defer close(made)
				code, done := c.make()
				for int32(code) == -1 { // a signal has ended usleep, perhaps one of Go's own
					code, done = c.make()
				}
				assert.Zero(t, code)
				assert.Equal(t, 2, done)
			}()
			for waiting := true; waiting; {
				runtime.GC()
				select {
				case <-made:
					waiting = false
				default:
				}
			}
		})
	}
	runtime.KeepAlive(lists)
}
