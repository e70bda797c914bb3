package headers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRequested(t *testing.T) {
	releases, err := RequestedReleases()
	require.NoError(t, err)
	require.Len(t, releases, 2)
	for _, r := range releases {
		assert.NoError(t, r.validatePaths())
	}
	for _, tt := range []struct{ name, library, cuda, number, want, err string }{
		{"newest", "cusparse", "", "", "13.5", ""},
		{"major version of CUDA", "cusparse", "12", "", "12.9", ""},
		{"version of CUDA", "cusparse", "12.9", "", "12.9", ""},
		{"version of the library", "cusparse", "", "12.5", "12.9", ""},
		{"another package in CUDA 12", "nvvm", "12", "", "12.9", ""},
		{"unknown version of CUDA", "cusparse", "12.4", "", "", "no headers of cusparse of this version are pinned"},
		{"part of a number", "cusparse", "1", "", "", " for CUDA 13.5 and "},
		{"unknown version of the library", "cudnn", "", "8", "", "no headers of cudnn of this version are pinned; those of 9."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := LookupRequested(tt.library, tt.cuda, tt.number)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, r.Version)
			assert.Equal(t, tt.library, r.Libraries[len(r.Libraries)-1].Name)
		})
	}
}

func TestWithRequested(t *testing.T) {
	r, err := LookupRequested("cusolver", "13.5", "")
	require.NoError(t, err)
	with, err := r.WithRequested("cusparse")
	require.NoError(t, err)
	assert.Equal(t, "cusparse", with.Libraries[len(with.Libraries)-1].Name)
	assert.Equal(t, "cusolver", with.Libraries[len(with.Libraries)-2].Name)
	assert.NoError(t, with.validatePaths())

	_, err = r.WithRequested("nothing")
	assert.ErrorContains(t, err, "no headers of nothing are pinned for CUDA 13.5")
}

// libNVVM moved from one package to another.
func TestReplaces(t *testing.T) {
	var before, after part
	for i, p := range requestedParts {
		if p.library == "nvvm" {
			before, after = requestedParts[i-1], p
		}
	}
	assert.Equal(t, "nvidia-cuda-nvcc-cu12", before.wheelOf("12.9"))
	assert.Equal(t, "nvidia-nvvm", after.wheelOf("13.0"))
	assert.True(t, after.replaces(before, "13.0"))
	assert.False(t, after.replaces(before, "12.9"))
	assert.False(t, before.replaces(requestedParts[0], "13.0"), "of another library")
}

func TestFormatRequested(t *testing.T) {
	data, err := FormatRequested(embeddedRequested, Requested{CUDA: "13.6"})
	require.NoError(t, err)
	all, err := parseRequested(data)
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, "13.6", all[1].CUDA, "in place of the older one of its major")
	for _, bad := range []string{`{}`, `[{"cuda": "13"}]`, `[{"cuda": "13.5"}, {"cuda": "12.9"}]`, `[{"cuda": "13.5", "libraries": [{"name": "x"}]}]`} {
		_, err := parseRequested([]byte(bad))
		assert.ErrorContains(t, err, "manifest of headers on request", bad)
	}
}
