//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/collective"
	"github.com/cudabind/cudabind/cuda/safe/compile"
	"github.com/cudabind/cudabind/examples/internal/ranks"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/cudabind/cudabind/internal/loopback"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests run on a simulated driver with doubles of the libraries, which are loops on the host,
// or with CUDABIND_REQUIRE_GPU=1 on the machine's GPUs with its libraries.
var onGPU = os.Getenv("CUDABIND_REQUIRE_GPU") != ""

// Variables for the test binary as another process.
const (
	asProgram      = "TRAIN_TEST_STEPS" // to be the program, with this as the value of -steps
	withoutDoubles = "TRAIN_TEST_WITHOUT_DOUBLES"
)

// control tells what the simulated driver holds.
var control sim.Control

func TestMain(m *testing.M) {
	if steps, err := strconv.Atoi(os.Getenv(asProgram)); err == nil {
		if err := run(context.Background(), options{steps, points, 1, os.DevNull}, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(withoutDoubles) != "" {
		os.Exit(m.Run())
	}
	os.Exit(sim.Main(m, KernelsDoubles{Softmax: softmax, Descend: descend},
		double.Library{Name: "cublas", Open: cublas.Open},
		double.Library{Name: "cublaslt", Open: cublaslt.Open},
		double.Library{Name: "nccl", Open: nccl.Open}))
}

// softmax and descend are the kernels of kernels.cu for the simulated driver.
func softmax(_ sim.Grid, scores []float32, labels []int32, delta, loss []float32, points int32) {
	n := float32(points)
	for i, label := range labels[:points] {
		score := scores[i*arms:][:arms]
		most, sum := max(score[0], score[1], score[2]), float32(0)
		for _, v := range score {
			sum += float32(math.Exp(float64(v - most)))
		}
		for arm, v := range score {
			delta[i*arms+arm] = float32(math.Exp(float64(v-most))) / sum / n
		}
		delta[i*arms+int(label)] -= 1 / n
		loss[0] += (float32(math.Log(float64(sum))) + most - score[label]) / n
	}
}

func descend(_ sim.Grid, parameters, gradient, velocity []float32, n int32, rate, momentum float32, losses []float32, step []int32) {
	for i := range n {
		velocity[i] = momentum*velocity[i] + gradient[i]
		parameters[i] -= rate * velocity[i]
	}
	losses[step[0]], gradient[n] = gradient[n], 0
	step[0]++
}

const points = 96 // in tests on GPUs

// TestAgainstHost: each loss of the network is that of the host model, on one GPU and on two.
func TestAgainstHost(t *testing.T) {
	steps := 20
	if onGPU {
		steps = 100
	}
	model := newHost(points)
	var want []float64
	for range steps {
		want = append(want, model.step())
	}
	for _, gpus := range []int{1, 2} {
		t.Run(fmt.Sprint("GPUs ", gpus), func(t *testing.T) {
			needs(t, gpus)
			leavesNothing(t)
			var out strings.Builder
			o := options{steps, points, gpus, filepath.Join(t.TempDir(), "loss.png")}
			all := connected(t, gpus)
			losses, err := trainAll(t.Context(), all, o, &out)
			require.NoError(t, err)
			worst := 0.0
			for i, loss := range losses {
				worst = max(worst, math.Abs(float64(loss)-want[i]))
			}
			t.Logf("%sthe largest difference is %.2g", out.String(), worst)
			assert.Less(t, worst, 1e-4)
			assert.Contains(t, out.String(), fmt.Sprintf("\rstep %d of %d, loss %.4f\n", steps, steps, losses[steps-1]))
			assert.Regexp(t, fmt.Sprintf(`\nGPUs: %d, ms per step: \d+\.\d{4}, final loss: %.6f\n$`, gpus, losses[steps-1]), out.String())
		})
	}
}

// needs skips a test where there are fewer GPUs, or no NCCL for several.
func needs(t *testing.T, gpus int) {
	t.Helper()
	devices, err := safe.Devices()
	require.NoError(t, err)
	if len(devices) < gpus {
		t.Skipf("needs %d GPUs", gpus)
	}
	if _, _, err := nccl.Library(); err != nil && gpus > 1 {
		t.Skip(err)
	}
}

// connected are ranks on so many GPUs, which the end of the test closes.
func connected(t *testing.T, gpus int) ranks.Ranks {
	all, err := ranks.Connect(t.Context(), gpus)
	t.Cleanup(func() { assert.NoError(t, all.Close()) })
	require.NoError(t, err)
	return all
}

// leavesNothing checks at the end of a test that it has left nothing on the simulated driver.
func leavesNothing(t *testing.T) {
	if onGPU {
		return
	}
	before := control.Live("")
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { runtime.GC(); return control.Live("") <= before }, time.Minute, 10*time.Millisecond, "%s", control.List())
	})
}

