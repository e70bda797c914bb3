package programs

import (
	"errors"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/librarytypes"
)

// Multiply enqueues c = a*b for column-major matrices of float32, m by k times k by n. All are
// device memory, as is the workspace ws, of 32 MiB at a multiple of 256 bytes.
func Multiply(h cublaslt.CublasLtHandle_t, m, n, k uint64, a, b, c, ws unsafe.Pointer, stream driver.CUstream) error {
	var op cublaslt.CublasLtMatmulDesc_t
	var la, lb, lc cublaslt.CublasLtMatrixLayout_t
	var pref cublaslt.CublasLtMatmulPreference_t
	limit := uint64(32 << 20)
	var found cublaslt.CublasLtMatmulHeuristicResult_t
	var count int32
	err := errors.Join(
		cublaslt.CublasLtMatmulDescCreate(&op, cublas.CUBLAS_COMPUTE_32F, librarytypes.CUDA_R_32F),
		cublaslt.CublasLtMatrixLayoutCreate(&la, librarytypes.CUDA_R_32F, m, k, int64(m)),
		cublaslt.CublasLtMatrixLayoutCreate(&lb, librarytypes.CUDA_R_32F, k, n, int64(k)),
		cublaslt.CublasLtMatrixLayoutCreate(&lc, librarytypes.CUDA_R_32F, m, n, int64(m)),
		cublaslt.CublasLtMatmulPreferenceCreate(&pref),
		cublaslt.CublasLtMatmulPreferenceSetAttribute(pref,
			cublaslt.CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, unsafe.Pointer(&limit), 8),
		cublaslt.CublasLtMatmulAlgoGetHeuristic(h, op, la, lb, lc, lc, pref, 1, &found, &count))
	defer func() { // 0 is accepted
		_ = cublaslt.CublasLtMatmulPreferenceDestroy(pref)
		for _, l := range []cublaslt.CublasLtMatrixLayout_t{la, lb, lc} {
			_ = cublaslt.CublasLtMatrixLayoutDestroy(l)
		}
		_ = cublaslt.CublasLtMatmulDescDestroy(op)
	}()
	if err != nil {
		return err
	}
	if count == 0 {
		return errors.New("no algorithm fits")
	}
	alpha, beta := float32(1), float32(0)
	return cublaslt.CublasLtMatmul(h, op, unsafe.Pointer(&alpha), a, la, b, lb, unsafe.Pointer(&beta), c, lc, c, lc,
		&found.Algo, ws, found.WorkspaceSize, stream)
}
