package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var roots = regexp.MustCompile(`^(Test|Example|main$|init$)`)

// reached are the names that the tests of a folder, or of the one above it,
// come by: those of tests and what is named in what they come by.
func reached(t *testing.T, dir string) map[string]bool {
	t.Helper()
	named := map[string][]string{} // by each declaration
	tests := false
	for _, d := range []string{dir, filepath.Dir(dir)} {
		files, err := filepath.Glob(filepath.Join(root, d, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			tests = tests || strings.HasSuffix(file, "_test.go")
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range f.Decls {
				for _, name := range declared(d) {
					name = ownName(name)
					named[name] = append(named[name], identifiers(d)...)
				}
			}
		}
	}
	if !tests {
		return nil
	}
	ran := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if uses, ok := named[name]; ok && !ran[name] {
			ran[name] = true
			for _, n := range uses {
				visit(n)
			}
		}
	}
	for name := range named {
		if roots.MatchString(name) {
			visit(name)
		}
	}
	return ran
}

// ownName is the name of a declaration, of a method without its type.
func ownName(name string) string { return name[strings.Index(name, ".")+1:] }

// identifiers are the names in a declaration.
func identifiers(d ast.Decl) []string {
	var all []string
	ast.Inspect(d, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			all = append(all, id.Name)
		}
		return true
	})
	return all
}

func TestReached(t *testing.T) {
	ran := reached(t, "tools/readme")
	assert.True(t, ran["replaceSnippets"])
	assert.True(t, ran["isOf"], "by way of others")
	assert.False(t, reached(t, "tools/readme")["nobodyNamesThis"])
	assert.Nil(t, reached(t, "docs"), "no tests there")
}
