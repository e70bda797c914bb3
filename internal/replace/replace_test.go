package replace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	require.NoError(t, os.WriteFile(a, []byte("old"), 0o600))
	before, err := os.Stat(a)
	require.NoError(t, err)
	content := func(name string) string {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(data)
	}

	require.Error(t, Files(0o644, File{a, []byte("new")}, File{filepath.Join(dir, "nowhere", "c"), nil}))
	assert.Equal(t, "old", content(a), "all or none")

	require.NoError(t, Files(0o644, File{a, []byte("old")}, File{b, []byte("new")}))
	now, err := os.Stat(a)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, now), "it has that content already")
	assert.Equal(t, "new", content(b))

	require.NoError(t, Files(0o640, File{a, []byte("newer")}))
	assert.Equal(t, "newer", content(a))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2, "nothing else is left")
}
