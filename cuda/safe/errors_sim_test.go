//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package safe_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimOtherDrivers runs all other tests on drivers that lack functions, and
// that want the context to be current for every call, and on one that has more. With the race
// detector, which takes three times as long, it does so on the driver that lacks most.
func TestSimOtherDrivers(t *testing.T) {
	needsSimulated(t)
	if testing.Short() {
		t.Skip("it runs all tests three times")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	versions := []string{"11.8", "12.4", sim.Newest}
	if drivertest.WithRace() {
		versions = versions[:1]
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cmd := command.Built(self, "-test.v", "-test.short", "-test.timeout=10m")
			cmd.Env = append(os.Environ(), "CUDABIND_SIM=", "CUDABIND_SIM_DRIVER="+version, "CUDABIND_STORM=10ms")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", failures(string(out)))
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "--- SKIP") {
					t.Log(strings.TrimRight(line, "\n"))
				}
			}
			n := strings.Count(string(out), "--- PASS: ")
			t.Logf("%d tests passed", n)
			assert.Greater(t, n, 100)
		})
	}
}

// failures returns the failed part of what tests have printed with -test.v: what each test
// that failed or did not end has printed, and what belongs to no test. The names of these tests
// come last, since logs may be cut to their end.
func failures(out string) string {
	printed, names := map[string]string{}, []string(nil)
	test := ""
	for line := range strings.Lines(out) {
		switch f := strings.Fields(line); {
		case len(f) == 3 && f[0] == "===": // RUN, PAUSE, CONT or NAME
			test = f[2]
			printed[test] += ""
		case len(f) == 4 && f[0] == "---":
			if test = ""; f[1] == "FAIL:" {
				names = append(names, f[2])
			} else {
				delete(printed, f[2])
			}
		default:
			printed[test] += line
		}
	}
	for _, name := range slices.Sorted(maps.Keys(printed)) {
		if name != "" && !slices.Contains(names, name) { // it did not end
			names = append(names, name)
		}
	}
	var text strings.Builder
	for _, name := range names {
		text.WriteString("--- FAIL: " + name + "\n" + ends(printed[name]))
	}
	return text.String() + ends(printed[""]) + "failed: " + strings.Join(names, ", ")
}

// ends returns the first and the last lines of a text.
func ends(text string) string {
	const most = 150 // the stacks of a test that hangs are long
	lines := strings.SplitAfter(text, "\n")
	if len(lines) > 2*most {
		lines = slices.Concat(lines[:most], []string{"...\n"}, lines[len(lines)-most:])
	}
	return strings.Join(lines, "")
}

func TestFailures(t *testing.T) {
	for name, test := range map[string]struct{ out, want string }{
		"subtests": {
			"=== RUN   A\n=== RUN   A/b\n    said by b\n=== RUN   A/c\n    said by c\n=== NAME  A\n    said by A\n" +
				"--- FAIL: A (0.10s)\n    --- FAIL: A/b (0.05s)\n    --- PASS: A/c (0.05s)\n=== RUN   D\n    said by D\n--- SKIP: D (0.00s)\nFAIL\n",
			"--- FAIL: A\n    said by A\n--- FAIL: A/b\n    said by b\nFAIL\nfailed: A, A/b",
		},
		"panic": {
			"=== RUN   A\n--- PASS: A (0.10s)\n=== RUN   B\n    said by B\npanic: B hangs\n\ngoroutine 1:\n",
			"--- FAIL: B\n    said by B\npanic: B hangs\n\ngoroutine 1:\nfailed: B",
		},
		"leftover": {"=== RUN   A\n--- PASS: A (0.10s)\nPASS\n2 objects are alive\n", "PASS\n2 objects are alive\nfailed: "},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, failures(test.out)) })
	}
}

// TestNoDriver: where there is nothing to load, the error says what was looked for.
func TestNoDriver(t *testing.T) {
	needsSimulated(t)
	drivertest.InChild(t, func(t *testing.T) {
		_, err := safe.Open(0)
		if err == nil {
			t.Skip("this machine has a driver and a GPU")
		}
		var e *safe.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "Open", e.Op)
		var missing *driver.LibraryError
		if errors.Is(err, driver.CUDA_ERROR_NO_DEVICE) {
			t.Skip("this machine has a driver")
		}
		require.ErrorAs(t, err, &missing)
		assert.ErrorContains(t, err, libraryName)
		_, err = safe.Devices()
		assert.ErrorAs(t, err, &missing)
	}, "CUDABIND_SIM="+noDriver)
}

// TestNoDevice: a driver without a GPU.
func TestNoDevice(t *testing.T) {
	needsSimulated(t)
	drivertest.InChild(t, func(t *testing.T) {
		_, err := safe.Devices()
		assert.ErrorIs(t, err, driver.CUDA_ERROR_NO_DEVICE)
		_, err = safe.Open(0)
		assert.ErrorIs(t, err, driver.CUDA_ERROR_NO_DEVICE)
	}, "CUDABIND_SIM_DEVICES=0")
}

