//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// What many operations and many communicators leave behind: nothing. On the simulated driver, a few run.

package collective

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// few returns how often something is done before its footprint counts, and how often after that. CUDABIND_MANY is a
// number for the latter.
func few(t *testing.T, warm, many int) (int, int) {
	t.Helper()
	if text := os.Getenv("CUDABIND_MANY"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return min(warm, n), n
	}
	if !onGPU {
		return warm / 10, warm / 5
	}
	return warm, many
}

// TestManyOperations: single ones, groups and launches of a graph.
func TestManyOperations(t *testing.T) {
	w := newWorld(t)
	b := filled(t, w, 1000, func(int, int) float32 { return 1 })
	sums := func() error {
		return w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Average) })
	}
	require.NoError(t, sums())
	w.wait(t)
	executables := make([]*safe.GraphExec, len(w.comms))
	done := make(chan error)
	for i, c := range w.comms {
		go func() {
			var err error
			executables[i], err = w.streams[i].CaptureExecutable(func() error { return AllReduce(c, w.streams[i], b[i], b[i], ScaledSum(1/float64(c.Size()))) })
			done <- err
		}()
	}
	for range w.comms {
		require.NoError(t, <-done)
	}
	run := func(n int) {
		for i := range n {
			if i%10 < 9 {
				require.NoError(t, sums())
			} else {
				for i, e := range executables {
					require.NoError(t, e.Launch(w.streams[i]))
				}
			}
			if i%100 == 99 {
				w.wait(t)
			}
		}
		w.wait(t)
	}
	warm, many := few(t, 10_000, 100_000)
	run(warm)
	before := footprintOf(t, w.contexts)
	run(many)
	before.compare(t, w.contexts, many)
	for i, e := range executables {
		assert.InDelta(t, 1, contents(t, b[i])[0], 1e-3)
		require.NoError(t, e.Close())
	}
}

// TestManyCommunicators: of all devices, used once and closed; every twentieth is aborted, and split before.
func TestManyCommunicators(t *testing.T) {
	contexts := open(t, 2)
	w := &world{contexts: contexts}
	for _, x := range contexts {
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		defer s.Close()
		w.streams = append(w.streams, s)
	}
	b := filled(t, w, 1000, func(int, int) float32 { return 1 })
	cause := errors.New("enough")
	run := func(n int) {
		from := time.Now()
		for i := range n {
			var err error
			w.comms, err = Open(soon(t), contexts...)
			require.NoError(t, err)
			require.NoError(t, w.each(func(c *Comm, s *safe.Stream, i int) error { return AllReduce(c, s, b[i], b[i], Average) }))
			w.wait(t)
			if i%20 == 19 {
				_, err := w.comms.Split(soon(t), make([]int, len(w.comms))...)
				require.NoError(t, err)
				w.comms[0].Abort(cause)
				require.ErrorIs(t, w.comms.Shutdown(soon(t)), cause)
				continue
			}
			require.NoError(t, w.comms.Shutdown(soon(t)))
			if i%100 == 99 {
				t.Logf("%d: %v each", i+1, (time.Since(from) / time.Duration(i+1)).Round(time.Microsecond))
			}
		}
	}
	warm, many := few(t, 60, 1000)
	run(max(warm, 20))
	before := footprintOf(t, contexts)
	run(many)
	before.compare(t, contexts, many)
}

// A footprint is what the process occupies.
type footprint struct {
	resident, files, threads, routines int // KiB, and numbers
	device                             []uint64
}

func footprintOf(t *testing.T, contexts []*safe.Context) (f footprint) {
	t.Helper()
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	number := func(name string) int {
		_, rest, _ := strings.Cut(string(status), name)
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(t, err)
		return n
	}
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	f = footprint{resident: number("VmRSS:"), files: len(files), threads: number("Threads:"), routines: runtime.NumGoroutine()}
	for _, x := range contexts {
		free, total, err := x.MemoryInfo()
		require.NoError(t, err)
		f.device = append(f.device, total-free)
	}
	return f
}

// compare fails the test if the process has grown by more than chance. Communicators that the program has closed may
// take a moment.
func (before footprint) compare(t *testing.T, contexts []*safe.Context, times int) {
	t.Helper()
	var now footprint
	grown := func() bool {
		now = footprintOf(t, contexts)
		more := now.resident > before.resident+32<<10 || now.files > before.files+2 || now.threads > before.threads+8 || now.routines > before.routines+2
		for i, used := range now.device {
			more = more || used > before.device[i]+16<<20
		}
		return more
	}
	for end := time.Now().Add(time.Minute); grown() && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("before %+v, %+v after %d more", before, now, times)
	assert.False(t, grown(), "KiB of memory, files, threads, goroutines, bytes on each device")
}
