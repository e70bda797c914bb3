//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Whatever a source names, and whatever its file system does: the call ends with its context.

package compile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// calling is a file system that calls a function when a file is opened.
type calling struct {
	fstest.MapFS
	open func()
}

func (c calling) Open(name string) (fs.File, error)     { c.open(); return c.MapFS.Open(name) }
func (c calling) Stat(name string) (fs.FileInfo, error) { return c.MapFS.Stat(name) }

func TestContextOfFileSystem(t *testing.T) {
	anyNVRTC(t, func(t *testing.T) {
		files := fstest.MapFS{"a.h": {Data: []byte("\n")}, "a.cu": {Data: []byte(twice)}}
		why := errors.New("no time left")
		x := open(t)
		for name, call := range map[string]func(ctx context.Context, files fs.FS) error{
			"a header": func(ctx context.Context, files fs.FS) error {
				o := own(t)
				o.Headers = []fs.FS{files}
				_, err := Compile(ctx, "#include \"a.h\"\n"+twice, o)
				return err
			},
			"the source": func(ctx context.Context, files fs.FS) error {
				_, err := LoadFS(ctx, x, files, "a.cu", own(t))
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				entered, leave := make(chan bool), make(chan bool)
				ctx, cancel := context.WithCancelCause(context.Background())
				go func() { <-entered; cancel(why) }()
				err := call(ctx, calling{files, func() { entered <- true; <-leave }}) // never returns from Open before
				assert.ErrorIs(t, err, why)
				close(leave)

				assert.PanicsWithValue(t, "ours", func() { _ = call(context.Background(), calling{files, func() { panic("ours") }}) })
				assert.ErrorContains(t, call(context.Background(), calling{files, runtime.Goexit}), "ended the goroutine")
			})
		}
	})
}

// TestContextEndsScan: a source that names very many files.
func TestContextEndsScan(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	o := own(t)
	reads := 0
	o.Headers = []fs.FS{calling{fstest.MapFS{"a.h": {Data: []byte("\n")}}, func() { reads++; cancel() }}}
	_, err := findIncludes(ctx, &o, text{source: "#include \"a.h\"\n" + strings.Repeat("#include <a.h>\n#include \"./a.h\"\n", 100)}, &cudaHeaders{})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, reads)
}

// TestFilesNotRead: files that are not read to find headers, with the source that names them.
func TestFilesNotRead(t *testing.T) {
	anyNVRTC(t, func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
		sparse := func(name string, size int64) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
			require.NoError(t, os.Truncate(filepath.Join(dir, name), size))
		}
		sparse("huge", 1<<42)
		sparse("large", maxText+1)
		require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "device")))
		require.NoError(t, os.Symlink("/proc/self/maps", filepath.Join(dir, "kernel")))
		for _, name := range []string{"pipe", "huge", "large", "device", "kernel"} {
			t.Run(name, func(t *testing.T) {
				o, file := own(t), filepath.Join(dir, name)
				_, err := Compile(context.Background(), "// #include \""+file+"\"\n"+twice, o)
				require.NoError(t, err)
				assert.Zero(t, images(t, o), "what is not read is not known")
				if name != "kernel" {
					_, err = LoadFile(context.Background(), open(t), file, o)
					assert.ErrorContains(t, err, file+" is ")
				}
			})
		}
		_, err := readFS(os.DirFS(dir), "pipe")
		assert.ErrorIs(t, err, safe.ErrInvalidArgument)
		_, err = readFS(os.DirFS(dir), "large")
		assert.ErrorIs(t, err, safe.ErrRange)
		text, _, err := readFile("/proc/self/maps", maxText)
		assert.NoError(t, err)
		assert.NotEmpty(t, text, "special must keep it out")
	})
}

// TestIncludesPaths: headers that include each other by ever longer paths are read once.
func TestIncludesPaths(t *testing.T) {
	f, o := tree{t, t.TempDir()}, own(t)
	line := "#include \"./a.h\"\n#include \"sub/../a.h\"\n#include \"../inc/a.h\"\n#include \"link/a.h\"\n#include \"sub/a.h\"\n"
	f.write("inc/a.h", line)
	f.write("inc/sub/a.h", "#include \"../a.h\"\n#include \"up/a.h\"\n")
	f.link(".", "inc/link")
	f.link("..", "inc/sub/up")
	i, err := findIncludes(context.Background(), &o, text{source: "#include \"" + f.dir + "/inc/a.h\"\n"}, &cudaHeaders{})
	require.NoError(t, err)
	assert.Len(t, i.disk, 2)
	assert.False(t, i.unsure)
}

// TestIncludesApart: a header in memory does not take the place of another one that is on disk by the same words.
func TestIncludesApart(t *testing.T) {
	for _, c := range []struct{ name, text, err string }{
		{"another file", "#define B 2\n", "; NVRTC takes both for the same: rename yours"},
		{"the same", "#define B 1\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, o := tree{t, t.TempDir()}, own(t)
			f.write("inc/b.h", c.text)
			o.IncludePaths = []string{filepath.Join(f.dir, "inc")}
			files := fstest.MapFS{"a/x.h": {Data: []byte("#include \"b.h\"\n")}, "a/b.h": {Data: []byte("#define B 1\n")}}
			_, err := findIncludes(context.Background(), &o, text{source: "#include \"a/x.h\"\n#include \"b.h\"\n", file: "k.cu", files: files}, &cudaHeaders{})
			if c.err == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.err)
			assert.ErrorContains(t, err, "#include \"b.h\" stands for a/b.h, which is in memory")
		})
	}
}

// TestFileAsFolder: a file of a file system that has the name of a folder in an #include hides nothing.
func TestFileAsFolder(t *testing.T) {
	f, o := tree{t, t.TempDir()}, own(t)
	f.write("cuda", "")
	f.write("inc/cuda/x.h", "")
	o.IncludePaths = []string{filepath.Join(f.dir, "inc")}
	_, err := findIncludes(context.Background(), &o, text{source: "#include <cuda/x.h>\n", file: "k.cu", files: os.DirFS(f.dir)}, &cudaHeaders{})
	assert.NoError(t, err)
}

// TestIncludesState: a header that has changed and changed back while a compiler may have read it
// is noticed.
func TestIncludesState(t *testing.T) {
	anyNVRTC(t, func(t *testing.T) {
		for _, change := range []bool{false, true} {
			f, o, opened := tree{t, t.TempDir()}, own(t), 0
			file := filepath.Join(f.dir, "a.h")
			f.write("a.h", "#define A 1\n")
			info, err := os.Stat(file)
			require.NoError(t, err)
			o.IncludePaths = []string{f.dir}
			o.Headers = []fs.FS{calling{fstest.MapFS{"b.h": {Data: []byte("\n")}}, func() {
				opened++
				for now := info; opened == 2 && change && changed(now) == changed(info); { // the clock of files may be coarse
					f.write("a.h", "#define A 2\n")
					f.write("a.h", "#define A 1\n")
					require.NoError(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
					now, err = os.Stat(file)
					require.NoError(t, err)
				}
			}}}
			_, err = Compile(context.Background(), "#include \"b.h\"\n#include <a.h>\n"+twice, o)
			require.NoError(t, err)
			assert.Equal(t, 2, opened, "before and after")
			assert.Equal(t, change, images(t, o) == 0)
		}
	})
}
