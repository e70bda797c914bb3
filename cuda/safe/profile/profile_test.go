//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package profile

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/trace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/internal/admit"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
)

// TestRecording: goroutines with ranges inside of each other; each piece of work has its call and its range.
func TestRecording(t *testing.T) {
	needsDouble(t)
	for range 2 { // also a second time
		r := start(t, Options{})
		var wg, both sync.WaitGroup
		both.Add(2)
		for g := range 2 {
			wg.Go(func() {
				outer := Begin(t.Context(), "outer")
				NameThread(fmt.Sprint("worker ", g))
				both.Done()
				both.Wait() // so they are on two threads
				for range 3 {
					inner := Begin(t.Context(), "inner")
					work(doubleKernel, 7)
					inner.End()
				}
				work(doubleCopy, 8)
				outer.End()
			})
		}
		wg.Wait()
		work(doubleFill, 8)
		work(doubleGraph, 7)
		work(doubleQuery, 7)
		tl := stop(t, r)
		again, err := r.Stop()
		require.NoError(t, err)
		assert.Same(t, tl, again)
		assert.Equal(t, 1, enabled(), "after Stop, nothing is recorded, and CUPTI is attached")
		require.NoError(t, Detach())
		require.NoError(t, Detach(), "there is nothing to detach")
		assert.Zero(t, enabled())

		require.Len(t, tl.Work, 11)
		require.Len(t, tl.Calls, 10)
		require.Len(t, tl.Ranges, 8)
		assert.Zero(t, tl.Lost)
		by := map[string]int{}
		for _, w := range tl.Work {
			name := "none"
			if w.Range >= 0 {
				name = tl.Ranges[w.Range].Name
			}
			by[w.Name+" in "+name]++
			assert.InDelta(t, 10*time.Microsecond, w.End-w.Start, 20)
			assert.GreaterOrEqual(t, w.Start, time.Duration(0))
			assert.LessOrEqual(t, w.End, tl.Duration+time.Millisecond)
			require.GreaterOrEqual(t, w.Call, 0)
			assert.InDelta(t, 20*time.Microsecond+time.Duration(w.Node/2)*5*time.Microsecond, w.Start-tl.Calls[w.Call].Start, 2000)
			if w.Kind == Kernel {
				assert.Equal(t, []any{"_Z6kernelIfEvPT_i", [3]int32{7, 1, 1}, [3]int32{256, 1, 1}, 32}, []any{w.Symbol, w.Grid, w.Block, w.Registers})
			}
		}
		assert.Equal(t, map[string]int{"kernel<float> in inner": 6, "HtoD in outer": 2, "fill in none": 1, "kernel<float> in none": 2}, by)
		launches := tl.launches()
		require.Len(t, launches, 1)
		assert.Equal(t, 2, launches[0].nodes)
		assert.InDelta(t, 15*time.Microsecond, launches[0].end-launches[0].start, 20)

		arrows, graphs, names := 0, 0, map[string]bool{}
		for _, e := range written(t, tl) {
			if e.Ph == "s" {
				arrows++
			}
			if e.Cat == "graph" {
				graphs++
				assert.InDelta(t, 15, *e.Dur, 0.02)
			}
			if e.Name == "thread_name" {
				names[e.Args["name"].(string)] = true
			}
		}
		assert.Equal(t, 10, arrows)
		assert.Equal(t, 1, graphs)
		assert.Contains(t, names, "worker 0")
		assert.Contains(t, names, "stream 7")
		host, device := tl.RangeStats()
		assert.Len(t, host, 2)
		assert.Equal(t, []int{8, 6}, []int{device[0].Count, device[1].Count})
		var b bytes.Buffer
		require.NoError(t, tl.WriteSummary(&b))
		for _, text := range []string{"GPU 0: busy", "the longest gap", "kernels\n", "kernel<float>", "launches of graphs", "copies", "HtoD", "  100  HtoD", "fills", "calls", "cuLaunchKernel", "work enqueued in them"} {
			assert.Contains(t, b.String(), text)
		}
	}
}