// TestSimOutOfMemory: before an allocation fails, what was dropped is collected.
func TestSimOutOfMemory(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	p, err := x.Device().Properties()
	require.NoError(t, err)
	most := int(p.TotalMemory/4*3) &^ 0xff
	s := stream(t, x)
	for range 3 {
		b, err := safe.NewBuffer[byte](x, most) // the one before it was dropped
		require.NoError(t, err)
		part, err := b.Slice(0, 1) // zeroing all takes minutes on an emulator
		require.NoError(t, err)
		require.NoError(t, part.FillAsync(s, 0))
	}
	b, err := safe.NewBufferAsync[byte](s, most)
	require.NoError(t, err)
	_, err = safe.NewBuffer[byte](x, most)
	assert.ErrorIs(t, err, driver.CUDA_ERROR_OUT_OF_MEMORY)
	require.NoError(t, b.Close())
}

// TestSimManyGoroutines does random things from 1,000 goroutines.
func TestSimManyGoroutines(t *testing.T) {
	needsSimulated(t)
	const goroutines, rounds, n = 1000, 8, 64
	w := crowd{n: n}
	for i := range 2 {
		w.contexts = append(w.contexts, open(t, i))
		w.streams = append(w.streams, stream(t, w.contexts[i]))
		w.fills = append(w.fills, kernel(t, w.contexts[i], "fill"))
	}
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(g)))
			for range rounds {
				if err := w.round(r); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	all.Wait()
	assert.Empty(t, simulated.Violation())
}

// crowd is what many goroutines use at once.
type crowd struct {
	n        int
	contexts []*safe.Context
	streams  []*safe.Stream
	fills    []*safe.Kernel
}

// round fills a buffer by one of several ways, moves it by another, and checks
// what arrives. Some of what it makes is closed and some dropped.
func (w *crowd) round(r *rand.Rand) error {
	i, v := r.IntN(2), float32(r.IntN(1000))
	x, s := w.contexts[i], w.streams[i]
	b, err := w.buffer(r, x, s)
	if err != nil {
		return err
	}
	values := make([]float32, w.n)
	for k := range values {
		values[k] = v
	}
	switch r.IntN(3) {
	case 0:
		err = w.fills[i].Launch(s, perValue(w.n), safe.Val(uint32(w.n)), safe.Val(v), b.Arg())
	case 1:
		err = b.FillAsync(s, v)
	case 2:
		err = b.CopyFromHost(values)
	}
	if err != nil {
		return err
	}
	from := b
	if r.IntN(2) == 0 { // by way of the other device
		if from, err = w.buffer(r, w.contexts[1-i], w.streams[1-i]); err != nil {
			return err
		}
		if err := from.CopyFrom(b); err != nil {
			return err
		}
	}
	got := make([]float32, w.n)
	if err := from.CopyToHost(got); err != nil {
		return err
	}
	if k := r.IntN(w.n); got[k] != v {
		return wrongValue{got[k], v}
	}
	if r.IntN(2) == 0 {
		return b.Close()
	}
	return nil
}

func (w *crowd) buffer(r *rand.Rand, x *safe.Context, s *safe.Stream) (*safe.Buffer[float32], error) {
	if r.IntN(2) == 0 {
		return safe.NewBuffer[float32](x, w.n)
	}
	return safe.NewBufferAsync[float32](s, w.n)
}

// TestSimPeerCopyFails: a copy between devices returns the error of its wait.
func TestSimPeerCopyFails(t *testing.T) {
	needsSimulated(t)
	x, y := open(t, 0), second(t)
	a, b := buffer[int32](t, x, 4), buffer[int32](t, y, 4)
	simulated.Fail("cuStreamSynchronize", 1, uint32(driver.CUDA_ERROR_UNKNOWN))
	err := a.CopyFrom(b)
	simulated.Reset()
	assert.ErrorIs(t, err, driver.CUDA_ERROR_UNKNOWN)
}

// TestSimRefusedCopies: a synchronous copy that is refused keeps no event, however much work uses its memory.
func TestSimRefusedCopies(t *testing.T) {
	needsSimulated(t)
	x := open(t, 0)
	s, other, a, b := stream(t, x), stream(t, x), buffer[int32](t, x, 4), buffer[int32](t, x, 4)
	absent, _, err := safe.AddAlloc[int32](newGraph(t, x), 4)
	require.NoError(t, err)
	stick(t, x, s)
	require.NoError(t, a.FillAsync(s, 0))
	g, err := other.Capture(func() error {
		require.NoError(t, b.FillAsync(other, 0))
		for _, c := range []struct {
			src  *safe.Buffer[int32]
			want error
		}{{absent, safe.ErrNotAllocated}, {b, safe.ErrCapturing}} {
			assert.ErrorIs(t, a.CopyFrom(c.src), c.want)
			events := simulated.Live("event")
			for range 20 {
				assert.ErrorIs(t, a.CopyFrom(c.src), c.want)
			}
			assert.Equal(t, events, simulated.Live("event"), c.want)
		}
		return nil
	})
	require.NoError(t, err)
	closing(t, g)
}
