//go:build linux

package sim

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeCC is a compiler that makes a file of its arguments, and counts how often.
const fakeCC = `#!/bin/sh
case "$*" in *-v) echo version 1; exit 0;; esac
echo >> "$(dirname "$0")/compiled"
while [ "$1" != -o ]; do flags="$flags $1"; shift; done
for i in 0 1 2 3 4 5 6 7 8 9; do seq 10000; done > "$2"
`

// compiler makes tests use a compiler of their own and an empty folder of kept
// libraries. It returns that folder and how many libraries were compiled.
func compiler(t *testing.T) (dir string, compiled func() int) {
	t.Helper()
	bin, dir := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	cc := filepath.Join(bin, "cc.sh")
	require.NoError(t, os.WriteFile(cc, []byte(fakeCC), 0o777))
	t.Setenv("CC", cc+" -m64")
	t.Setenv(EnvDir, dir)
	return dir, func() int {
		text, _ := os.ReadFile(filepath.Join(bin, "compiled"))
		return bytes.Count(text, []byte("\n"))
	}
}

func build(t *testing.T, version string) []byte {
	t.Helper()
	file, err := Build(t.TempDir(), version)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Len(t, text, 488940+len(mark), "the whole library")
	return text
}

// TestKept: a library is compiled once for all that it is made of.
func TestKept(t *testing.T) {
	dir, compiled := compiler(t)
	build(t, "13.0")
	build(t, "13.0")
	assert.Equal(t, 1, compiled(), "the second is the first")
	build(t, "12.4")
	assert.Equal(t, 2, compiled(), "another version")
	t.Setenv("CC", os.Getenv("CC")+" -g3")
	build(t, "12.4")
	assert.Equal(t, 3, compiled(), "another flag")
	cc := strings.Fields(os.Getenv("CC"))[0]
	require.NoError(t, os.WriteFile(cc, []byte(strings.Replace(fakeCC, "version 1", "version 2", 1)), 0o777))
	build(t, "12.4")
	assert.Equal(t, 4, compiled(), "another compiler")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 4, "and nothing else")
}

// TestKeptBySource: a change of any file that is compiled is another library.
func TestKeptBySource(t *testing.T) {
	compiler(t)
	l, err := newLibrary(driverOn(linux), 13000)
	require.NoError(t, err)
	source, protos := t.TempDir(), t.TempDir()
	require.NoError(t, os.CopyFS(source, os.DirFS(l.source)))
	require.NoError(t, os.CopyFS(protos, os.DirFS(l.protos)))
	first := l.kept()
	l.source, l.protos = source, protos
	assert.Equal(t, first, l.kept(), "the same in another place")
	seen := map[string]bool{first: true}
	for _, file := range []string{filepath.Join(source, "copy.c"), filepath.Join(source, "sim.h"), filepath.Join(protos, "zprotos.h"), filepath.Join(source, "new.c")} {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		require.NoError(t, err)
		_, err = f.WriteString("\n")
		require.NoError(t, err)
		require.NoError(t, f.Close())
		assert.False(t, seen[l.kept()], file)
		seen[l.kept()] = true
	}
}

// TestKeptAtOnce: programs that build the same at the same time find it whole.
func TestKeptAtOnce(t *testing.T) {
	dir, _ := compiler(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 3 {
				build(t, "13.0")
			}
		})
	}
	all.Wait()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

