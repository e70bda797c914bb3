//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/cudabind/cudabind/examples/internal/ranks"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests run on a simulated driver with doubles of the kernels and the libraries, which are loops
// on the host, or with CUDABIND_REQUIRE_GPU=1 on the machine's GPUs with its libraries.
var onGPU = os.Getenv("CUDABIND_REQUIRE_GPU") != ""

// control tells what the simulated driver holds.
var control sim.Control

func TestMain(m *testing.M) {
	os.Exit(sim.Main(m, layersDoubles, attentionDoubles, optimizerDoubles, serveDoubles,
		double.Library{Name: "cublas", Open: cublas.Open},
		double.Library{Name: "cublaslt", Open: cublaslt.Open},
		double.Library{Name: "curand", Open: curand.Open},
		double.Library{Name: "nccl", Open: nccl.Open}))
}

var tiny = shape{Layers: 1, Channels: 128, Context: 64}

// sample text from which a tiny model can learn something.
var lines = []byte(strings.Repeat("func main() { fmt.Println(\"hello\") }\n", 40))

func tinyOptions(t *testing.T) options {
	return options{shape: tiny, sequences: 1, steps: 3, rate: 1e-3, seed: 1, gpus: 1, report: 1, save: 2, tests: 1,
		model: filepath.Join(t.TempDir(), "gpt.model"), plot: filepath.Join(t.TempDir(), "gpt.png")}
}

// open returns a rank on the first GPU, which the end of the test closes.
func open(t *testing.T) *ranks.Rank {
	leavesNothing(t)
	x, err := safe.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, errors.Join(x.CloseAll(), x.Close())) })
	return &ranks.Rank{Of: 1, Context: x}
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

// newTraining returns a trainer of a new model.
func newTraining(t *testing.T, r *ranks.Rank, o options) *trainer {
	m, err := newModel(t.Context(), r.Context, o.shape, nil, o.seed)
	require.NoError(t, err)
	c, err := begun(t.Context(), m, header{Shape: o.shape, Recipe: o.recipe(lines, r.Of)})
	require.NoError(t, err)
	tr, err := newTrainer(t.Context(), m, r, lines, c, o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, errors.Join(tr.close(), m.close())) })
	return tr
}

// TestGradients: the loss is that of the host model, and so is how fast it falls in the direction of
// the gradient of each matrix, by differences of the host's losses.
func TestGradients(t *testing.T) {
	o := tinyOptions(t)
	if onGPU {
		o.shape = shape{Layers: 2, Channels: 256, Context: 192}
	}
	tr := newTraining(t, open(t), o)
	require.NoError(t, tr.enqueueGradient())
	require.NoError(t, tr.wait(t.Context()))
	roundedGradient, err := tr.gradient.Download()
	require.NoError(t, err)
	gradient := dtype.Float32s(roundedGradient)
	got, err := tr.loss.Download()
	require.NoError(t, err)
	sequence, err := tr.tokens.Download()
	require.NoError(t, err)
	targets, err := tr.targets.Download()
	require.NoError(t, err)
	exact, err := tr.parameters.Download()
	require.NoError(t, err)
	rounded, err := tr.rounded.Download()
	require.NoError(t, err)
	parameters := make([]float64, len(exact))
	for i := range parameters {
		parameters[i] = float64(rounded[i].Float32())
		if i < o.shape.beforeLayers() { // these are not multiplied
			parameters[i] = float64(exact[i])
		}
	}
	loss := hostLoss(o.shape, parameters, sequence, targets)
	assert.InEpsilon(t, loss, got[0], 2e-3, "the loss")
	at, c := 0, o.shape.Channels
	matrices := []int{tokens * c, o.shape.Context * c}
	for range o.shape.Layers {
		matrices = append(matrices, 3*c*c, c*c, 4*c*c, 4*c*c)
	}
	for i, n := range append(matrices, c*tokens) {
		want := slope(o.shape, parameters, gradient, at, n, sequence, targets)
		length := norm(gradient[at:][:n])
		t.Logf("matrix %d: the loss changes by %.5f along a gradient of length %.5f", i, want, length)
		assert.InEpsilon(t, want, length, 0.02, "matrix %d", i)
		at += n
	}
}

