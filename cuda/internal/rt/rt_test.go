//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package rt

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/internal/command"
)

// TestInitOldDriver: the driver lacks functions that every supported one has.
func TestInitOldDriver(t *testing.T) {
	dir := t.TempDir()
	source, library := filepath.Join(dir, "library.c"), filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.WriteFile(source, []byte("int cuDriverGetVersion(int *version) { *version = 11040; return 0; }"), 0o666))
	cc := command.CC("-shared", "-fPIC", "-o", library, source)
	if cc.Err != nil {
		t.Skip("no C compiler: ", cc.Err)
	}
	out, err := cc.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, driver.Open(library))

	err = Init()
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "a driver for CUDA 11.8 or newer is needed")
	assert.ErrorContains(t, err, "cuCtxGetCurrent")
}
