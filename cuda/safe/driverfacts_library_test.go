//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// What a reset of a primary context leaves of libraries. Needs CUDA 12.0, and runs on any driver.

package safe_test

import (
	"os"
	"testing"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFactLibraryOutlivesReset: a library belongs to the process. Only cuLibraryUnload ends it, also
// after a reset of the context that has used it, and without a current context.
func TestFactLibraryOutlivesReset(t *testing.T) {
	needs(t, "cuLibraryLoadData")
	resetting(t, func(t *testing.T, x *safe.Context) {
		image, err := os.ReadFile("testdata/kernels.ptx")
		require.NoError(t, err)
		image = append(image, 0)
		var library driver.CUlibrary
		var module driver.CUmodule
		require.NoError(t, x.WithCurrent(func() error {
			return first(
				func() error {
					return driver.CuLibraryLoadData(&library, unsafe.Pointer(&image[0]), nil, nil, 0, nil, nil, 0)
				},
				func() error { return driver.CuLibraryGetModule(&module, library) },
			)
		}))
		reset(t, x)
		assert.NoError(t, driver.CuLibraryUnload(library))
	})
}
