package headers

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/internal/pip/piptest"
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
	assert.Contains(t, progress.String(), "CUDA 12.9: looking for the newest nvidia-cuda-runtime-cu12\n")
	assert.Contains(t, progress.String(), "CUDA 12.9: left out nvrtc, since pip finds no nvidia-cuda-nvrtc-cu12 12.9.*\n")
	assert.Empty(t, names(t, base))
	assert.Empty(t, names(t, os.TempDir()))
}

func TestPinLibraries(t *testing.T) {
	base := place(t)
	link := tree{"nvJitLink.h": ""}
	nvrtc := tree{"nvrtc.h": "#include \"nvrtc_more.h\"\n", "nvrtc_more.h": "", "nvrtc_unused.h": ""}
	wheels := map[string][]byte{
		"nvidia_cuda_runtime_cu12-12.9.79-py3-none-manylinux1_x86_64.whl":                        packed(t, inWheel(sample)),
		"nvidia_nvjitlink_cu12-12.9.80-py3-none-manylinux1_x86_64.whl":                           packedLibrary(t, link),
		"nvidia_cuda_nvrtc_cu12-12.9.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl": packedLibrary(t, nvrtc),
	}
	others := tree{"nccl.h": "", "nvml.h": "", "cudaProfiler.h": "#include <cuda.h>\n", "cuda_profiler_api.h": ""}
	wheels["nvidia_nccl_cu12-2.32.3-py3-none-manylinux1_x86_64.whl"] = packedLibrary(t, others)
	wheels["nvidia_nvml_dev_cu12-12.9.79-py3-none-manylinux1_x86_64.whl"] = packedLibrary(t, others)
	wheels["nvidia_cuda_profiler_api_cu12-12.9.79-py3-none-manylinux1_x86_64.whl"] = packedLibrary(t, others)
	s := newSite(t, inParts, wheels)
	r, err := Pin(t.Context(), "12.9", nil)
	require.NoError(t, err)
	linker := Library{"nvjitlink", Package{
		Wheel: "nvidia-nvjitlink-cu12", WheelVersion: "12.9.80", Platform: "manylinux1_x86_64",
		SHA256: sum(packedLibrary(t, link)), Headers: []File{{"nvJitLink.h", sum(nil)}},
	}}
	compiler := Library{"nvrtc", Package{
		Wheel: "nvidia-cuda-nvrtc-cu12", WheelVersion: "12.9.86", Platform: "manylinux_2_12_x86_64",
		SHA256:  sum(packedLibrary(t, nvrtc)),
		Headers: []File{{"nvrtc.h", sum([]byte(nvrtc["nvrtc.h"]))}, {"nvrtc_more.h", sum(nil)}},
	}}
	require.Len(t, r.Libraries, 5)
	assert.Equal(t, []Library{linker, compiler}, []Library{r.Libraries[1], r.Libraries[3]})
	assert.Len(t, r.Libraries[4].Headers, 2, "of the profiler, whose package has no cuda.h")
	assert.Equal(t, "2.32.3", r.Libraries[0].WheelVersion, "NCCL, whose versions do not follow CUDA's")
	assert.Equal(t, sampleRelease(t).Headers, r.Headers)
	assert.Equal(t, []string{
		"install nvidia-cuda-runtime-cu12==12.9.*", "install cuda-toolkit[cublas]==12.9.*", "install cuda-toolkit[cufft]==12.9.*", "install cuda-toolkit[curand]==12.9.*",
		"install nvidia-nccl-cu12", "install nvidia-nvjitlink-cu12==12.9.*", "install nvidia-nvml-dev-cu12==12.9.*", "install nvidia-cuda-nvrtc-cu12==12.9.*",
		"install nvidia-cuda-profiler-api-cu12==12.9.*",
	}, s.pipCalls(t))
	assert.EqualValues(t, 11, s.requests.Load())

	// The pinned release can be fetched, in parts and whole.
	dir, err := r.Fetch(t.Context(), nil)
	require.NoError(t, err)
	newSite(t, func(w http.ResponseWriter, _ *http.Request, data []byte) { _, _ = w.Write(data) }, wheels)
	require.NoError(t, os.RemoveAll(dir))
	_, err = r.Fetch(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"12.9"}, names(t, base))
}

// Further headers are pinned where there are any, without that which the generator replaces.
func TestPinOptional(t *testing.T) {
	place(t)
	more := sample.with("cudaGL.h", "#include <cuda.h>\n#include \"cuda_runtime.h\"\n").with("cuda_runtime.h", "#include \"unused.h\"\n")
	fakePip(t, sampleWheel, packed(t, inWheel(more)))
	r, err := Pin(t.Context(), "12.9", nil)
	require.NoError(t, err)
	var paths []string
	for _, h := range r.Headers {
		paths = append(paths, h.Path)
	}
	assert.Equal(t, slices.Sorted(slices.Values(append(slices.Clone(samplePaths), "cudaGL.h"))), paths)
}

// A library that cannot be looked for is not one that is not published.
func TestPinLosesNoLibrary(t *testing.T) {
	place(t)
	file := filepath.Join(t.TempDir(), sampleWheel)
	require.NoError(t, os.WriteFile(file, packed(t, inWheel(sample)), 0o644))
	piptest.Python(t, `case $args in
*nvjitlink*|*nccl*|*nvml*|*profiler*|*cuda-toolkit*) echo "ERROR: No matching distribution found" >&2; exit 1 ;;
*nvrtc*) echo "ERROR: the network is down" >&2; exit 1 ;;
esac
cp "`+file+`" "$dest"`)
	_, err := Pin(t.Context(), "12.9", nil)
	assert.ErrorContains(t, err, "CUDA 12.9: nvrtc: pip could not download nvidia-cuda-nvrtc-cu12==12.9.*")
	assert.ErrorContains(t, err, "the network is down")
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
		{"another version inside", "12.8", "p-12.8.1-py3-none-manylinux1_x86_64.whl", good, "cuda.h is of CUDA 12.9, not 12.8"},
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
		assert.Equal(t, want, runtimePart.wheelOf(version))
	}
}
