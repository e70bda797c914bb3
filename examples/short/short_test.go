//go:build cgo && linux && (amd64 || arm64)

// Package short_test runs the programs of this folder, which docs/short.md shows, and counts their lines.
package short_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With CUDABIND_REQUIRE_GPU=1 the tests run the programs on the machine's GPU, as tools/gpu/bundle.sh has built them.
var (
	onGPU  = os.Getenv("CUDABIND_REQUIRE_GPU") != ""
	update = flag.Bool("update", false, "write the table of docs/short.md")
)

// programs are the programs, with the number of lines that each must stay below.
var programs = []struct {
	name, what, python string
	below              int
}{
	{"saxpy", "a kernel over 16 million values, timed on the device", "CuPy", 40},
	{"histogram", "how often each byte occurs, by a kernel with shared memory", "CuPy", 45},
	{"fft", "the frequency of a signal", "CuPy", 35},
	{"mlp", "a perceptron of three layers", "PyTorch", 55},
	{"service", "pictures over HTTP, several at once, with cancellation", "CuPy, without cancellation", 110},
	{"gpus", "a table of the machine's GPUs", "pynvml", 45},
}

// TestLines counts the lines of the programs, and compares them with the table of docs/short.md.
func TestLines(t *testing.T) {
	if onGPU {
		t.Skip("needs the checkout")
	}
	table := "| program | what it does | Go | Python |\n|---|---|---|---|\n"
	for _, p := range programs {
		goLines, pythonLines := lines(t, p.name+"/main.go"), lines(t, p.name+"/"+p.name+".py")
		assert.Less(t, goLines, p.below, p.name)
		table += fmt.Sprintf("| [%[1]s](../examples/short/%[1]s/main.go) | %[2]s | %[3]d | [%[4]d](../examples/short/%[1]s/%[1]s.py): %[5]s |\n",
			p.name, p.what, goLines, pythonLines, p.python)
	}
	const page = "../../docs/short.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	place := regexp.MustCompile(`(?s)(<!-- lines -->\n).*?(<!-- end -->)`)
	require.Regexp(t, place, string(text))
	want := place.ReplaceAllString(string(text), "${1}"+table+"${2}")
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o666))
	}
	assert.Equal(t, want, string(text), "go test ./examples/short -update writes it")
}

// noCode is a line that does not count: it is blank, or a comment.
var noCode = regexp.MustCompile(`^\s*((//|#|""").*)?$`)

func lines(t *testing.T, file string) (n int) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if !noCode.MatchString(strings.TrimSuffix(line, "\n")) {
			n++
		}
	}
	return n
}

// built returns the folder of the programs, and the one of the simulated libraries, which is empty on a GPU.
func built(t *testing.T) (folder, libraries string) {
	t.Helper()
	if onGPU {
		return "../../short", ""
	}
	folder, libraries = t.TempDir(), t.TempDir()
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", folder, "./...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	driver, err := sim.Build(libraries, sim.Newest)
	require.NoError(t, err)
	_, err = sim.BuildNVRTC(libraries, sim.Newest)
	require.NoError(t, err)
	for name, source := range map[string]string{
		"libcublas.so.13":   "../../cuda/safe/blas/testdata/double/cublas.c",
		"libcublasLt.so.13": "../../cuda/safe/blas/testdata/double/cublaslt.c",
		"libcufft.so.12":    "../../cuda/safe/fft/testdata/cufft.c",
	} {
		double(t, filepath.Join(libraries, name), source, "-DDRIVER="+strconv.Quote(driver), `-DLOG="/dev/null"`,
			"-I../../cuda/generated", "-I../../cuda/safe/blas/testdata/double", "-Wno-builtin-macro-redefined")
	}
	return folder, libraries
}

