//go:build amd64

package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBadLibrary names files that are no driver. A failure is not remembered.
func TestBadLibrary(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		for _, bad := range []struct {
			name  string
			write func(t *testing.T, file string)
			want  []string
		}{
			{"nothing", func(*testing.T, string) {}, []string{"install NVIDIA's driver"}},
			{"text", content("This is not a library.\n"), []string{"this is no library for Windows on amd64: install NVIDIA's driver"}},
			{"directory", func(t *testing.T, file string) { require.NoError(t, os.Mkdir(file, 0o777)) }, []string{"this is a directory, not a library"}},
			{"another library", source(otherSource), []string{"is not the CUDA driver", "no cuDriverGetVersion"}},
			{"stub", source(stubDriver), []string{"the CUDA toolkit's stub"}},
			{"no version", source(sickDriver), []string{"does not tell its version", "returned 999"}},
		} {
			t.Run(bad.name, func(t *testing.T) {
				dir := libraryFolder(t)
				file := filepath.Join(dir, libraryFile)
				bad.write(t, file)
				if bad.name != "directory" {
					requireLibraryError(t, driver.Open(file), file, bad.want...)
				}
				requireLibraryError(t, driver.Open(dir), dir, append(bad.want, file)...)
			})
		}
		_, file := library(t, goodDriver)
		require.NoError(t, driver.Open(file))
		assert.NoError(t, driver.CuInit(0))
	})
}

// TestOnlySystem32: the driver is loaded from there alone by its name, never from the
// current folder or from %PATH%.
func TestOnlySystem32(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		at, _ := library(t, goodDriver)
		t.Chdir(at)
		t.Setenv("PATH", at)
		if err := driver.CuInit(0); err != nil {
			requireLibraryError(t, err, libraryFile, "install NVIDIA's driver")
			return
		}
		file, _, err := driver.Library()
		require.NoError(t, err)
		assert.True(t, strings.EqualFold(filepath.Dir(file), filepath.Join(os.Getenv("SystemRoot"), "System32")), "%s was loaded", file)
	})
}

func TestOpen(t *testing.T) {
	for _, name := range []string{"file", "folder", "relative"} {
		t.Run(name, func(t *testing.T) {
			drivertest.InChild(t, func(t *testing.T) {
				dir, file := library(t, goodDriver)
				t.Chdir(dir)
				paths := map[string]string{"file": file, "folder": dir, "relative": `.\nvcuda.dll`}
				require.NoError(t, driver.Open(paths[name]))
				for again, path := range paths {
					assert.NoError(t, driver.Open(path), "again as %s", again)
				}
				assert.NoError(t, driver.Open(""), "what is open will do")
				_, other := library(t, goodDriver)
				requireLibraryError(t, driver.Open(other), other, "another library is open already")
				at, version, err := driver.Library()
				require.NoError(t, err)
				assert.Equal(t, "12.4", version)
				assert.True(t, strings.EqualFold(file, at), at)
			})
		})
	}
}

// TestConcurrentFirstCalls lets many goroutines make first calls at once.
func TestConcurrentFirstCalls(t *testing.T) {
	onFake(t, func(t *testing.T) {
		var done sync.WaitGroup
		for range 100 {
			done.Go(func() {
				var count int32
				assert.NoError(t, driver.CuDeviceGetCount(&count))
				assert.EqualValues(t, 11, count)
			})
		}
		done.Wait()
	})
}