// slope is by how much the host's loss changes along the gradient's direction within a matrix.
func slope(s shape, parameters []float64, gradient []float32, at, n int, sequence, targets []byte) float64 {
	length := norm(gradient[at:][:n])
	const far = 1e-3
	moved := func(by float64) float64 {
		p := append([]float64(nil), parameters...)
		for i := range n {
			p[at+i] += by * float64(gradient[at+i]) / length
		}
		return hostLoss(s, p, sequence, targets)
	}
	return (moved(far) - moved(-far)) / (2 * far)
}

func norm(v []float32) float64 {
	squares := 0.0
	for _, x := range v {
		squares += float64(x) * float64(x)
	}
	return math.Sqrt(squares)
}

// TestStep: a step moves the parameters as AdamW says, by a gradient whose norm is limited.
func TestStep(t *testing.T) {
	o := tinyOptions(t)
	tr := newTraining(t, open(t), o)
	tr.schedule.Norm = 0.5 // the gradient is longer
	before, err := tr.parameters.Download()
	require.NoError(t, err)
	require.NoError(t, tr.enqueueStep())
	require.NoError(t, tr.wait(t.Context()))
	rounded, err := tr.gradient.Download()
	require.NoError(t, err)
	got, err := tr.checkpoint()
	require.NoError(t, err)
	gradient := dtype.Float32s(rounded)
	scale, n := 0.5/norm(gradient), len(gradient)
	want := checkpoint{Parameters: make([]float32, n), First: make([]float32, n), Second: make([]float32, n)}
	for i, v := range gradient {
		g := float64(v) * scale
		want.First[i], want.Second[i] = float32(0.1*g), float32(0.05*g*g)
		want.Parameters[i] = float32(float64(before[i])*(1-0.1*float64(o.rate)) - float64(o.rate)*g/(math.Abs(g)+1e-8))
	}
	isNear(t, want.First, got.First, 1e-5, "the first moment")
	isNear(t, want.Second, got.Second, 1e-5, "the second moment")
	isNear(t, want.Parameters, got.Parameters, 1e-6, "the parameters")
}

// isNear checks that the distance of two vectors is less than a part of their length.
func isNear(t *testing.T, want, got []float32, part float64, what string) {
	difference := slices.Clone(want)
	for i, v := range got {
		difference[i] -= v
	}
	assert.Less(t, norm(difference), part*norm(want), what)
}

// TestLearns: the loss falls, a killed training goes on with the same losses, and the model writes.
func TestLearns(t *testing.T) {
	leavesNothing(t)
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, lines, 0o666))
	o := tinyOptions(t)
	o.text, o.steps, o.drop = text, 4, 26
	var whole strings.Builder
	require.NoError(t, run(t.Context(), o, &whole))
	want, err := readCheckpoint(o.model)
	require.NoError(t, err)
	assert.Less(t, want.Losses[3], want.Losses[0])
	assert.FileExists(t, o.plot)
	assert.Contains(t, whole.String(), "parameters; 1480 bytes of text, from step 0\n")
	assert.Regexp(t, `step 4 of 4, test loss \d\.\d{4}, loss \d\.\d{4}, \d+\.\d\d ms a step, \d+ tokens/s\n$`, whole.String())

	o.model = filepath.Join(t.TempDir(), "gpt.model")
	ctx, cancel := context.WithCancel(t.Context())
	killed := writer(func(line []byte) {
		if strings.HasPrefix(string(line), "step 3") { // saved after step 2
			cancel()
		}
	})
	assert.ErrorIs(t, run(ctx, o, killed), context.Canceled)
	var rest strings.Builder
	require.NoError(t, run(t.Context(), o, &rest))
	assert.Contains(t, rest.String(), "from step 2\n")
	assert.NotContains(t, rest.String(), "will not be those of one run")
	got, err := readCheckpoint(o.model)
	require.NoError(t, err)
	assert.Equal(t, want.Losses, got.Losses)
	assert.Equal(t, want.Parameters, got.Parameters)

	o.steps, o.rate, o.report, o.save = 6, 2e-3, 4, 5
	rest.Reset()
	ctx, cancel = context.WithCancel(t.Context())
	killed = writer(func(line []byte) {
		if rest.Write(line); strings.HasPrefix(string(line), "step 5") {
			cancel()
		}
	})
	assert.ErrorIs(t, run(ctx, o, killed), context.Canceled)
	assert.Contains(t, rest.String(), "the losses will not be those of one run: until now it was {Sequences:1 Steps:4 Dropped:26 GPUs:1 Rate:0.001")
	got, err = readCheckpoint(o.model)
	require.NoError(t, err)
	assert.Equal(t, 5, got.Step, "it is saved when it is time, whenever it reports")

	o.prompt, o.length = "func ", 10
	var written strings.Builder
	require.NoError(t, run(t.Context(), o, &written))
	assert.Regexp(t, `^func (?s:.{10})\n$`, written.String())
}

