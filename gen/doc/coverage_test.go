package doc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
)

// committed are the packages that this module publishes.
var committed = model.Packages()

// completed are the results of complete: parsing takes seconds.
var completed = map[[2]string]*model.API{}

// complete parses a published API and completes it. Several tests read what it returns.
func complete(t *testing.T, api, version string) *model.API {
	t.Helper()
	key := [2]string{api, version}
	if a := completed[key]; a != nil {
		return a
	}
	dir, err := headers.Find(version)
	if err != nil {
		t.Skipf("needs the headers that make generate fetches: %v", err)
	}
	a, err := parse.Parse(os.DirFS(dir), api)
	require.NoError(t, err)
	require.NoError(t, model.Complete(a, model.Options{Frozen: frozen(t, api, version)}))
	completed[key] = a
	return a
}

// everyVersion parses each API of every pinned CUDA version, of libraries the newest of each major version, and fills in
// the comments. Several tests read what it returns.
var everyVersion = sync.OnceValues(func() (all []*model.API, err error) {
	releases := headers.Releases()
	for i, r := range releases {
		last := i+1 == len(releases) || model.Major(releases[i+1].Version) != model.Major(r.Version)
		dir, err := r.Find()
		if err != nil {
			return nil, err
		}
		for _, api := range model.APIs() {
			if model.RowOf(api).Own != nil && !last {
				continue
			}
			a, err := parse.Parse(os.DirFS(dir), api)
			if errors.Is(err, fs.ErrNotExist) {
				continue // this version has no such library
			}
			if err == nil {
				err = model.Complete(a, model.Options{})
			}
			if err == nil {
				err = Fill(a, nil)
			}
			if err != nil {
				return nil, fmt.Errorf("%s of CUDA %s: %w", api, r.Version, err)
			}
			all = append(all, a)
		}
	}
	return all, nil
})

// pinned is everyVersion for a test, which -short and missing headers skip.
func pinned(t *testing.T) []*model.API {
	t.Helper()
	if testing.Short() {
		t.Skip("parses every pinned version: make proofs runs it")
	}
	all, err := everyVersion()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("needs the headers that make generate fetches: %v", err)
	}
	require.NoError(t, err)
	return all
}

// frozen is what plain names mean in the published package of a version, nil where there is none.
func frozen(t *testing.T, api, version string) map[string]string {
	i := slices.IndexFunc(committed, func(p model.Published) bool { return p.API == api && p.Version == version })
	if i < 0 {
		return nil
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "cuda", "generated", committed[i].Name, "names.txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	names := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, means, _ := strings.Cut(strings.TrimSpace(line), " ")
		names[name] = means
	}
	return names
}

// TestCoverage: everything that is published has text of ours.
func TestCoverage(t *testing.T) {
	for _, p := range committed {
		t.Run(p.API+" "+p.Version, func(t *testing.T) {
			c, err := Cover(complete(t, p.API, p.Version))
			require.NoError(t, err)
			assert.Empty(t, c.Functions.Without, "functions without text")
			assert.Empty(t, c.Types.Without, "types without text")
			t.Logf("functions %d full %d sentence; values %d of %d, members %d of %d", c.Functions.Full, c.Functions.Sentence,
				c.Values.Full, c.Values.Full+c.Values.None, c.Members.Full, c.Members.Full+c.Members.None)
		})
	}
}

// TestStreamsComplete: every function of the stream APIs has the complete form.
func TestStreamsComplete(t *testing.T) {
	all, err := texts()
	require.NoError(t, err)
	groups := map[string]bool{
		"CUDA_STREAM": true, "CUDA_EVENT": true, "CUDA_MEMOP": true, "CUDA_GREEN_CONTEXTS": true, "CUDA_MALLOC_ASYNC": true,
		"CUDART_STREAM": true, "CUDART_EVENT": true, "CUDART_EXECUTION_CONTEXT": true, "CUDART_MEMORY_POOLS": true,
	}
	for _, p := range committed {
		t.Run(p.API+" "+p.Version, func(t *testing.T) {
			a := complete(t, p.API, p.Version)
			n := 0
			seen := map[string]bool{}
			for _, f := range a.Funcs {
				base, _, _ := model.Base(f.Symbol)
				if seen[base] || !groups[f.Group] && !takesStream(f) {
					continue
				}
				seen[base] = true
				n++
				if e := all[base]; assert.NotNil(t, e, "%s has no text", base) {
					assert.Emptyf(t, e.lacks(main(a, f), p.API), "%s: %s lacks these", e.pos, base)
				}
			}
			t.Logf("%d functions", n)
		})
	}
}

// main is the function that the base name of f means.
func main(a *model.API, f *model.Func) *model.Func {
	base, _, _ := model.Base(f.Symbol)
	for _, al := range a.Aliases {
		if al.Func && al.C == base {
			for _, g := range a.Funcs {
				if g.Symbol == al.Target {
					return g
				}
			}
		}
	}
	return f
}
