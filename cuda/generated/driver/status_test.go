package driver_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/stretchr/testify/assert"
)

func TestStatusText(t *testing.T) {
	assert.Equal(t, "CUDA_ERROR_OUT_OF_MEMORY", driver.CUDA_ERROR_OUT_OF_MEMORY.String())
	assert.ErrorContains(t, driver.CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY")
	assert.Equal(t, "CUresult(4242)", driver.CUresult(4242).String())
	assert.EqualError(t, driver.CUresult(4242), "CUresult(4242)")
}

func TestStatus(t *testing.T) {
	for _, test := range []struct {
		name  string
		err   error
		code  driver.CUresult
		known bool
	}{
		{"success", nil, driver.CUDA_SUCCESS, true},
		{"a code", driver.CUDA_ERROR_NOT_READY, driver.CUDA_ERROR_NOT_READY, true},
		{"a code in an error", fmt.Errorf("copying: %w", driver.CUDA_ERROR_NOT_READY), driver.CUDA_ERROR_NOT_READY, true},
		{"a code of a newer driver", driver.CUresult(4242), 4242, true},
		{"a missing function", &driver.SymbolError{Symbol: "cuNew"}, ^driver.CUresult(0), false},
		{"a missing library", &driver.LibraryError{Library: "libcuda.so.1"}, ^driver.CUresult(0), false},
		{"an error of another library", nvrtc.NVRTC_ERROR_COMPILATION, ^driver.CUresult(0), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, known := driver.Status(test.err)
			assert.Equal(t, test.code, code)
			assert.Equal(t, test.known, known)
		})
	}
}

func TestStatusNotSupported(t *testing.T) {
	for code, want := range map[driver.CUresult]bool{
		driver.CUDA_ERROR_NOT_SUPPORTED:                  true,
		driver.CUDA_ERROR_STUB_LIBRARY:                   true,
		driver.CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:     true,
		driver.CUDA_ERROR_NOT_READY:                      false,
		driver.CUDA_ERROR_INVALID_VALUE:                  false,
		driver.CUDA_ERROR_UNSUPPORTED_PTX_VERSION:        false,
		driver.CUDA_ERROR_NOT_PERMITTED:                  false,
		driver.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:     false,
		driver.CUDA_ERROR_INVALID_RESOURCE_TYPE:          false,
		driver.CUDA_ERROR_CDP_NOT_SUPPORTED:              false,
		driver.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:         false,
		driver.CUDA_ERROR_UNSUPPORTED_LIMIT:              false,
		driver.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:        false,
		driver.CUDA_ERROR_STREAM_CAPTURE_ISOLATION:       false,
		driver.CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: false,
	} {
		assert.Equal(t, want, errors.Is(code, errors.ErrUnsupported), code)
	}
}
