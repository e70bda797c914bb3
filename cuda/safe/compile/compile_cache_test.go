//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package compile

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anyNVRTC runs a test in a process of its own with a double of NVRTC, which every machine has.
func anyNVRTC(t *testing.T, test func(t *testing.T), env ...string) {
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, nvrtc.Open(nvrtcDouble(t)))
		test(t)
	}, env...)
}

// TestCacheUnusable: without a cache that can be used, sources compile all the same. One that the
// caller has chosen is named.
func TestCacheUnusable(t *testing.T) {
	anyNVRTC(t, func(t *testing.T) {
		ctx, file := context.Background(), filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		writable := filepath.Join(t.TempDir(), "base")
		makeOld(t, writable, 0o777, 0)
		for _, base := range []string{"", "relative", "/proc/self", "/dev/null/x", file, writable} {
			t.Setenv("XDG_CACHE_HOME", base)
			t.Setenv("HOME", base)
			_, err := Compile(ctx, twice, Options{Arch: "sm_90"})
			assert.NoError(t, err, base)
		}
		open := filepath.Join(writable, "cudabind", "compile")
		for dir, is := range map[string]error{"/proc/self/x": fs.ErrNotExist, file: nil, open: fs.ErrPermission} {
			_, err := Compile(ctx, twice, Options{Arch: "sm_90", CacheFolder: dir})
			assert.ErrorContains(t, err, "the cache folder "+dir+" cannot be used: ")
			if is != nil {
				assert.ErrorIs(t, err, is)
			}
			_, err = Compile(ctx, twice, Options{Arch: "sm_90", CacheFolder: dir, NoCache: true})
			assert.NoError(t, err, "as the error says")
		}
	})
}
