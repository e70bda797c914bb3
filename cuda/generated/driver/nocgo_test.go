//go:build !(linux && (amd64 || arm64) && (cgo || cudabind_nocgo)) && !(windows && amd64)

package driver_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWithoutCgo(t *testing.T) {
	_, _, noLibrary := driver.Library()
	_, noList := driver.Missing()
	for name, err := range map[string]error{
		"call": driver.CuInit(0), "library": noLibrary, "missing": noList, "find": driver.Find("cuInit"),
		"open": driver.Open(""), "open a file": driver.Open("libcuda.so.1"),
	} {
		var e *driver.LibraryError
		require.ErrorAs(t, err, &e, name)
		assert.Equal(t, "libcuda.so.1", e.Library, name)
		assert.ErrorIs(t, err, errors.ErrUnsupported, name)
		assert.ErrorContains(t, err, "built without cgo", name)
		assert.ErrorContains(t, err, "CGO_ENABLED=1", name)
	}
}