// TestProcesses: two processes with the variables of a launcher get the losses of one.
func TestProcesses(t *testing.T) {
	if !onGPU {
		t.Skip("needs two GPUs: the double of NCCL knows one process")
	}
	needs(t, 2)
	address, err := loopback.Address()
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	var processes [2]*exec.Cmd
	var said [2]strings.Builder
	for rank := range processes {
		p := exec.CommandContext(t.Context(), os.Args[0])
		p.Env = append(os.Environ(), asProgram+"=50", "WORLD_SIZE=2", "MASTER_ADDR="+host,
			"MASTER_PORT="+port, fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank))
		p.Stdout, p.Stderr = &said[rank], &said[rank]
		require.NoError(t, p.Start())
		processes[rank] = p
	}
	for rank, p := range processes {
		assert.NoError(t, p.Wait(), "%s", &said[rank])
	}
	model, want := newHost(points), 0.0
	for range 50 {
		want = model.step()
	}
	_, got, found := strings.Cut(said[0].String(), "final loss: ")
	require.True(t, found, said[0].String())
	loss, err := strconv.ParseFloat(strings.TrimSpace(got), 64)
	require.NoError(t, err)
	assert.InDelta(t, want, loss, 1e-4)
	assert.Empty(t, said[1].String())
}

// TestRun writes the plot, also for a launcher's only process.
func TestRun(t *testing.T) {
	leavesNothing(t)
	t.Setenv("RANK", "0")
	t.Setenv("WORLD_SIZE", "1")
	t.Setenv("LOCAL_RANK", "0")
	file := filepath.Join(t.TempDir(), "loss.png")
	require.NoError(t, run(t.Context(), options{3, points, 1, file}, new(strings.Builder)))
	assert.FileExists(t, file)
}

func TestRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "loss.png")
	launched := map[string]string{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
	for _, c := range []struct {
		name string
		o    options
		env  map[string]string
		says string
	}{
		{"no steps", options{0, 6, 1, file}, nil, "-steps, -points and -gpus must be at least 1"},
		{"no GPU", options{1, 6, -1, file}, nil, "-steps, -points and -gpus must be at least 1"},
		{"too many GPUs", options{1, 1000, 1000, file}, nil, ": CUDA_ERROR_INVALID_DEVICE"},
		{"odd points", options{1, 7, 2, file}, nil, "-points 7 is no multiple of the number of GPUs, 2"},
		{"GPUs and a launcher", options{1, 6, 2, file}, launched, "a launcher has started 2 processes for a GPU each: leave out -gpus"},
		{"launcher without size", options{1, 6, 1, file}, map[string]string{"RANK": "1"}, "WORLD_SIZE"},
		{"no folder", options{1, 6, 1, file}, nil, "no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			if c.env == nil && c.o.gpus == 2 {
				needs(t, 2)
			}
			assert.ErrorContains(t, run(t.Context(), c.o, new(strings.Builder)), c.says)
		})
	}
}

// TestCancelled: when the context ends, the training does.
func TestCancelled(t *testing.T) {
	for _, gpus := range []int{1, 2} {
		t.Run(fmt.Sprint("GPUs ", gpus), func(t *testing.T) {
			needs(t, gpus)
			ctx, cancel := context.WithCancel(t.Context())
			w := writer(func(p []byte) { cancel() }) // at the first line
			o := options{1000, points, gpus, filepath.Join(t.TempDir(), "loss.png")}
			err := run(ctx, o, w)
			assert.ErrorIs(t, err, context.Canceled)
			assert.NoFileExists(t, o.file)
		})
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// TestLost: if one rank fails, the others do not wait for it.
func TestLost(t *testing.T) {
	needs(t, 2)
	o := options{10, points, 2, ""}
	all := connected(t, 2)
	lost := &ranks.Rank{Number: 1, Of: 2, Context: new(safe.Context), Comm: all[1].Comm} // cannot train without a GPU
	_, err := trainAll(t.Context(), ranks.Ranks{all[0], lost}, o, new(strings.Builder))
	assert.ErrorContains(t, err, "rank 1: ")
	assert.ErrorIs(t, err, safe.ErrClosed)
	assert.NotErrorIs(t, err, collective.ErrAborted, "the cause, not what came of it")
}

// TestSource compiles the kernels by NVIDIA's compiler.
func TestSource(t *testing.T) {
	if !onGPU && os.Getenv(withoutDoubles) == "" { // NVRTC is a double in this process
		cmd := command.Built(os.Args[0], "-test.run=^TestSource$", "-test.v")
		cmd.Env = append(os.Environ(), withoutDoubles+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if strings.Contains(string(out), "--- SKIP") {
			t.Skip(string(out))
		}
		return
	}
	if _, _, err := nvrtc.Library(); err != nil {
		if err := nvrtc.Open("../../.cache/libnvrtc/13.5"); err != nil { // where make libraries puts it
			t.Skip(err)
		}
	}
	source, err := kernelsFiles.ReadFile("kernels.cu")
	require.NoError(t, err)
	for _, arch := range []string{"sm_75", "sm_90"} {
		image, err := compile.Compile(t.Context(), string(source), compile.Options{Arch: arch, Defines: map[string]string{"ARMS": "3"}, CacheFolder: t.TempDir()})
		require.NoError(t, err, arch)
		assert.Equal(t, "\x7fELF", string(image.Code[:4]), arch)
	}
}
