package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

func TestReplace(t *testing.T) {
	got, err := replace("a\n<!-- t -->\nold\nlines\n<!-- end -->\nb\n<!-- u -->\nkept\n<!-- end -->\n", "t", "$1 new\n")
	require.NoError(t, err)
	assert.Equal(t, "a\n<!-- t -->\n$1 new\n<!-- end -->\nb\n<!-- u -->\nkept\n<!-- end -->\n", got)
	_, err = replace("no place\n", "t", "")
	assert.ErrorContains(t, err, `no place for "t"`)
}

func TestCounts(t *testing.T) {
	a := &model.API{Funcs: []*model.Func{{Symbol: "cuA"}, {Symbol: "cuB"}}, Decls: []*model.Decl{{Kind: model.Struct}, {Kind: model.Union}, {Kind: model.Struct, Nested: true}, {Kind: model.Enum}}}
	assert.Equal(t, "1", count(symbols(a), map[string]bool{"cuB": true, "cuC": true}))
	assert.Equal(t, 2, kinds(a, model.Struct, model.Union))
}

func TestSnippet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	require.NoError(t, os.WriteFile(file, []byte("package a\n\n// b is\n// one.\nvar b = 1\n\nfunc c() {\n\tb++\n}\n\n// Not shown.\nfunc Example() {\n\n\tif b > 1 {\n\t\tc()\n\t}\n}\n"), 0o666))
	for _, c := range []struct {
		name string
		show []string
		want string
	}{
		{"a variable", []string{"b"}, "// b is\n// one.\nvar b = 1\n"},
		{"two", []string{"c", "b"}, "func c() {\n\tb++\n}\n\n// b is\n// one.\nvar b = 1\n"},
		{"an example's body", []string{"Example"}, "if b > 1 {\n\tc()\n}\n"},
		{"the whole file", nil, "package a\n\n// b is\n// one.\nvar b = 1\n\nfunc c() {\n\tb++\n}\n\n// Not shown.\nfunc Example() {\n\n\tif b > 1 {\n\t\tc()\n\t}\n}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := snippet(file, c.show)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	_, err := snippet(file, []string{"d"})
	assert.ErrorContains(t, err, "declares no d")
}

// eachText calls f for every text that holds Go.
func eachText(t *testing.T, f func(t *testing.T, file, text string)) {
	t.Helper()
	files, err := textFiles(root)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 2)
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, file))
			require.NoError(t, err)
			f(t, file, string(text))
		})
	}
}

// TestTexts: the Go in the texts is that of the programs, and there is no other.
func TestTexts(t *testing.T) {
	eachText(t, func(t *testing.T, file, text string) {
		want, err := replaceSnippets(text, root)
		require.NoError(t, err)
		assert.Equal(t, want, text, "go run ./tools/readme writes it")
		assert.Equal(t, len(snippets.FindAllString(text, -1)), strings.Count(text, "```go"), "Go that no program has")
		for _, kind := range fenceKinds(text) {
			assert.Contains(t, []string{"go", "sh", "text", "c", "json"}, kind, "the text in a fence is checked by its kind")
		}
	})
}

func TestReplaceSnippets(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\n\ntype b int\n"), 0o666))
	got, err := replaceSnippets("x\n<!-- go a.go b -->\n<!-- end -->\ny\n<!-- go a.go b -->\nold\n<!-- end -->\n", dir)
	require.NoError(t, err)
	assert.Equal(t, "x\n<!-- go a.go b -->\n```go\ntype b int\n```\n<!-- end -->\ny\n<!-- go a.go b -->\n```go\ntype b int\n```\n<!-- end -->\n", got)
	_, err = replaceSnippets("<!-- go a.go c -->\n<!-- end -->\n", dir)
	assert.ErrorContains(t, err, "declares no c")
}
