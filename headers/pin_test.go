package headers

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPin(t *testing.T) {
	base := place(t)
	fakePip(t, sampleWheel, packed(t, inWheel(sample)))
	var progress bytes.Buffer
	r, err := Pin(t.Context(), "12.9", &progress)
	require.NoError(t, err)
	want := sampleRelease(t)
	want.Wheel = "nvidia-cuda-runtime-cu12"
	want.Platform = "manylinux2014_x86_64" // the newest of the two in the name
	assert.Equal(t, want, r)
	assert.Equal(t, "CUDA 12.9: downloading the newest nvidia-cuda-runtime-cu12\n", progress.String())
	assert.Empty(t, names(t, base))
	assert.Empty(t, names(t, os.TempDir()))
}

func TestPinFails(t *testing.T) {
	good := inWheel(sample)
	tests := []struct {
		name, version, wheel string
		in                   tree
		want                 string
	}{
		{"no version", "newest", sampleWheel, good, `"newest" is no CUDA version`},
		{"a patch", "12.9.1", sampleWheel, good, `"12.9.1" is no CUDA version`},
		{"pre-release", "12.9", "p-12.9.1rc1-py3-none-manylinux1_x86_64.whl", good, "is a pre-release"},
		{"odd name", "12.9", "p.whl", good, "does not have the name of a wheel"},
		{"odd platform", "12.9", "p-12.9.1-py3-none-win_amd64.whl", good, "is for none of"},
		{"another version inside", "12.8", "p-12.8.1-py3-none-manylinux1_x86_64.whl", good, "it is of CUDA 12.9, not 12.8"},
		{"another version outside", "12.9", "p-12.8.1-py3-none-manylinux1_x86_64.whl", good, "wheel_version is 12.8.1"},
		{"root missing", "12.9", sampleWheel, inWheel(sample.without("cudaTypedefs.h")), "lacks the header cudaTypedefs.h"},
		{"no include folder", "12.9", sampleWheel, sample, "has no include/cuda.h"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			place(t)
			fakePip(t, tt.wheel, packed(t, tt.in))
			_, err := Pin(t.Context(), tt.version, nil)
			assert.ErrorContains(t, err, tt.want)
			assert.Empty(t, names(t, os.TempDir()))
		})
	}
}

func TestWheelOf(t *testing.T) {
	for version, want := range map[string]string{
		"11.8": "nvidia-cuda-runtime-cu11", "12.0": "nvidia-cuda-runtime-cu12",
		"13.0": "nvidia-cuda-runtime", "14.0": "nvidia-cuda-runtime",
	} {
		assert.Equal(t, want, wheelOf(version))
	}
}
