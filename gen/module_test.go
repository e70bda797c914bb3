package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestImportPath(t *testing.T) {
	for _, tt := range []struct{ name, mod, dir, want string }{
		{"root", "module example.com/m\ngo 1.24\n", ".", "example.com/m"},
		{"below", "module example.com/m\ngo 1.26.0\n", "a/b", "example.com/m/a/b"},
		{"quoted", "module \"example.com/m\"\ngo 1.25\n", "x", "example.com/m/x"},
		{"release candidate", "module m\ngo 1.27rc1\n", "x", "m/x"},
		{"lines of a newer go", "module m\ngo 1.30\nsomething new\n", "x", "m/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t, map[string]string{"go.mod": tt.mod, "sub/go.mod": "module other\ngo 1.24\n"})
			got, err := importPath(filepath.Join(dir, tt.dir)) // the folder need not exist
			assert.NoError(t, err)
			assert.Equal(t, tt.want, got)
			got, err = importPath(filepath.Join(dir, "sub", "x"))
			assert.NoError(t, err)
			assert.Equal(t, "other/x", got, "the nearest go.mod counts")
		})
	}
}

func TestImportPathErrors(t *testing.T) {
	for _, tt := range []struct{ name, mod, want string }{
		{"old go line", "module m\ngo 1.23.4\n", "go.mod: the bindings need go 1.24 or newer: run go get go@1.24"},
		{"older still", "module m\ngo 1.9\n", "need go 1.24"},
		{"no go line", "module m\n", "need go 1.24"},
		{"no module line", "go 1.24\n", "go.mod has no module line"},
		{"not a go.mod", "module m\ngo one\n", "go.mod:2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t, map[string]string{"go.mod": tt.mod})
			_, err := importPath(filepath.Join(dir, "x"))
			assert.ErrorContains(t, err, tt.want)
		})
	}
	t.Run("no module", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "x")
		_, err := importPath(dir)
		assert.ErrorContains(t, err, dir+" is in no module: run go mod init above it, or give -import")
	})
	t.Run("go.mod is a folder", func(t *testing.T) {
		dir := folder(t, map[string]string{"go.mod/x": ""})
		_, err := importPath(dir)
		assert.ErrorContains(t, err, filepath.Join(dir, "go.mod"))
	})
}
