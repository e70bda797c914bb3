//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain is the command itself where a test or a contestant's parent asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("PEERS_RUN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestOnTheSimulatedDriver has the contestants that need no other package do every row. Times mean
// nothing there.
func TestOnTheSimulatedDriver(t *testing.T) {
	if err := command.CC().Err; err != nil {
		t.Skip("no C compiler: ", err)
	}
	if _, err := headers.Find(headersOf); err != nil {
		t.Skip("no cuda.h: ", err)
	}
	dir := t.TempDir()
	_, err := sim.Build(dir, sim.Newest)
	require.NoError(t, err)
	_, err = sim.BuildKernels(dir, "testdata/kernels.c")
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)

	file, page := filepath.Join(dir, "peers.json"), filepath.Join(dir, "peers.md")
	cmd := exec.Command(self, "-short", "-only", "C,raw,safe,bulk,replay", "-bin", dir, "-json", file, "-page", page)
	cmd.Env = append(os.Environ(), "PEERS_RUN=1", "LD_LIBRARY_PATH="+dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), &errs)

	r, err := readResults(file)
	require.NoError(t, err)
	assert.Equal(t, "Simulated GPU 0", r.GPU)
	assert.Equal(t, sim.Newest, r.CUDA)
	assert.Positive(t, r.Crossing)
	for _, c := range r.Contestants {
		assert.Empty(t, c.Absent, c.Name)
		assert.NotEmpty(t, c.Version, c.Name)
	}
	for _, n := range r.Notes {
		assert.Contains(t, n.Why, "fewer than 50 waits, scaled", n) // a machine with few cores
	}
	assert.Len(t, r.Rows, len(rows())+3*(len(waits)+len(crowds)))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, f := range r.Rows {
		for _, name := range []string{"C", "raw", "safe"} {
			assert.Contains(t, f.Figure, name, f.Name)
			assert.True(t, f.Unit == "" || f.Figure[name] > 0, f.Name)
		}
		many := f.Name == "100 launches" || strings.HasPrefix(f.Name, "pipeline")
		graph := strings.Contains(f.Name, ": build") || strings.Contains(f.Name, ": set all")
		assert.Equal(t, many || graph || strings.HasPrefix(f.Name, "async alloc"), f.Figure["bulk"] > 0, f.Name)
		assert.Equal(t, many, f.Figure["replay"] > 0, f.Name)
		assert.Contains(t, out.String(), "\n"+f.Name+" ")
		assert.Contains(t, string(text), "\n| "+f.Name+" | ")
	}
}

func TestContestantsThatFail(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	const ready = `echo '{"ready":"x 1"}'; `
	tests := []struct{ name, script, absent, answer string }{
		{"not there", "", "no such file", ""},
		{"ends", "echo broken >&2", "it ended: broken", ""},
		{"cannot start", `echo '{"na":"no GPU"}'; sleep 60`, "no GPU", ""},
		{"says nothing of use", "echo {}; sleep 60", "it did not say that it is ready", ""},
		{"says something else", "echo hello; sleep 60", `it said "hello`, ""},
		{"ends later", ready + "read x", "", "it ended"},
		{"lacks an item", ready + `read x; echo '{"na":"none"}'; sleep 60`, "", "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			command := []string{"sh", "-c", tt.script}
			if tt.script == "" {
				command = []string{filepath.Join(t.TempDir(), "peer")}
			}
			c := start("x", command...)
			defer c.stop("")
			if tt.absent != "" {
				assert.Contains(t, c.absent, tt.absent)
				assert.Equal(t, reply{Absent: c.absent}, c.do("event_query", 0, 1))
				return
			}
			require.Empty(t, c.absent)
			assert.Equal(t, "x 1", c.ready.Ready)
			assert.Equal(t, tt.answer, c.do("event_query", 0, 1).Absent)
		})
	}
}

// TestPython has the contestants' common part measure a contestant of its own, which needs no package.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	require.NoError(t, unpack(dir))
	const fake = `
from peer import Peer

class Fake(Peer):
    version = "fake 1"

    def idle(self): pass
    def launch_3(self): pass
    def h2d(self, size): return self.idle
    def once(self, us): pass
    def pipe_1m(self): self.check = False
    def event_query(self): raise RuntimeError("broken")
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "py", "with_fake.py"), []byte(fake), 0o666))
	script, image := filepath.Join(dir, scriptFile), filepath.Join(dir, imageFile)
	c := start("fake", python, script, image, "fake")
	defer c.stop("")
	require.Empty(t, c.absent)
	assert.Equal(t, "fake 1", c.ready.Ready)
	assert.Positive(t, c.do("launch_100", 0, 0.5).NS)
	assert.Positive(t, c.do("h2d", 4096, 0.5).NS)
	assert.True(t, c.do("pipe_1m", 0, 0.5).Wrong)
	assert.Len(t, c.do("wait", 2000, 0).Samples, 40)
	assert.Equal(t, none, c.do("graph_build", 1, 1).Absent)
	assert.Contains(t, c.do("event_query", 0, 1).Absent, "broken")

	for _, name := range []string{"bindings", "core", "cupy", "torch"} {
		c := start(name, python, script, image, name)
		if c.absent != "" { // for its package or the GPU, and not for an error of ours
			assert.NotContains(t, c.absent, "SyntaxError")
			assert.NotContains(t, c.absent, "NameError")
		}
		c.stop("")
	}
}

func TestCommandLine(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "foreign.json")
	require.NoError(t, os.WriteFile(foreign, []byte(`{"header": {}}`), 0o666))
	broken := filepath.Join(t.TempDir(), "broken.json")
	require.NoError(t, os.WriteFile(broken, []byte(`{`), 0o666))
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"an argument", []string{"extra"}, `unexpected argument "extra"`},
		{"no time", []string{"-seconds", "0"}, "-seconds 0"},
		{"a page of another kind", []string{"-page", "peers.html"}, "-page peers.html: its name must end in .md"},
		{"an unknown contestant", []string{"-only", "C,D"}, `there is no contestant "D"`},
		{"an unknown contestant to be", []string{"-contestant", "D"}, "it is raw, safe, bulk or replay"},
		{"no figures", []string{"-from", filepath.Join(t.TempDir(), "none.json")}, "none.json: no such file"},
		{"another program's figures", []string{"-from", foreign}, "foreign.json: it lacks the GPU, contestants or rows"},
		{"broken figures", []string{"-from", broken}, "want a file that peers -json wrote"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			require.ErrorContains(t, run(tt.args, nil, &out, &errs), tt.want)
			assert.Empty(t, out.String())
		})
	}
}

// TestBuildFails names the program and the compiler's message.
func TestBuildFails(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	dir := t.TempDir()
	err := build(dir, [][]string{{"C", filepath.Join(dir, cProgram)}, {"safe", filepath.Join(dir, "safe")}}, &bytes.Buffer{})
	require.ErrorContains(t, err, "peer-c")
	assert.ErrorContains(t, err, "no-such-compiler")
}

// TestReasons: each is for a row that exists.
func TestReasons(t *testing.T) {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	for _, us := range waits {
		for _, r := range waitRows(us) {
			names = append(names, r.name)
		}
	}
	for _, r := range reasons {
		assert.Contains(t, safeWays, r.way)
		assert.True(t, slices.ContainsFunc(names, func(name string) bool { return reason(r.way, name) == r.why }), r.rows)
	}
	assert.Empty(t, reason("replay", "event record"))
}
