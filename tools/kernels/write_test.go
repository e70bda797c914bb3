package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWriteAll: if a file cannot be written, none is.
func TestWriteAll(t *testing.T) {
	for range 8 { // a map has no order
		dir := t.TempDir()
		files := map[string][]byte{filepath.Join(dir, "nowhere", "x_cu.go"): []byte("x")}
		for _, name := range []string{"a_cu.go", "b_cu.go", "c_cu.go"} {
			files[filepath.Join(dir, name)] = []byte(name)
		}
		assert.Error(t, write(files))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, entries)
	}
}

// TestWriteLink: a link of the user's stays, wherever it leads.
func TestWriteLink(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x_cu.go")
	if err := os.Symlink("nowhere", name); err != nil {
		t.Skip("no links here: ", err)
	}
	assert.ErrorContains(t, write(map[string][]byte{name: []byte("x")}), "x_cu.go exists, and this command has not written it: move it away")
	to, err := os.Readlink(name)
	require.NoError(t, err)
	assert.Equal(t, "nowhere", to)
}
