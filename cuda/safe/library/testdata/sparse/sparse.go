// Package sparse multiplies sparse matrices with vectors, by cuSPARSE.
package sparse

import (
	"errors"
	"unsafe"

	"example.com/user/sparse/cusparse"
	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
)

// Matrix is a sparse matrix in compressed rows: the values of row i and their columns are those
// from First[i] on, up to First[i+1]. Any number of goroutines may use it at once.
type Matrix struct {
	*library.Object
	made *made
	uses []safe.Arg
}

// made is what cuSPARSE has created. It does not refer to the Object.
type made struct {
	rows, cols int
	handle     cusparse.CusparseHandle_t
	matrix     cusparse.CusparseConstSpMatDescr_t
	x, y       cusparse.CusparseDnVecDescr_t // multiply sets their memory
	work       uint64                        // bytes
}

// New makes a Matrix of values on the device.
func New(c *safe.Context, cols int, first, column *safe.Buffer[int32], value *safe.Buffer[float32]) (m *Matrix, err error) {
	m = &Matrix{made: &made{rows: first.Len() - 1, cols: cols}, uses: []safe.Arg{first.Arg(), column.Arg(), value.Arg()}}
	made, i, k, v, n := m.made, at(first.Raw()), at(column.Raw()), at(value.Raw()), int64(value.Len())
	m.Object, err = library.New(c, library.Options{
		Name:    "sparse matrix",
		Create:  func() error { return made.create(n, i, k, v) },
		Destroy: made.destroy,
	})
	return m, err
}

// Multiply enqueues y = m x.
func (m *Matrix) Multiply(s *safe.Stream, x, y *safe.Buffer[float32]) error {
	if x.Len() < m.made.cols || y.Len() < m.made.rows {
		return safe.ErrRange
	}
	return m.Enqueue(s, int(m.made.work), func(p library.Place) error {
		return m.made.multiply(p, at(x.Raw()), at(y.Raw()))
	}, append(m.uses[:3:3], x.Arg(), y.Arg())...)
}

const (
	float = librarytypes.CUDA_R_32F
	index = cusparse.CUSPARSE_INDEX_32I
)

// create is called while no stream captures. If it fails, it leaves nothing behind.
func (m *made) create(n int64, first, column, value unsafe.Pointer) error {
	err := errors.Join(cusparse.CusparseCreate(&m.handle),
		cusparse.CusparseCreateConstCsr(&m.matrix, int64(m.rows), int64(m.cols), n, first, column, value, index, index, cusparse.CUSPARSE_INDEX_BASE_ZERO, float),
		cusparse.CusparseCreateDnVec(&m.x, int64(m.cols), value, float),
		cusparse.CusparseCreateDnVec(&m.y, int64(m.rows), value, float))
	if err == nil {
		x := cusparse.CusparseConstDnVecDescr_t(m.x)
		err = cusparse.CusparseSpMV_bufferSize(m.handle, cusparse.CUSPARSE_OPERATION_NON_TRANSPOSE, unsafe.Pointer(&one), m.matrix, x,
			unsafe.Pointer(&zero), m.y, float, cusparse.CUSPARSE_SPMV_ALG_DEFAULT, &m.work)
	}
	if err != nil {
		m.destroy()
	}
	return err
}

var one, zero = float32(1), float32(0)

// multiply is called with the Object locked, while the stream's captures neither begin nor end.
func (m *made) multiply(p library.Place, x, y unsafe.Pointer) error {
	err := errors.Join(cusparse.CusparseSetStream(m.handle, p.Stream), cusparse.CusparseDnVecSetValues(m.x, x), cusparse.CusparseDnVecSetValues(m.y, y))
	if err != nil {
		return err
	}
	return cusparse.CusparseSpMV(m.handle, cusparse.CUSPARSE_OPERATION_NON_TRANSPOSE, unsafe.Pointer(&one), m.matrix, cusparse.CusparseConstDnVecDescr_t(m.x),
		unsafe.Pointer(&zero), m.y, float, cusparse.CUSPARSE_SPMV_ALG_DEFAULT, at(p.Memory))
}

// destroy is called when no work and no graph uses the Matrix.
func (m *made) destroy() error {
	return errors.Join(cusparse.CusparseDestroyDnVec(cusparse.CusparseConstDnVecDescr_t(m.x)), cusparse.CusparseDestroyDnVec(cusparse.CusparseConstDnVecDescr_t(m.y)),
		cusparse.CusparseDestroySpMat(m.matrix), cusparse.CusparseDestroy(m.handle))
}

// at is a device address as functions of C take it. Go must not use it.
func at(p driver.CUdeviceptr) unsafe.Pointer { return ffi.Pointer(p) }
