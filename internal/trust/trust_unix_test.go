//go:build unix

package trust

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPrivate(t *testing.T) {
	for _, test := range []struct {
		name string
		mode os.FileMode
		says string // "" for a private one
	}{
		{"mine alone", 0o700, ""},
		{"others read", 0o755, ""},
		{"the group writes", 0o770, "(mode 0770): run chmod go-w on it"},
		{"all write", 0o777, "(mode 0777): run chmod go-w on it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Chmod(dir, test.mode))
			info, err := os.Stat(dir)
			require.NoError(t, err)
			assert.True(t, Owned(info))
			err = Private(info, "the cache")
			if test.says == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorIs(t, err, fs.ErrPermission)
			assert.ErrorContains(t, err, "other users can write to the cache "+test.says)
		})
	}
}

func TestOwned(t *testing.T) {
	file := "/dev/null" // root's
	if os.Geteuid() == 0 {
		file = filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Chown(file, 65534, 65534))
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.False(t, Owned(info))
	assert.ErrorContains(t, Private(info, "it"), "it belongs to another user")
}