// TestNotKept: where nothing can be kept, libraries are built each time.
func TestNotKept(t *testing.T) {
	_, compiled := compiler(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	for i, set := range []func(){
		func() { t.Setenv(EnvDir, filepath.Join(file, "below")) },
		func() { t.Setenv(EnvDir, ""); t.Setenv("XDG_CACHE_HOME", ""); t.Setenv("HOME", "") },
	} {
		set()
		build(t, "13.0")
		build(t, "13.0")
		assert.Equal(t, 2*i+2, compiled())
	}
}

// keepOld builds libraries of two versions, and makes the kept one of the first look unused.
func keepOld(t *testing.T, dir string) (kept string, old time.Time) {
	t.Helper()
	build(t, "13.0")
	found, err := filepath.Glob(filepath.Join(dir, "*.so"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	old = time.Now().Add(-unused - time.Hour)
	require.NoError(t, os.Chtimes(found[0], old, old))
	return found[0], old
}

// TestTrim: what no program has taken for a month goes.
func TestTrim(t *testing.T) {
	dir, compiled := compiler(t)
	kept, old := keepOld(t, dir)
	build(t, "13.0")
	require.Equal(t, 1, compiled())
	build(t, "12.4")
	assert.FileExists(t, kept, "it was taken")
	require.NoError(t, os.Chtimes(kept, old, old))
	build(t, "12.0")
	assert.NoFileExists(t, kept)
}

// TestTrimLeavesOthers: the folder may hold files of the user's, as old as they are.
func TestTrimLeavesOthers(t *testing.T) {
	dir, _ := compiler(t)
	kept, old := keepOld(t, dir)
	made, err := os.ReadFile(kept)
	require.NoError(t, err)
	name := strings.Repeat("0", 64) + ".so"
	for _, other := range []struct{ name, file, text string }{
		{"a name of the user's", "libcuda.so.1", string(made)},
		{"a name like ours", "0123abcd.so", string(made)},
		{"our name for other text", name, "my thesis"},
		{"our name for a library cut off", strings.Repeat("1", 64) + ".so", string(made[:len(made)-1])},
		{"a folder", "thesis/thesis.tex", "my thesis"},
		{"a folder of our name", strings.Repeat("2", 64) + ".so/thesis.tex", "my thesis"},
		{"a folder that looks temporary", ".keep-1/thesis.tex", "my thesis"},
	} {
		t.Run(other.name, func(t *testing.T) {
			file := filepath.Join(dir, other.file)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
			require.NoError(t, os.WriteFile(file, []byte(other.text), 0o600))
			for _, f := range []string{file, filepath.Dir(file)} {
				if f != dir {
					require.NoError(t, os.Chtimes(f, old, old))
				}
			}
			trimmed(t, dir)
			assert.FileExists(t, file)
		})
	}
	t.Run("a link to one of ours", func(t *testing.T) {
		link := filepath.Join(dir, strings.Repeat("3", 64)+".so")
		require.NoError(t, os.Symlink("libcuda.so.1", link))
		trimmed(t, dir)
		_, err := os.Lstat(link)
		assert.NoError(t, err)
	})
	assert.NoFileExists(t, kept, "ours")
	if os.Geteuid() == 0 {
		require.NoError(t, os.WriteFile(kept, made, 0o600))
		require.NoError(t, os.Chown(kept, 65534, 65534))
		require.NoError(t, os.Chtimes(kept, old, old))
		trimmed(t, dir)
		assert.FileExists(t, kept, "of another user")
	}
}

func trimmed(t *testing.T, dir string) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	trim(root)
}

// TestKeptByOthers: a folder or a library that others can change is not believed.
func TestKeptByOthers(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, dir, kept string)
	}{
		{"folder", func(t *testing.T, dir, kept string) { require.NoError(t, os.Chmod(dir, 0o777)) }},
		{"library", func(t *testing.T, dir, kept string) { require.NoError(t, os.Chmod(kept, 0o666)) }},
		{"damaged library", func(t *testing.T, dir, kept string) { require.NoError(t, os.Truncate(kept, 1000)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, compiled := compiler(t)
			kept, _ := keepOld(t, dir)
			test.change(t, dir, kept)
			build(t, "13.0")
			assert.Equal(t, 2, compiled())
		})
	}
}

// TestBuildReplaces: Build replaces a library of its own, and nothing else.
func TestBuildReplaces(t *testing.T) {
	compiler(t)
	for _, build := range []struct {
		name string
		file string
		make func(dir string) error
	}{
		{"driver", "libcuda.so.1", func(dir string) error { _, err := Build(dir, "13.0"); return err }},
		{"NVRTC", "libnvrtc.so.13", func(dir string) error { _, err := BuildNVRTC(dir, "13.0"); return err }},
		{"NVRTC before the older one", "libnvrtc.so.13", func(dir string) error { _, err := BuildNVRTC(dir, "12.4"); return err }},
		{"kernels", "libsimkernels.so", func(dir string) error { _, err := BuildKernels(dir, "testdata/kernels.c"); return err }},
	} {
		t.Run(build.name, func(t *testing.T) {
			dir := t.TempDir()
			file, other := filepath.Join(dir, build.file), filepath.Join(t.TempDir(), "other")
			require.NoError(t, os.WriteFile(other, []byte("NVIDIA's"), 0o600))
			require.NoError(t, build.make(dir))
			require.NoError(t, build.make(dir), "its own")
			require.NoError(t, os.Remove(file))

			require.NoError(t, os.WriteFile(file, []byte("NVIDIA's"), 0o600))
			assert.ErrorContains(t, build.make(dir), file+" is not a simulated library that you have built: remove it, or choose another folder")
			require.NoError(t, os.Remove(file))

			require.NoError(t, os.Symlink(other, file))
			assert.ErrorContains(t, build.make(dir), file+" is not a simulated library")
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, "NVIDIA's", string(text))
		})
	}
}
