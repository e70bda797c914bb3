//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/command"
)

// TestProofRequested generates the package of every library on request, for each pinned
// version of its headers, and holds it against these as a C compiler sees them. It builds and
// vets those of the newest version, holds their layouts against Go's, and each call against a
// library that echoes its arguments.
func TestProofRequested(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds some twenty packages: make on-request")
	}
	releases, err := headers.RequestedReleases()
	require.NoError(t, err)
	module := requestedModule(t)
	gen := filepath.Join(t.TempDir(), "gen")
	goTool(t, repository(t), nil, "build", "-o", gen, "./gen")
	table := &figures{run: map[string]string{}}
	var proofs []*proof
	for _, release := range releases {
		dir, err := release.Find()
		if err != nil {
			unproven(t, fmt.Sprintf("make on-request fetches missing headers: %v", err))
		}
		for _, row := range model.Requested() {
			proofs = append(proofs, requestedProof(t, module, dir, row, release.Version))
		}
	}
	// First all packages: the generator's memory is seen as long as this process is small.
	t.Run("generate", func(t *testing.T) {
		for _, p := range proofs {
			t.Run(p.name(), func(t *testing.T) {
				t.Parallel()
				p.generate(t, gen, table)
			})
		}
	})
	t.Run("prove", func(t *testing.T) {
		for _, p := range proofs {
			t.Run(p.name(), func(t *testing.T) {
				t.Parallel()
				var err error
				p.api, err = parse.Row(os.DirFS(p.headers), p.api.Row)
				require.NoError(t, err)
				require.NoError(t, model.Complete(p.api, model.Options{}))
				table.add(p)
				t.Run("layout", p.layout)
				t.Run("signatures", p.signatures)
				if p.api.Version == releases[len(releases)-1].Version {
					t.Run("echo", p.echo)
					t.Run("go", p.layoutInGo)
				}
			})
		}
	})
	t.Log("\n" + table.String())
}

// requestedModule is a module for the packages, which take types from this one.
func requestedModule(t *testing.T) string {
	module := proofModule(t)
	sums, err := os.ReadFile(filepath.Join(repository(t), "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.sum"), sums, 0o666))
	mod := fmt.Sprintf("module proof\n\ngo 1.26.0\n\nrequire github.com/cudabind/cudabind v0.0.0\n\nreplace github.com/cudabind/cudabind => %s\n", repository(t))
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte(mod), 0o666))
	return module
}

func requestedProof(t *testing.T, module, dir string, row *model.Row, version string) *proof {
	p := &proof{
		api:     &model.API{Row: row, Version: version},
		headers: dir, module: module, pkg: filepath.Join(module, row.API, "v"+version), work: t.TempDir(),
		include: []string{"-I" + dir, "-I" + filepath.Join(module, "stubs")},
	}
	at := map[string]string{}
	for _, api := range row.Uses {
		if model.RowOf(api).Fetch != "" {
			at[api] = "proof/" + api + "/v" + version
			p.uses = append(p.uses, "-uses", api+"="+at[api])
		}
	}
	var err error
	p.api.Row, err = using(row, at)
	require.NoError(t, err)
	if row.Internal == "" {
		p.include = append(p.include, "-D__CUDA_API_VERSION_INTERNAL")
	}
	for _, name := range row.Before {
		p.include = append(p.include, "-include", name)
	}
	return p
}

func (p *proof) name() string { return p.api.Row.API + " " + p.api.Version }

// generate runs the generator as a user does.
func (p *proof) generate(t *testing.T, gen string, table *figures) {
	cmd := command.Built(gen, append(p.uses, "-api", p.api.Row.API, "-cuda", p.api.Version, "-out", p.pkg, "-package", p.api.Row.API)...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	table.took(p, time.Since(start), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
}

// layoutInGo builds and vets the package, and measures its types.
func (p *proof) layoutInGo(t *testing.T) {
	numbers := p.writeLayoutTest(t)
	assert.Contains(t, p.goTest(t, "Layout", "GOFLAGS=-mod=mod"), fmt.Sprintf("%d numbers compared", numbers))
}

// echo calls every function against a library that echoes its arguments. The package has all
// its types itself: the test spells them without the names of other packages.
func (p *proof) echo(t *testing.T) {
	alone := *p
	alone.pkg, alone.work = filepath.Join(p.pkg, "alone"), t.TempDir()
	alone.emitAlone(t, model.RowOf(p.api.Row.API))
	alone.calls(t)
}

// figures are what the packages hold, and what the generator takes for each.
type figures struct {
	sync.Mutex
	run   map[string]string
	lines []string
}

func (f *figures) took(p *proof, elapsed time.Duration, kilobytes int64) {
	f.Lock()
	defer f.Unlock()
	f.run[p.name()] = fmt.Sprintf("%.1f | %d", elapsed.Seconds(), kilobytes/1024)
}

func (f *figures) add(p *proof) {
	count := map[model.DeclKind]int{}
	for _, d := range p.api.Decls {
		count[d.Kind]++
	}
	f.Lock()
	defer f.Unlock()
	f.lines = append(f.lines, fmt.Sprintf("| %s | %s | %d | %d | %d | %s |", p.api.Row.API, p.api.Version,
		len(p.api.Funcs), count[model.Enum], count[model.Struct]+count[model.Union], f.run[p.name()]))
}

func (f *figures) String() string {
	slices.Sort(f.lines)
	return "| library | CUDA | functions | enums | records | seconds | MB |\n|---|---|---|---|---|---|---|\n" + strings.Join(f.lines, "\n")
}
