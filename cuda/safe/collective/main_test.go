//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Test setup: the choice of driver and of NCCL, shared helpers.

package collective

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests run on a simulated driver with a double of NCCL, or with CUDABIND_REQUIRE_GPU=1
// on the machine's driver and NCCL. CUDABIND_SIM and CUDABIND_NCCL_DOUBLE are files that a
// parent process has built, for tests in a process of their own.
var onGPU = os.Getenv("CUDABIND_REQUIRE_GPU") != ""

const noLibrary = "none"

func TestMain(m *testing.M) {
	code, err := setUp(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func setUp(m *testing.M) (int, error) {
	if onGPU {
		return drivertest.Run(m), nil
	}
	dir, err := os.MkdirTemp("", "collective")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if _, err := double.Driver(dir); err != nil {
		return 0, err
	}
	library := os.Getenv("CUDABIND_NCCL_DOUBLE")
	if library == "" {
		if library, err = buildDouble(dir); err != nil {
			return 0, err
		}
		os.Setenv("CUDABIND_NCCL_DOUBLE", library)
	}
	if library == noLibrary {
		return drivertest.Run(m), nil
	}
	if told, err = newControl(filepath.Join(dir, "control")); err != nil {
		return 0, err
	}
	if err := nccl.Open(library); err != nil {
		return 0, err
	}
	code := drivertest.Run(m)
	return code, leftOver()
}

// buildDouble compiles the double of NCCL.
func buildDouble(dir string, more ...string) (string, error) {
	file := filepath.Join(dir, "libnccl.so.2")
	out, err := command.CC(append(more, "-shared", "-fPIC", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-Wl,-soname=libnccl.so.2",
		"-o", file, "testdata/nccl/nccl.c", "-ldl")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the double of NCCL: %w\n%s", err, out)
	}
	return file, nil
}

// leftOver returns an error if communicators are left, or a rule of NCCL was broken.
func leftOver() error {
	for end := time.Now().Add(time.Minute); told.get(&told.Live) != 0; time.Sleep(time.Millisecond) {
		runtime.GC() // which finds those that a test has dropped
		if time.Now().After(end) {
			return fmt.Errorf("%d communicators are left", told.Live)
		}
	}
	if told.Overlapped != 0 {
		return errors.New("two calls on one communicator at once")
	}
	if told.Polled != 0 {
		return errors.New("a non-blocking communicator")
	}
	if told.Strict != 0 {
		return fmt.Errorf("%d communicators were released in another capture mode than RELAXED", told.Strict)
	}
	if told.Stale+told.Used+told.Freed != 0 {
		return fmt.Errorf("registrations: %d ended twice or too late, %d before operations on their memory, %d after their memory was freed",
			told.Stale, told.Used, told.Freed)
	}
	return nil
}

// open opens the devices, at most limit.
func open(t testing.TB, limit int) []*safe.Context {
	t.Helper()
	devices, err := safe.Devices()
	require.NoError(t, err)
	var all []*safe.Context
	for _, d := range devices[:min(limit, len(devices))] {
		x, err := safe.Open(d.Ordinal())
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, x.Close()) })
		all = append(all, x)
	}
	return all
}

// a world is communicators of all devices with a stream each.
type world struct {
	comms    Comms
	contexts []*safe.Context
	streams  []*safe.Stream
}

// newWorld makes communicators of up to two devices.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{contexts: open(t, 2)}
	for _, x := range w.contexts {
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		w.streams = append(w.streams, s)
	}
	var err error
	w.comms, err = Open(soon(t), w.contexts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.comms.Close()) })
	return w
}

// soon ends after what no test takes.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// wait waits for all streams.
func (w *world) wait(t testing.TB) {
	t.Helper()
	for i, c := range w.comms {
		require.NoError(t, c.Wait(soon(t), w.streams[i]))
	}
}

// each calls f for each rank, in one group.
func (w *world) each(f func(c *Comm, s *safe.Stream, i int) error) error {
	return Group(func(g *Calls) error {
		for i, c := range w.comms {
			if err := f(c.In(g), w.streams[i], i); err != nil {
				return err
			}
		}
		return nil
	})
}

// filled makes a buffer of n values f(i) on each device.
func filled[T any](t testing.TB, w *world, n int, f func(rank, i int) T) []*safe.Buffer[T] {
	t.Helper()
	var all []*safe.Buffer[T]
	for r, x := range w.contexts {
		values := make([]T, n)
		for i := range values {
			values[i] = f(r, i)
		}
		b, err := safe.Upload(x, values)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, b.Close()) })
		all = append(all, b)
	}
	return all
}

func contents[T any](t testing.TB, b *safe.Buffer[T]) []T {
	t.Helper()
	values := make([]T, b.Len())
	require.NoError(t, b.CopyToHost(values))
	return values
}