// TestStopDuringCall: the end of a recording waits for a call that is writing its record, and has that. A flush in the
// meantime could crash the call.
func TestStopDuringCall(t *testing.T) {
	needsDouble(t)
	early := ask(cuptiDouble.early)
	r := start(t, Options{})
	var call sync.WaitGroup
	call.Go(func() { work(doubleSlow, 7) })
	require.Eventually(t, func() bool { return ask(cuptiDouble.calls) > 0 }, time.Minute, time.Millisecond)
	tl := stop(t, r)
	call.Wait()
	require.Len(t, tl.Calls, 1)
	assert.Greater(t, tl.Calls[0].End, tl.Calls[0].Start)
	assert.Equal(t, early, ask(cuptiDouble.early), "flushes while calls may write records")
	assert.Zero(t, tl.Lost)
}

// TestLimit: records over the limit are counted, and so are those for which CUPTI finds no buffer.
func TestLimit(t *testing.T) {
	needsDouble(t)
	r := start(t, Options{Limit: 5})
	for range 4 {
		work(doubleKernel, 1)
	}
	tl := stop(t, r)
	assert.Equal(t, 5, len(tl.Work)+len(tl.Calls))
	assert.Equal(t, 3, tl.Lost)
	_, err := Start(Options{Limit: -1})
	assert.Error(t, err)
}

// TestBusy: one recording at a time, and none beside another profiler.
func TestBusy(t *testing.T) {
	needsDouble(t)
	r := start(t, Options{})
	_, err := Start(Options{})
	assert.ErrorIs(t, err, ErrBusy)
	assert.ErrorIs(t, Detach(), ErrBusy)
	stop(t, r)
	require.NoError(t, Detach())
	tell(t, cuptiDouble.other, 1)
	_, err = Start(Options{})
	assert.ErrorIs(t, err, ErrBusy)
	assert.ErrorIs(t, err, cupti.CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
	assert.Zero(t, enabled())
}

// TestRefused: a Start that fails in the middle leaves nothing behind.
func TestRefused(t *testing.T) {
	needsDouble(t)
	tell(t, cuptiDouble.refuse, doubleFill)
	_, err := Start(Options{})
	assert.ErrorIs(t, err, cupti.CUPTI_ERROR_INVALID_KIND)
	assert.ErrorContains(t, err, "MEMSET")
	require.NoError(t, Detach())
	assert.Zero(t, enabled())
	tell(t, cuptiDouble.refuse, 0)
	stop(t, start(t, Options{}))
}

// TestNoOverhead: records of overhead come with memory that nothing would free, so they are left out.
func TestNoOverhead(t *testing.T) {
	needsDouble(t)
	tell(t, cuptiDouble.refuse, int(cupti.CUPTI_ACTIVITY_KIND_OVERHEAD))
	stop(t, start(t, Options{}))
}

// TestAllCalls: calls that enqueue nothing are recorded if all are.
func TestAllCalls(t *testing.T) {
	needsDouble(t)
	for all, want := range map[bool]int{false: 1, true: 2} {
		r := start(t, Options{AllCalls: all})
		work(doubleKernel, 1)
		work(doubleQuery, 1)
		assert.Len(t, stop(t, r).Calls, want)
	}
}

// TestMissing: without CUPTI, the error says that it would not work with the simulated driver, and ranges work.
func TestMissing(t *testing.T) {
	needsDouble(t)
	drivertest.InChild(t, func(t *testing.T) {
		require.Error(t, cupti.Open(t.TempDir()))
		_, err := Start(Options{})
		var missing *cupti.LibraryError
		require.ErrorAs(t, err, &missing)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.EqualError(t, err, "cuda: profile.Start: NVIDIA's libraries need a GPU, and do not work with the simulated driver: see Limits in docs/testing.md")
		Begin(t.Context(), "range").End()
		w := httptest.NewRecorder()
		Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.Equal(t, http.StatusNotImplemented, w.Code)
	}, "CUDABIND_TEST_NO_CUPTI=1")
}

// TestSimulated: NVIDIA's CUPTI, which make libraries fetches, does not start with the simulated driver, and the error says so.
func TestSimulated(t *testing.T) {
	needsDouble(t)
	drivertest.InChild(t, func(t *testing.T) {
		if err := cupti.Open("../../../.cache/libcupti/13.5"); err != nil {
			t.Skip(err)
		}
		_, err := Start(Options{})
		require.ErrorIs(t, err, cupti.CUPTI_ERROR_UNKNOWN)
		require.ErrorContains(t, err, "cuda: profile.Start: NVIDIA's libraries need a GPU, and do not work with the simulated driver")
	}, "CUDABIND_TEST_NO_CUPTI=1")
}

// TestNone: a recording that is none has an error.
func TestNone(t *testing.T) {
	var none *Recording
	_, err := none.Stop()
	assert.Error(t, err)
	_, err = new(Recording).Stop()
	assert.Error(t, err)
	Range{}.End()
	assert.ErrorIs(t, NameStream(nil, "x"), safe.ErrClosed)
}

// TestWaits: waits of package safe are recorded, in the range that has the thread.
func TestWaits(t *testing.T) {
	_, s := open(t)
	require.NoError(t, NameStream(s, "early"))
	r := start(t, Options{})
	var most []time.Duration // that a wait can have taken
	wait := func() {
		begun := make(chan struct{})
		_, err := s.LaunchHostFunc(func() { <-begun; time.Sleep(20 * time.Millisecond) })
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, s.Wait(&asked{Context: t.Context(), begun: begun}))
		most = append(most, time.Since(start)+time.Millisecond)
	}
	inside := Begin(t.Context(), "inside")
	wait()
	inside.End()
	wait()
	tl := stop(t, r)
	require.Len(t, tl.Waits, 2)
	for i, want := range []int{0, -1} {
		assert.Equal(t, "Stream.Wait", tl.Waits[i].Name)
		assert.Equal(t, want, tl.Waits[i].Range)
		took := tl.Waits[i].End - tl.Waits[i].Start
		assert.Greater(t, took, 5*time.Millisecond)
		assert.Less(t, took, most[i])
	}
	written(t, tl)
	assert.Len(t, tl.streams, 1, "the name of a stream from before")
	_, err := s.LaunchHostFunc(func() {})
	require.NoError(t, errors.Join(err, s.Wait(t.Context())))
	assert.Len(t, tl.Waits, 2, "nothing is recorded after Stop")
	assert.Nil(t, admit.OnWait.Load(), "waits cost nothing after Stop")
	runtime.KeepAlive(s)
}

