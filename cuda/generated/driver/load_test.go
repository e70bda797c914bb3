//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package driver_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const lackingDriver = "int absent(void); int cuDriverGetVersion(int *version) { return absent(); }"

// badFiles are files that are no driver, with what is said of each.
var badFiles = []struct {
	name  string
	write func(t *testing.T, file string)
	want  []string
}{
	{"nothing", func(*testing.T, string) {}, []string{"No such file", "install NVIDIA's driver", "or set LD_LIBRARY_PATH"}},
	{"empty file", content(""), []string{"file too short", "install NVIDIA's driver"}},
	{"text", content("This is not a library.\nIt only has the name of one, and is as long as a header.\n"), []string{"invalid ELF header"}},
	{"cut off", damaged(func(elf []byte) []byte { return elf[:40] }), []string{"file too short"}},
	{"another machine", damaged(func(elf []byte) []byte { elf[18], elf[19] = 243, 0; return elf }), []string{"libcuda.so.1: this library is built for riscv, but the program for " + runtime.GOARCH + ": install NVIDIA's driver"}},
	{"unknown machine", damaged(func(elf []byte) []byte { elf[18], elf[19] = 1, 2; return elf }), []string{"built for ELF machine 513, but the program"}},
	{"big-endian machine", damaged(func(elf []byte) []byte { elf[5], elf[18], elf[19] = 2, 0, 21; return elf }), []string{"built for ppc64, but the program"}},
	{"32 bits", damaged(func(elf []byte) []byte { elf[4], elf[18], elf[19] = 1, 3, 0; return elf }), []string{"built for 386 (32 bits), but the program"}},
	{"half of it", damaged(func(elf []byte) []byte { return elf[:len(elf)/2] }), []string{"libcuda.so.1: this library is damaged: it has ", " bytes, but a segment of "}},
	{"another library", source(otherSource), []string{"is not the CUDA driver", "no cuDriverGetVersion"}},
	{"stub", source(stubDriver), []string{"the CUDA toolkit's stub", "install NVIDIA's driver"}},
	{"no version", source(sickDriver), []string{"does not tell its version", "returned 999"}},
	{"missing part", source(lackingDriver), []string{"undefined symbol: absent"}},
}

func damaged(damage func([]byte) []byte) func(*testing.T, string) {
	return func(t *testing.T, file string) {
		compile(t, file, goodDriver)
		elf, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, damage(elf), 0o666))
	}
}

// TestBadLibraryByPath also shows that a failure is not remembered: one process
// goes through all of them and then loads a driver.
func TestBadLibraryByPath(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		for _, bad := range badFiles {
			t.Run(bad.name, func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, "libcuda.so.1")
				bad.write(t, file)
				requireLibraryError(t, driver.Open(file), file, bad.want...)
				requireLibraryError(t, driver.Open(dir), dir, append(bad.want, file)...)
			})
		}
		_, file := library(t, goodDriver)
		require.NoError(t, driver.Open(file))
		assert.NoError(t, driver.CuInit(0))
	})
}

// TestBadLibraryByName lets the first call find the library where libraries
// usually are.
func TestBadLibraryByName(t *testing.T) {
	for _, bad := range badFiles {
		t.Run(bad.name, func(t *testing.T) {
			dir := t.TempDir()
			if drivertest.InParent() {
				bad.write(t, filepath.Join(dir, "libcuda.so.1"))
			}
			drivertest.InChild(t, func(t *testing.T) {
				err := driver.CuInit(0)
				if _, _, ok := driver.Library(); ok == nil {
					t.Skip("the system's loader goes on and finds a driver")
				}
				requireLibraryError(t, err, "libcuda.so.1", bad.want...)
				_, _, err = driver.Library()
				requireLibraryError(t, err, "libcuda.so.1")
				requireLibraryError(t, driver.Find("cuInit"), "libcuda.so.1")
				_, err = driver.Missing()
				requireLibraryError(t, err, "libcuda.so.1")
				requireLibraryError(t, driver.Open(""), "libcuda.so.1")

				_, file := library(t, goodDriver)
				require.NoError(t, driver.Open(file), "the failure is remembered")
				assert.NoError(t, driver.CuInit(0))
			}, libraryVariable+"="+dir)
		})
	}
}

// TestDirectoryAsLibrary has a directory of the library's name where the library should be.
func TestDirectoryAsLibrary(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.Mkdir(file, 0o777))
	drivertest.InChild(t, func(t *testing.T) {
		if driver.Open("") == nil {
			t.Skip("the system's loader goes on and finds a driver")
		}
		dir := os.Getenv(libraryVariable)
		says := "libcuda.so.1: this is a directory, not a library: install NVIDIA's driver"
		requireLibraryError(t, driver.CuInit(0), "libcuda.so.1", says, dir)
		requireLibraryError(t, driver.Open(dir), dir, says)
		requireLibraryError(t, driver.Open(dir+"/libcuda.so.1"), dir+"/libcuda.so.1", "libcuda.so.1/libcuda.so.1: cannot open")
	}, libraryVariable+"="+dir)
}

func TestOpen(t *testing.T) {
	for _, name := range []string{"file", "folder", "relative", "link"} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				dir, file := library(t, goodDriver)
				t.Chdir(dir)
				require.NoError(t, os.Symlink(file, "link.so"))
				paths := map[string]string{
					"file": file, "folder": dir, "relative": "./libcuda.so.1", "link": "./link.so",
				}
				require.NoError(t, driver.Open(paths[name]))
				for again, path := range paths {
					assert.NoError(t, driver.Open(path), "again as %s", again)
				}
				assert.NoError(t, driver.Open(""), "what is open will do")

				other, otherFile := library(t, goodDriver)
				requireLibraryError(t, driver.Open(otherFile), otherFile, "another library is open already")
				requireLibraryError(t, driver.Open(other), other, "another library is open already", dir)
				requireLibraryError(t, driver.Open("absent"), "absent", "another library is open already")

				at, version, err := driver.Library()
				require.NoError(t, err)
				assert.Equal(t, "12.4", version)
				assert.Equal(t, file, resolved(t, at))
			})
		})
	}
}