// double builds a double of a library.
func double(t *testing.T, file, source string, flags ...string) {
	t.Helper()
	out, err := command.CC(append(flags, "-O1", "-fPIC", "-shared", "-w", "-o", file, source, "-lm", "-ldl")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// kernels builds the kernels, and the double of NVML, into the folder of the simulated libraries, with one text replaced by
// another.
func kernels(t *testing.T, libraries, was, is string) {
	t.Helper()
	if libraries == "" {
		return
	}
	dir, found := t.TempDir(), false
	for _, name := range []string{"kernels.c", "nvml.c"} {
		text, err := os.ReadFile("testdata/" + name)
		require.NoError(t, err)
		found = found || strings.Contains(string(text), was)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(string(text), was, is)), 0o666))
	}
	require.True(t, found, was)
	_, err := sim.BuildKernels(libraries, filepath.Join(dir, "kernels.c"))
	require.NoError(t, err)
	double(t, filepath.Join(libraries, "libnvidia-ml.so.1"), filepath.Join(dir, "nvml.c"))
}

// program returns a program that is to use the simulated libraries, if there are any.
func program(t *testing.T, folder, name, libraries string) *exec.Cmd {
	cmd := command.Built(filepath.Join(folder, name))
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
	if libraries != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+libraries)
	}
	return cmd
}

// TestPrograms runs the programs, which compare what the GPU computes with what they expect.
func TestPrograms(t *testing.T) {
	folder, libraries := built(t)
	for _, c := range []struct {
		name, program, says string
		was, is             string // is replaces was in the kernels
	}{
		{"saxpy", "saxpy", `^[\d.]+[µm]s, \d+ GB/s\n$`, "", ""},
		{"wrong saxpy", "saxpy", `y\[0\] is -12, not 12\n$`, "+= a", "-= a"},
		{"histogram", "histogram", `^byte 128 occurs 1\d{5} times\n$`, "", ""},
		{"wrong histogram", "histogram", `counts are \[0 0 .* 0 0\], not \[`, "counts[data[i]]++", ";"},
		{"fft", "fft", `^the frequency is 1234\n$`, "", ""},
		{"mlp", "mlp", `^\[[\d. ]+\]\n$`, "", ""},
		{"gpus", "gpus", `^GPU +name +memory used +of +load +temperature +power\n0 .* \d+ MiB +\d+ MiB +\d+% +\d+ °C +\d+ W\n`, "", ""},
		{"GPU without power", "gpus", `NVML_ERROR_NOT_SUPPORTED`, "100000 * (long)d; return 0", "0; return 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if onGPU && c.was != "" {
				t.Skip("needs the simulated driver")
			}
			kernels(t, libraries, c.was, c.is)
			out, err := program(t, folder, c.program, libraries).CombinedOutput()
			assert.Equal(t, c.was == "", err == nil, "%v", err)
			assert.Regexp(t, c.says, string(out))
			if c.was == "" {
				t.Logf("%s", out)
			}
		})
	}
	t.Run("service", func(t *testing.T) {
		held := filepath.Join(t.TempDir(), "held")
		kernels(t, libraries, "for (int i = 0; i < width * height", fmt.Sprintf(slow, held))
		serves(t, program(t, folder, "service", libraries), held)
	})
	for _, name := range []string{"saxpy", "histogram", "fft", "mlp", "service"} {
		t.Run(name+" without a GPU", func(t *testing.T) { // says so, in one line
			if onGPU {
				t.Skip("needs the simulated driver")
			}
			cmd := program(t, folder, name, libraries)
			cmd.Env = append(cmd.Env, "CUDABIND_SIM_DEVICES=0")
			out, err := cmd.CombinedOutput()
			assert.Error(t, err)
			assert.Regexp(t, `^\S+ \S+ cuda: Open: CUDA_ERROR_NO_DEVICE.*\n$`, string(out))
		})
	}
}

// TestPython runs the same in Python, on a machine with CuPy, PyTorch and pynvml.
func TestPython(t *testing.T) {
	if !onGPU {
		t.Skip("needs a GPU")
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			if p.name == "service" {
				t.Skip("runs without end")
			}
			out, err := exec.Command("python3", "../../short/"+p.name+".py").CombinedOutput()
			if strings.Contains(string(out), "ModuleNotFoundError") {
				t.Skipf("%s", out)
			}
			require.NoError(t, err, "%s", out)
			t.Logf("%s", out)
		})
	}
}
