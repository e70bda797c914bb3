//go:build (linux && (amd64 || arm64) && (cgo || cudabind_nocgo)) || (windows && amd64)

package driver_test

import (
	"errors"
	"os"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	goodDriver = `
int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { *count = 3; return 0; }
int cuCtxCreate(void **context, unsigned flags, int device) { *context = (void *)1; return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = (void *)2; return 0; }
int cuMemPrefetchAsync_ptsz(void) { return 0; }
int cuMemPrefetchAsync_v2(void) { return 0; }
`
	stubDriver  = "int cuDriverGetVersion(int *version) { return 34; }"
	sickDriver  = "int cuDriverGetVersion(int *version) { return 999; }"
	otherSource = "int cuUnrelated(void) { return 0; }"
)

// exported are the functions of goodDriver.
var exported = []string{
	"cuDriverGetVersion", "cuInit", "cuDeviceGetCount", "cuCtxCreate", "cuCtxCreate_v2", "cuMemPrefetchAsync_ptsz", "cuMemPrefetchAsync_v2",
}

func content(text string) func(*testing.T, string) {
	return func(t *testing.T, file string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o666)) }
}

func source(text string) func(*testing.T, string) {
	return func(t *testing.T, file string) { compile(t, file, text) }
}

// requireLibraryError checks that err is one for library, and what it says.
func requireLibraryError(t *testing.T, err error, library string, says ...string) {
	t.Helper()
	var e *driver.LibraryError
	require.ErrorAs(t, err, &e)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.Equal(t, library, e.Library)
	for _, s := range append(says, library) {
		assert.ErrorContains(t, err, s)
	}
	assert.NotContains(t, err.Error(), "with Open", "package safe has another Open")
}

func TestSymbolError(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		_, file := library(t, goodDriver)
		require.NoError(t, driver.Open(file))
		var context driver.CUcontext
		var resource driver.CUdevResource
		for _, c := range []struct {
			symbol, since, older string
			call                 func() error
		}{
			{"cuCtxCreate_v4", "12.5", "cuCtxCreate_v2", func() error { return driver.CuCtxCreate(&context, nil, 0, 0) }},
			{"cuCtxCreate_v3", "11.4", "cuCtxCreate_v2", func() error { return driver.CuCtxCreate_v3(&context, nil, 0, 0, 0) }},
			{"cuMemPrefetchAsync_v2_ptsz", "12.2", "cuMemPrefetchAsync_ptsz", func() error {
				return driver.CuMemPrefetchAsync_v2_ptsz(0, 0, driver.CUmemLocation{}, 0, 0)
			}},
			{"cuMemPrefetchAsync", "8.0", "", func() error { return driver.CuMemPrefetchAsync_v1(0, 0, 0, 0) }},
			{"cuStreamGetDevResource", "13.1", "", func() error { return driver.CuStreamGetDevResource(0, &resource, 0) }},
		} {
			t.Run(c.symbol, func(t *testing.T) {
				want := &driver.SymbolError{Symbol: c.symbol, Since: c.since, Library: file, Version: "12.4", Older: c.older}
				text := "cuda: " + file + " (CUDA 12.4) has no " + c.symbol + ": "
				if c.since == "12.5" || c.since == "13.1" {
					text += "it needs CUDA " + c.since
				} else {
					text += "CUDA has had it since " + c.since + ", but this library lacks it, as a simulated driver lacks some functions"
				}
				if c.older != "" {
					text += "; the older " + c.older + " is there"
				}
				for range 2 { // the second call is no different
					err := c.call()
					var e *driver.SymbolError
					require.ErrorAs(t, err, &e)
					assert.Equal(t, want, e)
					assert.ErrorIs(t, err, errors.ErrUnsupported)
					assert.EqualError(t, err, text)
				}
				assert.Equal(t, want, driver.Find(c.symbol))
			})
		}
		require.NoError(t, driver.CuCtxCreate_v2(&context, 0, 0))
		assert.EqualValues(t, 2, context)
		require.NoError(t, driver.CuCtxCreate_v1(&context, 0, 0))
		assert.EqualValues(t, 1, context)
	})
}

func TestFindAndMissing(t *testing.T) {
	drivertest.InChild(t, func(t *testing.T) {
		_, file := library(t, goodDriver)
		require.NoError(t, driver.Open(file))
		want := driver.Symbols()
		for _, symbol := range exported {
			assert.NoError(t, driver.Find(symbol))
			delete(want, symbol)
		}
		assert.Equal(t, &driver.SymbolError{Symbol: "cuNoSuch_v2", Library: file, Version: "12.4"}, driver.Find("cuNoSuch_v2"))
		assert.EqualError(t, driver.Find("cuNoSuch"), "cuda: "+file+" (CUDA 12.4) has no cuNoSuch")

		missing, err := driver.Missing()
		require.NoError(t, err)
		got := map[string]string{}
		for _, m := range missing {
			got[m.Symbol] = m.Since
			assert.Equal(t, m, driver.Find(m.Symbol))
		}
		assert.Equal(t, want, got)
	})
}
