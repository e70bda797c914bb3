//go:build linux && (amd64 || arm64) && (cgo || cudabind_nocgo)

package generated_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cudart13"
	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/drivertest"
)

// TestRealLibraries calls NVIDIA's libraries as far as they work without a GPU. Each row
// runs in a process of its own, as a library stays open.
func TestRealLibraries(t *testing.T) {
	for _, row := range []struct {
		name, folder string
		open         func(folder string) error
		call         func(t *testing.T)
	}{
		{"nccl", "libnccl", nccl.Open, func(t *testing.T) {
			var version int32
			require.NoError(t, nccl.NcclGetVersion(&version))
			assert.EqualValues(t, 23203, version)
			_, text, err := nccl.Library()
			require.NoError(t, err)
			assert.Equal(t, "2.32.3", text)
		}},
		{"cublas", "libcublas", cublas.Open, func(t *testing.T) {
			var h cublas.CublasHandle_t
			if err := cublas.CublasCreate(&h); err == nil { // there is a GPU
				require.NoError(t, cublas.CublasDestroy(h))
			} else {
				assert.ErrorIs(t, err, cublas.CUBLAS_STATUS_NOT_INITIALIZED)
			}
		}},
		{"cufft", "libcufft", cufft.Open, func(t *testing.T) {
			var version int32
			require.NoError(t, cufft.CufftGetVersion(&version))
			assert.EqualValues(t, 12500, version)
		}},
		{"cupti", "libcupti", cupti.Open, func(t *testing.T) {
			var version uint32
			if err := cupti.CuptiGetVersion(&version); err == nil { // there is a driver
				assert.EqualValues(t, 130500, version)
			} else {
				assert.ErrorIs(t, err, cupti.CUPTI_ERROR_UNKNOWN)
			}
		}},
		{"curand", "libcurand", curand.Open, func(t *testing.T) {
			var g curand.CurandGenerator_t
			require.NoError(t, curand.CurandCreateGeneratorHost(&g, curand.CURAND_RNG_PSEUDO_PHILOX4_32_10))
			numbers := make([]float32, 1<<16)
			require.NoError(t, curand.CurandGenerateUniform(g, &numbers[0], uint64(len(numbers))))
			sum := float32(0)
			for _, v := range numbers {
				sum += v
			}
			assert.InDelta(t, 0.5, sum/float32(len(numbers)), 0.01)
			require.NoError(t, curand.CurandDestroyGenerator(g))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			cache, err := filepath.Abs("../../.cache")
			require.NoError(t, err)
			folder := filepath.Join(cache, row.folder, "13.5")
			if found, _ := filepath.Glob(filepath.Join(folder, "*")); len(found) == 0 {
				t.Skipf("no %s: make libraries gets it", row.folder)
			}
			drivertest.InChild(t, func(t *testing.T) {
				_ = cudart13.Open(filepath.Join(cache, "libcudart", "13.5")) // cuRAND is linked against it
				require.NoError(t, row.open(folder))
				row.call(t)
			})
		})
	}
}
