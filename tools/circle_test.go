package tools_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// largestCircle is how many files of package safe may use each other in a circle. Who changes one of them has to know
// all, so declarations that others need belong low.
const largestCircle = 40

// TestCircle: the files of package safe do not all use each other.
func TestCircle(t *testing.T) {
	if testing.Short() {
		t.Skip("it type-checks package safe and all that it imports: make proofs")
	}
	uses := fileUses(t, "../cuda/safe")
	var circle []string
	for file := range uses {
		if c := circleOf(uses, file); len(c) > len(circle) {
			circle = c
		}
	}
	t.Logf("%d files, %d of them in the largest circle", len(uses), len(circle))
	assert.LessOrEqual(t, len(circle), largestCircle, "%s use each other", strings.Join(circle, ", "))
}

// fileUses says which files each file of a package on this system uses.
func fileUses(t *testing.T, dir string) map[string]map[string]bool {
	t.Helper()
	set := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	uses := map[string]map[string]bool{}
	for _, name := range names {
		base := filepath.Base(name)
		if strings.HasSuffix(base, "_test.go") || strings.HasSuffix(base, "_other.go") || strings.HasSuffix(base, "_windows.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		files, uses[base] = append(files, f), map[string]bool{}
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "source", nil)}
	pkg, err := config.Check("safe", set, files, &info)
	require.NoError(t, err)
	for id, what := range info.Uses {
		if from, to := set.File(id.Pos()), set.File(what.Pos()); what.Pkg() == pkg && to != nil && from != to {
			uses[filepath.Base(from.Name())][filepath.Base(to.Name())] = true
		}
	}
	return uses
}

// circleOf are the files that a file uses and that use it, directly or not.
func circleOf(uses map[string]map[string]bool, file string) []string {
	reached := func(next func(string) []string) map[string]bool {
		seen := map[string]bool{file: true}
		for queue := []string{file}; len(queue) > 0; queue = queue[1:] {
			for _, f := range next(queue[0]) {
				if !seen[f] {
					seen[f], queue = true, append(queue, f)
				}
			}
		}
		return seen
	}
	used := reached(func(f string) (all []string) {
		for to := range uses[f] {
			all = append(all, to)
		}
		return all
	})
	using := reached(func(f string) (all []string) {
		for from := range uses {
			if uses[from][f] {
				all = append(all, from)
			}
		}
		return all
	})
	var circle []string
	for f := range used {
		if using[f] {
			circle = append(circle, f)
		}
	}
	slices.Sort(circle)
	return circle
}