// TestOpenByName names the library as the system's loader knows it.
func TestOpenByName(t *testing.T) {
	dir := t.TempDir()
	if drivertest.InParent() {
		compile(t, filepath.Join(dir, "libcuda.so.1"), goodDriver)
	}
	drivertest.InChild(t, func(t *testing.T) {
		require.NoError(t, driver.Open("libcuda.so.1"))
		assert.NoError(t, driver.Open("libcuda.so.1"))
		assert.NoError(t, driver.Open(filepath.Join(os.Getenv(libraryVariable), "libcuda.so.1")))
		at, _, err := driver.Library()
		require.NoError(t, err)
		assert.Equal(t, os.Getenv(libraryVariable), filepath.Dir(at))
	}, libraryVariable+"="+dir)
}

// TestOpenNameInCurrentFolder: a name is the system's loader's, and a path is a file.
func TestOpenNameInCurrentFolder(t *testing.T) {
	for _, test := range []struct{ name, path string }{
		{"not found", "/absent"},
		{"no path", ""},
		{"found", "DIR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if drivertest.InParent() && test.path == "DIR" {
				compile(t, filepath.Join(dir, "libcuda.so.1"), goodDriver)
			}
			drivertest.InChild(t, func(t *testing.T) {
				here, file := library(t, sickDriver)
				t.Chdir(here)
				for _, name := range []string{"libcuda.so.1", "other.so", "."} {
					if name == "other.so" {
						require.NoError(t, os.Link(file, name))
					}
					err := driver.Open(name)
					if at, _, _ := driver.Library(); err == nil && name == "libcuda.so.1" {
						assert.NotEqual(t, file, at)
						return
					}
					requireLibraryError(t, err, name, "for the one in the current folder, write ./"+name)
					assert.NotContains(t, err.Error(), "returned 999", "it was loaded")
				}
				requireLibraryError(t, driver.Open("./libcuda.so.1"), "./libcuda.so.1", "returned 999")
				requireLibraryError(t, driver.Open("./"), "./", "returned 999")
			}, libraryVariable+"="+strings.Replace(test.path, "DIR", dir, 1))
		})
	}
}

func resolved(t *testing.T, file string) string {
	t.Helper()
	file, err := filepath.EvalSymlinks(file)
	require.NoError(t, err)
	return file
}

// TestConcurrentFirstCalls lets many goroutines make the first calls of the
// process at once.
func TestConcurrentFirstCalls(t *testing.T) {
	dir := t.TempDir()
	if drivertest.InParent() {
		compile(t, filepath.Join(dir, "libcuda.so.1"), goodDriver)
	}
	drivertest.InChild(t, func(t *testing.T) {
		calls := []func() error{
			func() error { return driver.CuInit(0) },
			func() error {
				var count int32
				err := driver.CuDeviceGetCount(&count)
				assert.EqualValues(t, 3, count)
				return err
			},
			func() error {
				var version int32
				err := driver.CuDriverGetVersion(&version)
				assert.EqualValues(t, 12040, version)
				return err
			},
			func() error { _, _, err := driver.Library(); return err },
			func() error { _, err := driver.Missing(); return err },
			func() error { return driver.Open("") },
			func() error { return driver.Find("cuInit") },
		}
		var start, done sync.WaitGroup
		start.Add(1)
		for i := range 20 * len(calls) {
			done.Go(func() {
				start.Wait()
				assert.NoError(t, calls[i%len(calls)]())
			})
		}
		start.Done()
		done.Wait()
	}, libraryVariable+"="+dir)
}

// TestOtherCLibrary: a program built with musl gets dlerror's text and the reason for it.
func TestOtherCLibrary(t *testing.T) {
	const why = "Error relocating libcuda.so.1: __register_atfork: symbol not found"
	for _, file := range []string{"libcuda.so.1", "/absent/libcuda.so.1"} {
		assert.Equal(t, why, driver.Refusal(file, why, true))
		assert.Equal(t, why+" (NVIDIA's libraries need glibc, and this program was built with another C library)", driver.Refusal(file, why, false))
	}
}

// TestBuildStatically: libraries that a static glibc loads crash, so the package must not
// load one, whether or not there is a driver.
func TestBuildStatically(t *testing.T) {
	cmd := command.Go("run", "-ldflags=-linkmode=external -extldflags=-static", ".")
	if cmd.Err != nil {
		t.Skip("no Go: ", cmd.Err)
	}
	dir, env := tinyModule(t)
	c := filepath.Join(dir, "probe.txt")
	require.NoError(t, os.WriteFile(c, []byte("int main(void) { return 0; }"), 0o666))
	if out, err := command.CC("-static", "-x", "c", "-o", filepath.Join(dir, "probe"), c).CombinedOutput(); err != nil {
		t.Skipf("no static C library: %v: %s", err, out)
	}
	file := filepath.Join(dir, "libcuda.so.1")
	compile(t, file, "int cuDriverGetVersion(int *version) { *version = 12040; return 0; } int cuInit(unsigned flags) { return flags; }")
	cmd.Dir, cmd.Env = dir, append(env, "CGO_ENABLED=1", "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Regexp(t, `(?m)^true true\ncuda: libcuda.so.1: this program is statically linked`, string(out))
}
