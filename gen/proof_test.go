package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/doc"
	"github.com/cudabind/cudabind/gen/emit"
	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/command"
)

// TestProof holds the package of every pinned CUDA version and API against
// NVIDIA's real header, as a C compiler and the Go compiler see them.
func TestProof(t *testing.T) {
	notUnderRace(t)
	module := proofModule(t)
	releases := headers.Releases()
	if testing.Short() {
		releases = releases[len(releases)-1:]
	}
	for _, api := range model.APIs() {
		t.Run(api, func(t *testing.T) {
			for _, release := range releases {
				t.Run(release.Version, func(t *testing.T) {
					t.Parallel()
					p := newProof(t, module, api, release.Version)
					t.Run("complete", p.complete)
					t.Run("layout", p.layout)
					t.Run("signatures", p.signatures)
					t.Run("arguments", p.arguments)
					t.Run("calls", p.calls)
				})
			}
		})
	}
}

// TestProofModes runs the proofs of the newest version's Go side again, under
// the tools that find what a plain run does not.
func TestProofModes(t *testing.T) {
	if testing.Short() {
		t.Skip("it rebuilds the standard library")
	}
	notUnderRace(t)
	module := proofModule(t)
	releases := headers.Releases()
	var proofs []*proof
	expected := map[*proof][]string{}
	for _, api := range model.APIs() {
		p := newProof(t, module, api, releases[len(releases)-1].Version)
		proofs, expected[p] = append(proofs, p), p.writeTests(t)
	}
	for _, mode := range []struct {
		name string
		env  string
		run  string
	}{
		{"race", "GOFLAGS=-race", "."},
		{"checkptr", "GOFLAGS=-gcflags=all=-d=checkptr", "."},
		{"cgocheck2", "GOEXPERIMENT=cgocheck2", "."},
		{"no cgo", "CGO_ENABLED=0", "Layout"},
	} {
		t.Run(mode.name, func(t *testing.T) {
			for _, p := range proofs {
				out := p.goTest(t, mode.run, mode.env)
				for _, line := range expected[p] {
					if mode.run == "." || strings.Contains(line, "numbers") {
						require.Contains(t, out, line)
					}
				}
			}
		})
	}
}

// notUnderRace skips a proof where the race detector is on: it finds nothing
// in one and makes reading the headers many times slower.
func notUnderRace(t *testing.T) {
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("proofs run without the race detector: make proofs")
	}
}

// proof is one emitted package and the model it was emitted from.
type proof struct {
	api     *model.API
	headers string   // folder of NVIDIA's headers
	module  string   // folder of the module
	pkg     string   // folder of the package, in it
	work    string   // folder for C
	include []string // flags of the C compiler
}

// proofModule is a module for the emitted packages, with the headers that a C
// compiler needs beside NVIDIA's.
func proofModule(t *testing.T) string {
	if err := command.CC().Err; err != nil {
		unproven(t, fmt.Sprintf("there is no C compiler: %v", err))
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module proof\n\ngo "+minGo+"\n"), 0o666))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "stubs"), parse.Stubs()))
	return dir
}

// unproven skips a proof that cannot be had here. In CI that is a failure.
func unproven(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// newProof reads the header and emits the package.
func newProof(t *testing.T, module, api, version string) *proof {
	dir, err := headers.Find(version)
	if errors.Is(err, fs.ErrNotExist) {
		unproven(t, fmt.Sprintf("make generate fetches what is missing: %v", err))
	}
	require.NoError(t, err)
	p := &proof{
		headers: dir, module: module, pkg: filepath.Join(module, api, version), work: t.TempDir(),
		include: []string{"-D__CUDA_API_VERSION_INTERNAL", "-I" + dir, "-I" + filepath.Join(module, "stubs")},
	}
	p.api, err = parse.Parse(os.DirFS(dir), api)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("this version has no such library")
	}
	require.NoError(t, err)
	require.NoError(t, model.Complete(p.api, model.Options{}))
	require.NoError(t, doc.Fill(p.api, nil))
	files, err := emit.Files(p.api, emit.Package{Name: api, Import: "proof/" + api + "/" + version, Doc: doc.Package(p.api, api)})
	require.NoError(t, err)
	require.NoError(t, write(p.pkg, files))
	return p
}

// render prints one of the templates into file.
func (p *proof) render(t *testing.T, file, tmpl string, data map[string]any) {
	parsed, err := template.New("").Delims("<<", ">>").ParseGlob("testdata/proof/*.tmpl")
	require.NoError(t, err)
	data["Header"], data["Package"], data["Version"] = p.api.Header, p.api.Row.API, p.api.Version
	var b bytes.Buffer
	require.NoError(t, parsed.ExecuteTemplate(&b, tmpl, data))
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o666))
}

// c renders a C file and compiles it into out.
func (p *proof) c(t *testing.T, out, tmpl string, data map[string]any, flags ...string) {
	src := filepath.Join(p.work, strings.TrimSuffix(tmpl, ".tmpl"))
	p.render(t, src, tmpl, data)
	p.cc(t, append(flags, "-O0", "-o", out, src)...)
}

// program renders a C program, runs it and returns the lines it prints.
func (p *proof) program(t *testing.T, tmpl string, data map[string]any, flags ...string) []string {
	out := filepath.Join(p.work, strings.TrimSuffix(tmpl, ".c.tmpl"))
	p.c(t, out, tmpl, data, flags...)
	return strings.Split(strings.TrimSpace(p.run(t, command.Built(out))), "\n")
}

func (p *proof) cc(t *testing.T, args ...string) string {
	return p.run(t, command.CC(append(p.include, args...)...))
}

// goTest vets and builds the package and runs those of its tests that run
// matches.
func (p *proof) goTest(t *testing.T, run string, env ...string) (out string) {
	rel, err := filepath.Rel(p.module, p.pkg)
	require.NoError(t, err)
	cmd := command.Go("test", "-trimpath", "-vet=all", "-v", "-count=1", "-run="+run, "./"+filepath.ToSlash(rel))
	cmd.Dir = p.module
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off"), env...)
	return p.run(t, cmd)
}

func (p *proof) run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("CUDA %s, %s: %s: %v\n%s%s", p.api.Version, p.api.Row.API, cmd.Args[0], err, head(stderr.String()), head(string(out)))
	}
	return string(out)
}

// head is the beginning of a text that can be very long.
func head(text string) string {
	const limit = 8000
	if len(text) <= limit {
		return text
	}
	return text[:limit] + "\n...\n"
}

// versionNumber spells the version as CUDA_VERSION does.
func (p *proof) versionNumber() int {
	major, minor, _ := strings.Cut(p.api.Version, ".")
	x, _ := strconv.Atoi(major)
	y, _ := strconv.Atoi(minor)
	return 1000*x + 10*y
}