// asked is a context that tells when a wait first asks for its end, which is once the wait counts as begun.
type asked struct {
	context.Context
	once  sync.Once
	begun chan struct{}
}

func (a *asked) Done() <-chan struct{} {
	a.once.Do(func() { close(a.begun) })
	return a.Context.Done()
}

// TestStaleRange: a range that ends after its recording belongs to no other.
func TestStaleRange(t *testing.T) {
	needsDouble(t)
	r := start(t, Options{})
	old := Begin(t.Context(), "old")
	tl := stop(t, r)
	r = start(t, Options{})
	old.End()
	assert.Empty(t, stop(t, r).Ranges)
	assert.Empty(t, tl.Ranges)
}

// TestRuntimeTrace: runtime/trace gets ranges as regions and tasks, during a recording and without one.
func TestRuntimeTrace(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, trace.Start(&b))
	ctx, task := BeginTask(t.Context(), "the task")
	assert.NotEqual(t, t.Context(), ctx)
	Begin(ctx, "the region").End()
	task.End()
	var none context.Context
	Begin(none, "no context").End()
	_, task = BeginTask(none, "no context")
	task.End()
	if !onGPU {
		r := start(t, Options{})
		_, second := BeginTask(ctx, "recorded task")
		second.End()
		assert.Len(t, stop(t, r).Ranges, 1)
	}
	trace.Stop()
	for _, name := range []string{"the task", "the region"} {
		assert.Contains(t, b.String(), name)
	}
	same, off := BeginTask(ctx, "off")
	off.End()
	assert.Equal(t, ctx, same)
}

