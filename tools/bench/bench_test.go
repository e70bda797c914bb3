//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/internal/double"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain runs the command itself where a test asks for it in a process of its
// own, since a process keeps the library that it has loaded.
func TestMain(m *testing.M) {
	if os.Getenv("BENCH_RUN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runBench runs the command.
func runBench(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := command.Built(self, args...)
	cmd.Env = append(os.Environ(), "BENCH_RUN=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its exit status is looked at
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestEveryRow measures every row on the simulated driver, on which the times
// mean nothing.
func TestEveryRow(t *testing.T) {
	if err := command.CC().Err; err != nil {
		t.Skip("no C compiler: ", err)
	}
	dir := t.TempDir()
	file, err := sim.Build(dir, sim.Newest)
	require.NoError(t, err)

	results := filepath.Join(dir, "results.json")
	stdout, stderr, code := runBench(t, "-lib", file, "-short", "-run", ".", "-json", results)
	require.Zero(t, code, stderr)
	text, err := os.ReadFile(results)
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(text, &r))
	assert.Equal(t, sim.Newest, r.Header.CUDA)
	assert.Equal(t, file, r.Header.Library)
	assert.Greater(t, len(r.Rows), 30)
	for _, row := range r.Rows {
		assert.Empty(t, row.Error, row.Name)
		assert.Contains(t, stdout, "\n"+row.Name+" ")
		require.NotNil(t, row.C, row.Name)
		assert.Equal(t, strings.Contains(row.Name, "Batch"), row.Raw == nil, row.Name)
		assert.Positive(t, row.C.Operations, row.Name)
		if row.Name != emptyCall && row.Name != "driver version" {
			assert.NotNil(t, row.Safe, row.Name)
		}
		assert.Equal(t, strings.Contains(row.Name, "copy"), row.Bytes > 0, row.Name)
	}

	stdout, stderr, code = runBench(t, "-lib", dir, "-short", "-run", "^event record$")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "\n"+emptyCall+" ")
	assert.Contains(t, stdout, "\nevent record ")
	assert.Equal(t, 6, strings.Count(stdout, "\n"), "nothing else: %s", stdout)

	stdout, stderr, code = runBench(t, "-lib", dir, "-short", "-run", "^event record$", "-compare", results, "-threshold", "1e6")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "\nno ratio differs by more than 1e+06 % and 15 ns\n")

	for _, row := range r.Rows {
		if row.Safe != nil {
			row.Safe.Median /= 1e6
		}
	}
	require.NoError(t, r.writeFile(results))
	_, stderr, code = runBench(t, "-lib", dir, "-short", "-run", "^event record$", "-compare", results)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "ratios that got worse by more than 10 %")

	_, stderr, code = runBench(t, "-lib", file, "-device", "99")
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "bench: cuda: Open: ")
}

// TestEveryGroup measures every group on the simulated driver, each in a process of
// its own.
func TestEveryGroup(t *testing.T) {
	file, dir := withLibraries(t, "cufft", "curand"), t.TempDir()
	results, plots := filepath.Join(dir, "results.json"), filepath.Join(dir, "plots")
	stdout, stderr, code := runBench(t, "-lib", file, "-short", "-group", ".", "-json", results, "-plots", plots)
	require.Zero(t, code, stderr)
	text, err := os.ReadFile(results)
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(text, &r))
	assert.Empty(t, r.Rows)
	require.Len(t, r.Groups, len(groups))
	for i, p := range r.Groups {
		t.Run(groups[i].name, func(t *testing.T) {
			assert.Equal(t, groups[i].name, p.Name)
			require.Empty(t, p.Error)
			assert.Contains(t, stdout, "\n"+p.Name+" ")
			require.NotEmpty(t, p.Lines)
			for _, l := range p.Lines {
				assert.Contains(t, stdout, "\n"+l.name()+" ")
				for column := range l.Values {
					assert.Contains(t, p.Columns, column)
				}
				for _, column := range groups[i].plot {
					assert.Contains(t, l.Values, column, l.name())
				}
				for _, v := range l.Targets {
					assert.Contains(t, l.Values, v.Column, l.name())
				}
			}
			assert.FileExists(t, filepath.Join(plots, strings.ReplaceAll(p.Name, " ", "-")+".svg"))
		})
	}
}

// withLibraries has bench find doubles of libraries, and returns the simulated driver that they call.
func withLibraries(t *testing.T, names ...string) string {
	if err := command.CC().Err; err != nil {
		t.Skip("no C compiler: ", err)
	}
	dir := t.TempDir()
	file, err := sim.Build(dir, sim.Newest)
	require.NoError(t, err)
	for _, name := range names {
		built, err := double.Library{Name: name}.Build(dir, file)
		require.NoError(t, err)
		require.NoError(t, os.Rename(built, filepath.Join(dir, map[string]string{"cufft": "libcufft.so.12", "curand": "libcurand.so.10"}[name])))
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
	return file
}

// TestStepWithTransforms has the steps of a simulation use a double of cuFFT.
func TestStepWithTransforms(t *testing.T) {
	stdout, stderr, code := runBench(t, "-lib", withLibraries(t, "cufft"), "-short", "-group", "^step$", "-markdown")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "\n| step | µs | p10 | p90 | /C | targets |\n|---|---|---|---|---|---|\n")
	for _, way := range []string{"C", "raw", "safe", "replay"} {
		assert.Contains(t, stdout, "\n| 32x32 on a stream, "+way+" | ")
		assert.Contains(t, stdout, "\n| 32x32 on the legacy stream, "+way+" | ")
	}
}

func TestLibraries(t *testing.T) {
	stdout, stderr, code := runBench(t, "-lib", withLibraries(t, "cufft", "curand"), "-short", "-group", "^libraries$", "-markdown")
	require.Zero(t, code, stderr)
	for _, way := range []string{"C", "raw", "safe"} {
		assert.Contains(t, stdout, "\n| fft [64] x 1, "+way+" | ")
		assert.Contains(t, stdout, "\n| 1024 uniform numbers, "+way+" | ")
	}
}

// TestNoLibraries has nothing to call, which is no failure.
func TestNoLibraries(t *testing.T) {
	stdout, stderr, code := runBench(t, "-lib", withLibraries(t), "-short", "-group", "^libraries$")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "\nlibraries  there is neither cuFFT nor cuRAND: ")
}

// TestOneGPU has nothing to copy to, which is no failure.
func TestOneGPU(t *testing.T) {
	if err := command.CC().Err; err != nil {
		t.Skip("no C compiler: ", err)
	}
	file, err := sim.Build(t.TempDir(), sim.Newest)
	require.NoError(t, err)
	t.Setenv("CUDABIND_SIM_DEVICES", "1")
	stdout, stderr, code := runBench(t, "-lib", file, "-short", "-group", "^peers$")
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "\npeers  there is but one GPU: ")
}
