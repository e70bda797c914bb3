package headers

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDir(t *testing.T) {
	t.Run("from the environment", func(t *testing.T) {
		want := t.TempDir()
		t.Setenv(EnvDir, want)
		got, err := Dir()
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
	t.Run("relative", func(t *testing.T) {
		t.Setenv(EnvDir, "headers/include")
		_, err := Dir()
		assert.EqualError(t, err, "CUDABIND_HEADERS=headers/include is a relative path: make it absolute")
	})
	t.Run("cache of the user", func(t *testing.T) {
		t.Setenv(EnvDir, "")
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skip(err)
		}
		got, err := Dir()
		require.NoError(t, err)
		assert.Equal(t, filepath.Join(cache, "cudabind", "headers"), got)
	})
	t.Run("no home", func(t *testing.T) {
		for _, name := range []string{EnvDir, "HOME", "XDG_CACHE_HOME", "LocalAppData", "home"} {
			t.Setenv(name, "")
		}
		_, err := Dir()
		assert.ErrorContains(t, err, "set CUDABIND_HEADERS")
	})
}

func TestFind(t *testing.T) {
	r := sampleRelease(t)
	tests := []struct {
		name   string
		there  tree
		reason string // none: it is found
	}{
		{"whole", sample, ""},
		{"nothing", nil, "cuda.h is missing"},
		{"one missing", sample.without("sub/more.h"), "sub/more.h is missing"},
		{"one changed", sample.with("cudaTypedefs.h", "int changed;\n"), "cudaTypedefs.h is not the pinned one"},
		{"one cut", sample.with("cudaTypedefs.h", sample["cudaTypedefs.h"][:5]), "cudaTypedefs.h is not the pinned one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := filepath.Join(place(t), "12.9")
			tt.there.write(t, want)
			dir, err := r.Find()
			if tt.reason == "" {
				require.NoError(t, err)
				assert.Equal(t, want, dir)
				return
			}
			assert.Empty(t, dir)
			require.ErrorIs(t, err, fs.ErrNotExist)
			assert.EqualError(t, err, "headers of CUDA 12.9 are not in "+want+" ("+tt.reason+
				"); run: go run github.com/cudabind/cudabind/tools/headers@latest fetch 12.9")
		})
	}
}

// The headers of a library that is bound on request are not among those that fetching the version gets.
func TestFindRequested(t *testing.T) {
	want := filepath.Join(place(t), "12.9")
	sample.write(t, want)
	files, err := pinned(tree{"more.h": ""}, []string{"more.h"})
	require.NoError(t, err)
	_, err = sampleRelease(t).with(Library{"more", Package{Headers: files}}).Find()
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.EqualError(t, err, "headers of CUDA 12.9 are not in "+want+" (more.h is missing)"+
		"; run: go run github.com/cudabind/cudabind/tools/headers@latest fetch requested")
}

// What cannot be read is not missing: fetching would not help.
func TestFindUnreadable(t *testing.T) {
	base := place(t)
	require.NoError(t, os.MkdirAll(filepath.Join(base, "12.9", "cuda.h"), 0o755))
	_, err := sampleRelease(t).Find()
	require.Error(t, err)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "cuda.h")
}

func TestUnknownVersion(t *testing.T) {
	const want = "CUDA 12.7 is not a known version; known are 11.8, 12.0, "
	_, err := Find("12.7")
	assert.ErrorContains(t, err, want)
	_, err = Fetch(t.Context(), "12.7", nil)
	assert.ErrorContains(t, err, want)
	_, err = FetchFrom("12.7", t.TempDir())
	assert.ErrorContains(t, err, want)
}

// Whatever of the real headers is there must be what the manifest would pin.
func TestPinnedHeadersAreAllIncluded(t *testing.T) {
	found := 0
	for _, r := range Releases() {
		dir, err := r.Find()
		if err != nil {
			continue
		}
		found++
		roots := slices.Clone(runtimePart.roots)
		for _, l := range libraries {
			if slices.ContainsFunc(r.Libraries, func(have Library) bool { return have.Name == l.library }) {
				roots = append(roots, l.roots...)
			}
		}
		var want []File
		for _, p := range r.packages() {
			want = append(want, p.Headers...)
		}
		files, err := pinned(diskFolder(dir), withOptional(roots, diskFolder(dir)))
		require.NoError(t, err)
		assert.ElementsMatch(t, want, files, r.Version)
		assert.NoError(t, checkVersion(diskFolder(dir), r.Version))
	}
	if found == 0 {
		t.Skip("no headers are fetched; run: " + command + " fetch all")
	}
}
