//go:build linux && (cgo || cudabind_nocgo)

package sim_test

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBuildFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct{ name, dir, version, cc, says string }{
		{"too old", "", "11.7", "", `cannot simulate a driver for CUDA "11.7": versions range from 11.8 to ` + sim.Newest},
		{"too new", "", "99.0", "", `cannot simulate a driver for CUDA "99.0"`},
		{"no version", "", "new", "", `cannot simulate a driver for CUDA "new"`},
		{"half a version", "", "13", "", `cannot simulate a driver for CUDA "13"`},
		{"no compiler", "", sim.Newest, "no-such-compiler", "building the simulated driver with no-such-compiler"},
		{"a compiler that fails", "", sim.Newest, "false", "building the simulated driver with false: exit status 1"},
		{"no folder", file, sim.Newest, "", "not a directory"},
		{"below no folder", filepath.Join(file, "sub"), sim.Newest, "", "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.cc != "" {
				t.Setenv("CC", c.cc)
			}
			dir := c.dir
			if dir == "" {
				dir = t.TempDir()
			}
			file, err := sim.Build(dir, c.version)
			assert.Empty(t, file)
			require.ErrorContains(t, err, c.says)
			if c.dir == "" {
				left, err := os.ReadDir(dir)
				require.NoError(t, err)
				assert.Empty(t, left)
			}
		})
	}
}

// TestBuildOfVersions: a driver has the functions of its CUDA version and of
// older ones.
func TestBuildOfVersions(t *testing.T) {
	for _, c := range []struct {
		version   string
		has, lack []string
	}{
		{"11.8", []string{"cuInit", "cuStreamBeginCapture_v2"}, []string{"cuLibraryLoadData", "cuCtxGetId", "cuStreamGetId", "cuFuncGetParamInfo", "cuEventElapsedTime_v2"}},
		{"12.4", []string{"cuInit", "cuLibraryLoadData", "cuCtxGetId", "cuStreamGetId", "cuFuncGetParamInfo"}, []string{"cuEventElapsedTime_v2", "cuStreamGetDevice"}},
	} {
		t.Run(c.version, func(t *testing.T) {
			file, err := sim.Build(t.TempDir(), c.version)
			require.NoError(t, err)
			has := exported(t, file)
			for _, name := range c.has {
				assert.True(t, has[name], name)
			}
			for _, name := range c.lack {
				assert.False(t, has[name], name)
			}
			assert.True(t, has["simFail"], "what tests tell it")
			assert.False(t, has["enqueue"], "internal functions")
		})
	}
}

func exported(t *testing.T, file string) map[string]bool {
	t.Helper()
	f, err := elf.Open(file)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	all := map[string]bool{}
	for _, s := range symbols {
		all[s.Name] = s.Section != elf.SHN_UNDEF
	}
	return all
}

func TestNewest(t *testing.T) {
	file, version, err := driver.Library()
	require.NoError(t, err)
	assert.Equal(t, library, file)
	assert.Equal(t, sim.Newest, version)
	for _, name := range []string{"cuLibraryLoadData", "cuFuncGetParamInfo", "cuStreamGetDevice"} {
		assert.NoError(t, driver.Find(name))
	}
	assert.Error(t, driver.Find("simulate"))
}

func TestAttach(t *testing.T) {
	_, err := sim.Attach("/no/such/library")
	assert.ErrorContains(t, err, "/no/such/library is not loaded")
	_, err = sim.Attach("libc.so.6")
	assert.ErrorContains(t, err, "is not a simulated driver: it has no simFail")
	control, err = sim.Attach(library)
	assert.NoError(t, err)
}