// TestRanks: two and four GPUs learn as one does.
func TestRanks(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, lines, 0o666))
	o := tinyOptions(t)
	o.text, o.sequences, o.steps = text, 2, 2
	if onGPU {
		o.shape, o.sequences, o.steps = shape{Layers: 2, Channels: 256, Context: 128}, 4, 50
	}
	learned := func(t *testing.T, gpus, steps int) *checkpoint {
		o := o
		o.gpus, o.steps, o.model = gpus, steps, filepath.Join(t.TempDir(), "gpt.model")
		require.NoError(t, run(t.Context(), o, io.Discard))
		c, err := readCheckpoint(o.model)
		require.NoError(t, err)
		return c
	}
	first, all := learned(t, 1, 1), learned(t, 1, o.steps)
	for _, gpus := range []int{2, 4} {
		t.Run(fmt.Sprint("GPUs ", gpus), func(t *testing.T) {
			devices, err := safe.Devices()
			require.NoError(t, err)
			if len(devices) < gpus || o.sequences < gpus {
				t.Skipf("needs %d GPUs", gpus)
			}
			leavesNothing(t)
			got := learned(t, gpus, 1)
			assert.InDelta(t, first.Losses[0], got.Losses[0], 1e-3, "the loss is that of all ranks")
			isNear(t, first.First, got.First, 0.02, "so is the gradient, which each rank and NCCL round to bfloat16")
			assert.InDeltaSlice(t, all.Losses, learned(t, gpus, o.steps).Losses, 0.02)
		})
	}
}

// TestRefused: what cannot be is refused before anything is written.
func TestRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, lines, 0o666))
	learned := filepath.Join(t.TempDir(), "learned.model")
	n := tiny.parameters()
	c := &checkpoint{header{Shape: tiny, Step: 5}, make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, 5)}
	require.NoError(t, c.write(learned))
	whole, err := os.ReadFile(learned)
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		change func(*options)
		says   string
	}{
		{"no sequences", func(o *options) { o.sequences = 0 }, "-sequences, -report, -save, -tests and -gpus must be at least 1"},
		{"no GPUs", func(o *options) { o.gpus = 0 }, "-gpus must be at least 1"},
		{"too many parameters", func(o *options) { o.shape = shape{100, 1 << 14, 64} }, "parameters: at most 2147483647"},
		{"odd sequences", func(o *options) { o.sequences, o.gpus = 3, 2 }, "-sequences 3 is no multiple of the number of GPUs, 2"},
		{"everything is dropped", func(o *options) { o.drop = 256 }, "-dropout must be at least 0 and less than 1"},
		{"channels", func(o *options) { o.shape.Channels = 100 }, "a multiple of 128 channels"},
		{"context", func(o *options) { o.shape.Context = 65 }, "a multiple of 64 up to 1024"},
		{"too many layers", func(o *options) { o.shape.Layers = 1 << 40 }, "layers"},
		{"little text", func(o *options) { o.shape.Context = 192 }, "1480 bytes of text are too few"},
		{"no text", func(o *options) { o.text = filepath.Join(t.TempDir(), "none") }, "no such file"},
		{"an empty folder", func(o *options) { o.text = t.TempDir() }, "has no text"},
		{"enough steps", func(o *options) { o.model = learned }, "has learned for 5 steps: set -steps to more, or -model to another file"},
		{"a model that has learned, and no steps", func(o *options) { o.model, o.steps = learned, 0 }, "has learned for 5 steps: set -steps to more, or -model to another file"},
		{"more steps than the GPU counts", func(o *options) { o.steps = 1 << 31 }, "-steps must be at most 2147483647"},
		{"a rate that is no number", func(o *options) { o.rate = float32(math.NaN()) }, "-rate must be from 0 to 1"},
		{"a rate below 0", func(o *options) { o.rate = -1e-3 }, "-rate must be from 0 to 1"},
		{"no end of a rate", func(o *options) { o.model, o.steps, o.rate = learned, 6, float32(math.Inf(1)) }, "-rate must be from 0 to 1"},
		{"one file for both", func(o *options) { o.model, o.plot, o.steps = learned, filepath.Dir(learned)+"/./learned.model", 6 }, "-plot is the file of the model: choose another one"},
		{"no checkpoint", func(o *options) { o.model = text }, "text is no checkpoint"},
		{"nothing to write by", func(o *options) { o.prompt = "a" }, "no such file"},
		{"a long text", func(o *options) { o.model, o.prompt, o.length = learned, "a", 64 }, "a prompt of 1 bytes and 64 tokens more do not fit into the model's context of 64"},
		{"a folder that is not there", func(o *options) { o.model = filepath.Join(t.TempDir(), "none", "gpt.model") }, "no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			leavesNothing(t)
			o := tinyOptions(t)
			o.text = text
			c.change(&o)
			before, _ := os.ReadFile(o.model)
			assert.ErrorContains(t, run(t.Context(), o, io.Discard), c.says)
			after, _ := os.ReadFile(o.model)
			assert.Equal(t, before, after)
		})
	}
	for _, step := range []string{"-1", "4611686018427387909", "9223372036854775807"} { // 2^62+5: its bytes are as many as those of 5, in 64 bits
		file := filepath.Join(t.TempDir(), "foreign")
		require.NoError(t, os.WriteFile(file, bytes.Replace(whole, []byte(`"Step":5`), []byte(`"Step":`+step), 1), 0o666))
		_, err := readCheckpoint(file)
		assert.ErrorContains(t, err, "is no checkpoint", "step %s", step)
	}
	for _, size := range []int{0, 10, 60, len(whole) - 1, len(whole) + 1} {
		require.NoError(t, os.WriteFile(learned, append(whole, 0)[:size], 0o666))
		_, err := readCheckpoint(learned)
		assert.ErrorContains(t, err, "is no checkpoint", "%d bytes of %d", size, len(whole))
	}
}

