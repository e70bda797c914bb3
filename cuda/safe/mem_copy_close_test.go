//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Memory and streams that are closed while a call enqueues a copy. Needs the simulated driver.

package safe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// copied is what a copy uses.
type copied struct {
	s      *safe.Stream
	b, src *safe.Buffer[uint32]
	h      *safe.Pinned[uint32]
}

func newCopied(t *testing.T, x *safe.Context) *copied {
	t.Helper()
	return &copied{stream(t, x), buffer[uint32](t, x, 4), buffer[uint32](t, x, 4), host[uint32](t, x, 4)}
}

// asyncCopies enqueue copies. They acquire nothing of what they use.
var asyncCopies = map[string]struct {
	function string
	call     func(w *copied) error
}{
	"CopyFromHostAsync": {"cuMemcpyHtoDAsync_v2", func(w *copied) error { return w.b.CopyFromHostAsync(w.s, w.h) }},
	"CopyToHostAsync":   {"cuMemcpyDtoHAsync_v2", func(w *copied) error { return w.b.CopyToHostAsync(w.s, w.h) }},
	"CopyFromAsync":     {"cuMemcpyDtoDAsync_v2", func(w *copied) error { return w.b.CopyFromAsync(w.s, w.src) }},
	"FillAsync of 0":    {"cuMemsetD8Async", func(w *copied) error { return w.b.FillAsync(w.s, 0) }},
}

// TestCloseBesideCopy: what a copy uses is destroyed after the call has returned, and after the copy.
func TestCloseBesideCopy(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	for name, c := range asyncCopies {
		t.Run(name, func(t *testing.T) {
			defer simulated.Reset()
			w := newCopied(t, x)
			require.NoError(t, errors.Join(c.call(w), w.s.Synchronize()))
			simulated.Delay(c.function, 50*time.Millisecond)
			done := inDriver(t, func() error { return c.call(w) })
			require.NoError(t, errors.Join(w.b.Close(), w.src.Close(), w.h.Close(), w.s.Close()))
			require.NoError(t, <-done)
			assert.ErrorIs(t, c.call(w), safe.ErrClosed)
			settle(t)
			noViolation(t)
		})
	}
}

// TestCopyAfterClose: a copy that waits for room in the queue finds that its memory was closed.
func TestCopyAfterClose(t *testing.T) {
	needsSimulated(t)
	startClean(t)
	x := open(t, 0)
	for name, c := range asyncCopies {
		t.Run(name, func(t *testing.T) {
			w := newCopied(t, x)
			k := kernel(t, x, "nothing")
			unstick := stick(t, x, w.s)
			for safe.Pending(w.s) < 960 {
				require.NoError(t, k.Launch(w.s, one))
			}
			done := make(chan error, 1)
			go func() { done <- c.call(w) }()
			require.Never(t, func() bool { return len(done) > 0 }, 20*time.Millisecond, time.Millisecond)
			require.NoError(t, w.b.Close())
			unstick()
			require.ErrorIs(t, <-done, safe.ErrClosed)
			require.NoError(t, w.s.Synchronize())
			noViolation(t)
		})
	}
}

// copyAcross begins a copy between devices. If delayed, the call stays in the driver for a moment;
// otherwise it has returned.
func copyAcross(t *testing.T, delayed bool, copy func() error) (copied <-chan error) {
	t.Helper()
	if delayed {
		simulated.Delay("cuMemcpyPeerAsync", 50*time.Millisecond)
		return inDriver(t, copy)
	}
	done := make(chan error, 1)
	done <- copy()
	return done
}
