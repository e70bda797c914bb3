package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
// NVIDIA's real header, as a C compiler and the Go compiler see them. The newest package of
// each major version is also built, and each of its functions called.
func TestProof(t *testing.T) {
	module := proofModule(t)
	releases := headers.Releases()
	if testing.Short() {
		releases = releases[len(releases)-1:]
	}
	newest := newestOfMajors(releases)
	for _, api := range callable() {
		if testing.Short() && api != "driver" {
			continue // make test-all proves the others
		}
		t.Run(api, func(t *testing.T) {
			for _, release := range proven(api, releases) {
				t.Run(release.Version, func(t *testing.T) {
					t.Parallel()
					p := newProof(t, module, api, release.Version)
					t.Run("complete", p.complete)
					t.Run("layout", p.layout)
					t.Run("signatures", p.signatures)
					t.Run("arguments", p.arguments)
					if newest[release.Version] {
						t.Run("calls", p.calls)
					}
				})
			}
		})
	}
}

// callable are the APIs that have functions.
func callable() []string {
	return slices.DeleteFunc(model.APIs(), func(api string) bool { return model.RowOf(api).Status == "" })
}

// proven are the releases whose package of an API is proven: all of driver and runtime, and
// the newest of each major version of the others.
func proven(api string, releases []headers.Release) []headers.Release {
	if model.RowOf(api).Own == nil {
		return releases
	}
	newest := newestOfMajors(releases)
	return slices.DeleteFunc(slices.Clone(releases), func(r headers.Release) bool { return !newest[r.Version] })
}

// newestOfMajors are the versions of the newest release of each major version.
func newestOfMajors(releases []headers.Release) map[string]bool {
	newest := map[string]bool{}
	for i, r := range releases {
		if i+1 == len(releases) || model.Major(releases[i+1].Version) != model.Major(r.Version) {
			newest[r.Version] = true
		}
	}
	return newest
}

// TestProofRace runs the proofs of the newest version's Go side again, with the race detector
// and, which comes with it, checkptr.
func TestProofRace(t *testing.T) {
	if testing.Short() {
		t.Skip("make proofs runs it")
	}
	module := proofModule(t)
	releases := headers.Releases()
	for _, api := range callable() {
		p := newProof(t, module, api, releases[len(releases)-1].Version)
		expected := p.writeTests(t)
		out := p.goTest(t, ".", "GOFLAGS=-race")
		for _, line := range expected {
			require.Contains(t, out, line)
		}
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
	uses    []string // flags of the generator

	elsewhere map[string]bool // subjects of facts that are others with this C compiler
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
		unproven(t, fmt.Sprintf("make generate fetches missing headers: %v", err))
	}
	require.NoError(t, err)
	dir = shownHeaders(t, dir, model.RowOf(api))
	p := &proof{
		headers: dir, module: module, pkg: filepath.Join(module, api, version), work: t.TempDir(),
		include: []string{"-D" + cmp.Or(model.RowOf(api).Internal, "__CUDA_API_VERSION_INTERNAL"), "-I" + dir, "-I" + filepath.Join(module, "stubs")},
	}
	p.emitAlone(t, model.RowOf(api))
	return p
}

// emitAlone emits the package of a row, which takes types from no other.
func (p *proof) emitAlone(t *testing.T, row *model.Row) {
	alone := *row
	alone.Uses = nil
	var err error
	p.api, err = parse.Row(os.DirFS(p.headers), &alone)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("this version has no such library")
	}
	require.NoError(t, err)
	require.NoError(t, model.Complete(p.api, model.Options{}))
	require.NoError(t, doc.Fill(p.api, nil))
	rel, err := filepath.Rel(p.module, p.pkg)
	require.NoError(t, err)
	files, err := emit.Files(p.api, emit.Package{Name: row.API, Import: "proof/" + filepath.ToSlash(rel), Doc: doc.Package(p.api, row.API)})
	require.NoError(t, err)
	require.NoError(t, check(p.api, p.pkg, files))
	require.NoError(t, write(p.pkg, files))
}

// shownHeaders is the folder dir, or a copy of it whose headers show C what a row says.
func shownHeaders(t *testing.T, dir string, row *model.Row) string {
	if row.CPlusPlus == nil {
		return dir
	}
	to := t.TempDir()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		header, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, e.Name()), row.Shown(header), 0o666))
	}
	return to
}

// includes are the headers of the API, those that they need first.
func (p *proof) includes() []string {
	return slices.Concat(p.api.Row.Before, p.api.HeaderNames())
}

// render prints one of the templates into file.
func (p *proof) render(t *testing.T, file, tmpl string, data map[string]any) {
	parsed, err := template.New("").Delims("<<", ">>").ParseGlob("testdata/proof/*.tmpl")
	require.NoError(t, err)
	data["Headers"], data["Package"], data["Version"] = p.includes(), p.api.Row.API, p.api.Version
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
	out := filepath.Join(p.work, strings.TrimSuffix(tmpl, ".c.tmpl")+".exe")
	p.c(t, out, tmpl, data, flags...)
	return strings.Split(strings.ReplaceAll(strings.TrimSpace(p.run(t, command.Built(out))), "\r", ""), "\n")
}

func (p *proof) cc(t *testing.T, args ...string) string {
	return p.run(t, command.CC(append(p.include, args...)...))
}

// goTest vets and builds the package and runs those of its tests that run
// matches.
func (p *proof) goTest(t *testing.T, run string, env ...string) (out string) {
	rel, err := filepath.Rel(p.module, p.pkg)
	require.NoError(t, err)
	test := func(env ...string) *exec.Cmd {
		cmd := command.Go("test", "-trimpath", "-vet=all", "-v", "-count=1", "-run="+run, "./"+filepath.ToSlash(rel))
		cmd.Dir = p.module
		cmd.Env = append(append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "GOWORK=off"), env...)
		return cmd
	}
	// Go's cache may have what cgo made in a folder that an interrupted run has removed,
	// where vet looks for the source.
	if text, err := test(env...).CombinedOutput(); err == nil || !bytes.Contains(text, []byte("can't parse raw cgo file")) {
		return p.result(t, "go", text, nil, err)
	}
	return p.run(t, test(append(env, "CGO_CFLAGS=-g -O2 -DPROOF="+strconv.Itoa(os.Getpid()))...))
}

func (p *proof) run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	return p.result(t, cmd.Args[0], out, stderr.Bytes(), err)
}

// result returns the output of a command, which must have succeeded.
func (p *proof) result(t *testing.T, command string, out, stderr []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatalf("CUDA %s, %s: %s: %v\n%s%s", p.api.Version, p.api.Row.API, command, err, head(string(stderr)), head(string(out)))
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

// loaded is the version that the echo library tells.
func (p *proof) loaded() string {
	switch l := p.api.Row.Library; {
	case l.Form == "none" || l.Version == "":
		return ""
	case l.Form == "":
		return p.api.Version
	}
	return p.api.Version + ".0"
}

// versionNumber spells the version as CUDA_VERSION does.
func (p *proof) versionNumber() int {
	major, minor, _ := strings.Cut(p.api.Version, ".")
	x, _ := strconv.Atoi(major)
	y, _ := strconv.Atoi(minor)
	return 1000*x + 10*y
}