// TestInterrupted: who interrupts is told of a training only if there is one.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o, err := options{}, fmt.Errorf("Stream.Wait: %w", context.Canceled)
	assert.Equal(t, err.Error(), o.says(ctx, err))
	cancel()
	assert.Equal(t, "no space", o.says(ctx, errors.New("no space")))
	assert.Equal(t, "interrupted: the training goes on from its last checkpoint if you run it again", o.says(ctx, err))
	assert.Equal(t, "interrupted", options{prompt: "func"}.says(ctx, err))
	assert.Equal(t, "interrupted", options{serve: "localhost:0"}.says(ctx, err))
}

// TestModelFile: the file of a model may be a link, which stays one, and may be for its owner alone.
func TestModelFile(t *testing.T) {
	file, link := filepath.Join(t.TempDir(), "gpt.model"), filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(file, link))
	n := tiny.parameters()
	c := &checkpoint{header{Shape: tiny}, make([]float32, n), make([]float32, n), make([]float32, n), nil}
	require.NoError(t, c.write(file))
	require.NoError(t, os.Chmod(file, 0o600))
	c.Step, c.Losses = 1, make([]float32, 1)
	require.NoError(t, c.write(link))
	to, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, file, to)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	got, err := readCheckpoint(file)
	require.NoError(t, err)
	assert.Equal(t, 1, got.Step)
	for _, name := range []string{file, link} {
		entries, err := os.ReadDir(filepath.Dir(name))
		require.NoError(t, err)
		assert.Len(t, entries, 1, "nothing is left beside it")
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// TestText: a name may be a link; what is no text is left out in folders.
func TestText(t *testing.T) {
	folder, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a"), []byte("text"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "b"), []byte("\xff\xfe"), 0o666))
	require.NoError(t, os.Symlink(folder, link))
	for name, want := range map[string]string{folder: "text", link: "text", filepath.Join(link, "b"): "\xff\xfe"} {
		text, err := readText(name)
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
	}

	large := filepath.Join(t.TempDir(), "large") // more than the machine has
	require.NoError(t, os.WriteFile(large, []byte(strings.Repeat("ö", mostText/2-1)+"€"), 0o666))
	require.NoError(t, os.Truncate(large, 1<<42))
	for _, name := range []string{large, filepath.Dir(large)} {
		text, err := readText(name)
		require.NoError(t, err)
		assert.Len(t, text, mostText-2, "without a part of a character")
	}
}