// TestTool: a tool that was there when the program started gets ranges and names.
func TestTool(t *testing.T) {
	var env []string
	if drivertest.InParent() {
		if _, err := os.Stat("../../internal/nvtx/testdata/tool.c"); err != nil {
			t.Skip("needs the source of the tool")
		}
		tool, told := filepath.Join(t.TempDir(), "tool.so"), filepath.Join(t.TempDir(), "told")
		out, err := command.CC("-shared", "-fPIC", "-o", tool, "../../internal/nvtx/testdata/tool.c").CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("needs a C compiler")
		}
		require.NoError(t, err, "%s", out)
		env = []string{"NVTX_INJECTION64_PATH=" + tool, "NVTX_TOOL_OUT=" + told}
	}
	drivertest.InChild(t, func(t *testing.T) {
		_, s := open(t)
		r := Begin(t.Context(), "range")
		require.NoError(t, NameStream(s, "stream"))
		NameThread("thread")
		r.End()
		told, err := os.ReadFile(os.Getenv("NVTX_TOOL_OUT"))
		require.NoError(t, err)
		for _, text := range []string{"push 1 range", " stream\n", " thread\n", "pop 1"} {
			require.Contains(t, string(told), text)
		}
	}, env...)
}

func TestRangeOff(t *testing.T) {
	ctx := context.Background()
	assert.Zero(t, testing.AllocsPerRun(100, func() { Begin(ctx, "x").End() }))
}

func BenchmarkRangeOff(b *testing.B) {
	ctx := context.Background()
	for b.Loop() {
		Begin(ctx, "x").End()
	}
}

func TestHandler(t *testing.T) {
	needsDouble(t)
	server := httptest.NewServer(Handler())
	defer server.Close()
	get := func(query string) (int, string, http.Header) {
		resp, err := http.Get(server.URL + "/debug/cuda/trace?" + query)
		require.NoError(t, err)
		defer resp.Body.Close()
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, b.String(), resp.Header
	}
	r := start(t, Options{})
	code, _, _ := get("seconds=0.01")
	assert.Equal(t, http.StatusConflict, code, "a second one")
	stop(t, r)
	const kernel = `"kernel\u003cfloat\u003e"`
	var text string
	var header http.Header
	for seconds := 0.5; !strings.Contains(text, kernel) && seconds < 60; seconds *= 4 { // a busy machine may do no work meanwhile
		var worker sync.WaitGroup
		over := make(chan struct{})
		worker.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
					work(doubleKernel, 3)
				}
			}
		})
		code, text, header = get(fmt.Sprint("seconds=", seconds))
		close(over)
		worker.Wait()
		assert.Equal(t, http.StatusOK, code)
	}
	assert.Contains(t, text, kernel)
	assert.Equal(t, "application/json", header.Get("Content-Type"))
	code, text, _ = get("seconds=0.01&format=text")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, text, "recorded")
	for _, bad := range []string{"seconds=0", "seconds=x", "seconds=NaN", "seconds=301", "format=xml"} {
		code, _, _ := get(bad)
		assert.Equal(t, http.StatusBadRequest, code, bad)
	}
}

// tested is the tests of a package.
type tested func() int

func (f tested) Run() int { return f() }

func TestTests(t *testing.T) {
	needsDouble(t)
	args, flags := os.Args, flag.CommandLine
	defer func() { os.Args, flag.CommandLine = args, flags }()
	file := filepath.Join(t.TempDir(), "trace.json")
	for _, row := range []struct {
		name string
		args []string
		code int
		file bool
	}{
		{"without the flag", nil, 3, false},
		{"with it", []string{"-cudaprofile", file}, 3, true},
		{"no such folder", []string{"-cudaprofile", filepath.Join(file, "x")}, 3, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			os.Args, flag.CommandLine = append([]string{"x"}, row.args...), flag.NewFlagSet("x", flag.PanicOnError)
			assert.Equal(t, row.code, Tests(tested(func() int { work(doubleKernel, 2); return 3 })))
			_, err := os.Stat(file)
			assert.Equal(t, row.file, err == nil)
		})
	}
	for _, f := range []string{file, file + ".txt"} {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		assert.Contains(t, strings.ReplaceAll(string(text), `\u003c`, "<"), "kernel<float")
	}
}
