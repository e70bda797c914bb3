package headers

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fillDisk makes writing fail at the nth file, half of which is written.
func fillDisk(t *testing.T, n int) {
	old := writeFile
	t.Cleanup(func() { writeFile = old })
	writeFile = func(name string, data []byte, perm os.FileMode) error {
		if n--; n > 0 {
			return old(name, data, perm)
		}
		if err := old(name, data[:len(data)/2], perm); err != nil {
			return err
		}
		return &os.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
	}
}

func TestFullDisk(t *testing.T) {
	for name, there := range map[string]tree{
		"over nothing": nil,
		"over damage":  sample.with("cuda.h", "damaged"),
	} {
		t.Run(name, func(t *testing.T) {
			base, from := place(t), t.TempDir()
			sample.write(t, from)
			there.write(t, filepath.Join(base, "12.9"))
			before := names(t, base)

			fillDisk(t, 3)
			_, err := sampleRelease(t).FetchFrom(from)
			require.ErrorIs(t, err, syscall.ENOSPC)
			assert.ErrorContains(t, err, "CUDA 12.9: write "+base)
			assert.Equal(t, before, names(t, base), "what was there is as it was")
		})
	}
}

func TestNoPlaceForHeaders(t *testing.T) {
	base, from := place(t), t.TempDir()
	sample.write(t, from)

	t.Run("a file for the version's folder", func(t *testing.T) {
		require.NoError(t, os.MkdirAll(base, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(base, "12.9"), nil, 0o644))
		_, err := sampleRelease(t).FetchFrom(from)
		assert.ErrorContains(t, err, filepath.Join(base, "12.9"))
		assert.Equal(t, []string{"12.9"}, names(t, base))
	})
	t.Run("a folder for a header", func(t *testing.T) {
		require.NoError(t, os.Remove(filepath.Join(base, "12.9")))
		require.NoError(t, os.MkdirAll(filepath.Join(base, "12.9", "cuda.h", "x"), 0o755))
		_, err := sampleRelease(t).FetchFrom(from)
		assert.ErrorContains(t, err, filepath.Join(base, "12.9")+" cannot be mended, remove it")
		assert.Equal(t, []string{"12.9"}, names(t, base))
	})
	t.Run("a file for the folder of all", func(t *testing.T) {
		t.Setenv(EnvDir, filepath.Join(from, "cuda.h"))
		_, err := sampleRelease(t).FetchFrom(from)
		assert.ErrorContains(t, err, "cuda.h")
	})
}

// TestLinksAreNotMended: a user may have put his toolkit where headers are kept.
func TestLinksAreNotMended(t *testing.T) {
	for _, link := range []struct{ name, at, to string }{
		{"the version", "12.9", ""},
		{"a folder in it", "12.9/sub", "sub"},
	} {
		t.Run(link.name, func(t *testing.T) {
			base, from, toolkit := place(t), t.TempDir(), t.TempDir()
			sample.write(t, from)
			other := sample.with("sub/more.h", "of another patch")
			other.write(t, toolkit)
			at := filepath.Join(base, filepath.FromSlash(link.at))
			require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
			require.NoError(t, os.Symlink(filepath.Join(toolkit, link.to), at))
			_, err := sampleRelease(t).FetchFrom(from)
			assert.ErrorContains(t, err, "remove it and try again")
			for name, text := range other {
				data, err := os.ReadFile(filepath.Join(toolkit, filepath.FromSlash(name)))
				require.NoError(t, err)
				assert.Equal(t, text, string(data), name)
			}
		})
	}
}

// Many fetch at once, over nothing and over a damaged folder: all succeed, and
// a header that was whole is whole at every moment.
func TestFetchAtOnce(t *testing.T) {
	for name, there := range map[string]tree{
		"over nothing": nil,
		"over damage":  sample.with("sub/more.h", "damaged"),
	} {
		t.Run(name, func(t *testing.T) {
			r, base := sampleRelease(t), place(t)
			dir := filepath.Join(base, "12.9")
			there.write(t, dir)
			fakePip(t, sampleWheel, packed(t, inWheel(sample)))

			atOnce(8, func() {
				got, err := r.Fetch(t.Context(), nil)
				if assert.NoError(t, err) {
					assert.NoError(t, r.verify(got))
				}
				data, err := os.ReadFile(filepath.Join(dir, "cuda.h"))
				assert.NoError(t, err)
				assert.Equal(t, sample["cuda.h"], string(data))
			})
			assert.Equal(t, []string{"12.9"}, names(t, base))
		})
	}
}

// The same without the download, so that the renames meet.
func TestPlaceAtOnce(t *testing.T) {
	for range 20 {
		r, base := sampleRelease(t), place(t)
		files := map[string][]byte{}
		require.NoError(t, r.load(sample, files))
		atOnce(8, func() {
			dir, err := r.install(files)
			if assert.NoError(t, err) {
				assert.NoError(t, r.verify(dir))
			}
		})
		assert.Equal(t, []string{"12.9"}, names(t, base))
	}
}

func atOnce(n int, f func()) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range n {
		wg.Go(func() { <-start; f() })
	}
	close(start)
	wg.Wait()
}
