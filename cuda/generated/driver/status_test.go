package driver_test

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
)

func TestStatusText(t *testing.T) {
	assert.Equal(t, "CUDA_ERROR_OUT_OF_MEMORY", driver.CUDA_ERROR_OUT_OF_MEMORY.String())
	assert.ErrorContains(t, driver.CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY")
	assert.Equal(t, "CUresult(4242)", driver.CUresult(4242).String())
	assert.EqualError(t, driver.CUresult(4242), "CUresult(4242)")
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
