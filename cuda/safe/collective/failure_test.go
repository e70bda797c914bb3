//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// How soon a rank learns that another one is lost or that it is aborted, in the first operation, which waits inside
// NCCL, and in later ones, which wait on the GPU.

package collective

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Variables of the role "fail": NCCL has connected the ranks unless coldVariable is set, and the rank enqueues as
// many operations as queuedVariable says.
const (
	coldVariable   = "CUDABIND_TEST_COLD"
	queuedVariable = "CUDABIND_TEST_QUEUED"
)

// TestFailures: a rank gets its error soon, whatever happens to the other one or to itself, and its GPU works on.
func TestFailures(t *testing.T) {
	for _, work := range []struct {
		name   string
		cold   bool
		queued int
	}{{"the first operation", true, 1}, {"a later operation", false, 1}, {"900 operations", false, 900}} {
		for _, event := range []struct {
			name  string
			other string
			do    func(fails, other *process) error
			soon  time.Duration
			says  string
		}{
			{"killed", "idle", func(_, p *process) error { return p.Process.Kill() }, time.Second, "rank 1 is lost"},
			{"stopped", "idle", func(_, p *process) error { return p.Process.Signal(syscall.SIGSTOP) }, leastTimeout + time.Second, "rank 1 is lost"},
			{"aborted by the other rank", "abort", func(_, p *process) error { _, err := fmt.Fprintln(p.in); return err }, time.Second, "on fire"},
			{"aborted by the context", "idle", func(p, _ *process) error { _, err := fmt.Fprintln(p.in); return err }, time.Second, "context canceled"},
		} {
			t.Run(work.name+", "+event.name, func(t *testing.T) {
				if !onGPU && (work.cold || work.queued > 1 || event.name == "stopped") {
					t.Skip("the double does not connect processes, or it shows nothing more")
				}
				if work.cold {
					t.Setenv(coldVariable, "1")
				}
				t.Setenv(queuedVariable, fmt.Sprint(work.queued))
				all := start(t, "fail", event.other)
				all[0].says(t, "enqueues")
				time.Sleep(500 * time.Millisecond)
				from := time.Now()
				require.NoError(t, event.do(all[0], all[1]))
				text := all[0].says(t, "failed")
				learned := time.Since(from)
				if !onGPU {
					event.soon = 30 * time.Second // on a busy machine; half of what a rank that is only silent would have
				}
				assert.Less(t, learned, event.soon)
				assert.Contains(t, text, event.says)
				all[0].says(t, "released")
				released := time.Since(from)
				all[0].says(t, "works")
				all[0].says(t, "done")
				t.Logf("error after %v, released after %v, GPU works", learned.Round(time.Millisecond), released.Round(time.Millisecond))
			})
		}
	}
}

// failing is the role "fail". It waits as programs do: a context that ends aborts the communicator.
func failing(c *Comm, s *safe.Stream, b *safe.Buffer[float32]) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = fmt.Scanln()
		cancel()
	}()
	defer context.AfterFunc(ctx, func() { c.Abort(context.Cause(ctx)) })()
	var n int
	_, _ = fmt.Sscan(os.Getenv(queuedVariable), &n)
	const each = 30 // fewer than fill a stream
	streams := []*safe.Stream{s}
	for len(streams)*each < n {
		more, err := safe.NewStreamWith(s.Context(), safe.StreamOptions{NonBlocking: true})
		if err != nil {
			return err
		}
		defer more.Close()
		streams = append(streams, more)
	}
	say("enqueues")
	var err error
	for i := 0; i < n && err == nil; i++ {
		err = AllReduce(c, streams[i/each], b, b, Sum)
	}
	if err == nil {
		err = c.Wait(ctx, s)
	}
	say("failed", err)
	if !errors.Is(err, ErrAborted) {
		return fmt.Errorf("no abort: %w", err)
	}
	if err := c.Shutdown(context.Background()); !errors.Is(err, ErrAborted) {
		return fmt.Errorf("Shutdown: %w", err)
	}
	say("released")
	for _, s := range streams {
		if err := s.Synchronize(); err != nil {
			return err
		}
	}
	if err := b.Fill(2); err != nil {
		return err
	}
	if v := contentsOf(b)[0]; v != 2 {
		return fmt.Errorf("%v instead of 2", v)
	}
	alone, err := Open(context.Background(), s.Context())
	if err != nil {
		return err
	}
	err = errors.Join(AllReduce(alone[0], s, b, b, Sum), alone[0].Wait(context.Background(), s), alone.Shutdown(context.Background()))
	say("works", strings.ReplaceAll(fmt.Sprint(err), "\n", " "))
	return err
}
