package blas

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cublas"
	lt "github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	lib "github.com/cudabind/cudabind/cuda/generated/librarytypes"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
)

// planKey is everything that the choice of an algorithm may depend on.
type planKey struct {
	m, n, k                int64
	ldx, ldy, ldd          int64
	auxStride              int64
	x, y, c, d             lib.CudaDataType
	bias, scale            lib.CudaDataType
	compute                cublas.CublasComputeType_t
	opX, opY               cublas.CublasOperation_t
	epilogue               lt.CublasLtEpilogue_t
	alignX, alignY, alignD uint16
	aligned                [2]uint16 // of bias and aux
	given                  uint8     // the addresses, as bits
	fast                   bool
}

// plans keeps the plans of a core.
type plans struct {
	limit int
	mu    sync.Mutex // guards all; plans are tried under it
	all   map[planKey]*plan
}

// plan is a product of cuBLASLt with its algorithm. Its descriptors hold the addresses of one
// call at a time.
type plan struct {
	mu         sync.Mutex // a leaf: held by who uses the plan
	made, gone bool
	op         lt.CublasLtMatmulDesc_t
	x, y, c, d lt.CublasLtMatrixLayout_t
	algorithm  lt.CublasLtMatmulAlgo_t
}

// lock returns a plan, locked. It may have to be made.
func (p *plans) lock(key *planKey) *plan {
	for {
		found := p.find(key)
		found.mu.Lock()
		if !found.gone {
			return found
		}
		found.mu.Unlock()
	}
}

func (p *plans) find(key *planKey) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.all[*key]; found != nil {
		return found
	}
	if len(p.all) >= p.limit {
		for other, old := range p.all { // any one
			if old.mu.TryLock() {
				old.destroy()
				old.mu.Unlock()
				delete(p.all, other)
				break
			}
		}
	}
	if p.all == nil {
		p.all = map[planKey]*plan{}
	}
	found := new(plan)
	p.all[*key] = found
	return found
}

// forget removes a plan that could not be made. It is locked.
func (p *plans) forget(key *planKey, failed *plan) {
	failed.destroy()
	failed.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[*key] == failed {
		delete(p.all, *key)
	}
}

func (p *plans) close() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, old := range p.all {
		err = errors.Join(err, old.destroy())
	}
	p.all = nil
	return err
}

func enqueueMatmul(q *call, at library.Place) error {
	plans, key := &q.core.plans, &q.lt.key
	p := plans.lock(key)
	if err := p.set(q.core, key, &q.lt.addresses); err != nil {
		plans.forget(key, p)
		return err
	}
	defer p.mu.Unlock()
	c := ffi.Pointer(q.z)
	if p.c != p.d {
		c = nil // not read, as beta is 0
	}
	return lt.CublasLtMatmul(q.core.lt, p.op, q.alpha.pointer(), ffi.Pointer(q.x), p.x, ffi.Pointer(q.y), p.y, q.beta.pointer(), c, p.c,
		ffi.Pointer(q.z), p.d, &p.algorithm, ffi.Pointer(at.Memory), at.Size, at.Stream)
}

// set sets the addresses of a call, and makes the plan at the first call.
func (p *plan) set(c *core, key *planKey, addresses *[numAddresses]driver.CUdeviceptr) error {
	if !p.made {
		if err := p.describe(key); err != nil {
			return err
		}
	}
	for i, attribute := range [numAddresses]lt.CublasLtMatmulDescAttributes_t{
		lt.CUBLASLT_MATMUL_DESC_BIAS_POINTER, lt.CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, lt.CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
		lt.CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, lt.CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, lt.CUBLASLT_MATMUL_DESC_AMAX_D_POINTER,
	} {
		if addresses[i] == 0 {
			continue
		}
		if err := lt.CublasLtMatmulDescSetAttribute(p.op, attribute, unsafe.Pointer(&addresses[i]), 8); err != nil {
			return err
		}
	}
	if !p.made {
		if err := p.choose(c, key); err != nil {
			return err
		}
		p.made = true
	}
	return nil
}

// describe makes the descriptors.
func (p *plan) describe(k *planKey) error {
	if err := lt.CublasLtMatmulDescCreate(&p.op, k.compute, k.scale); err != nil {
		return err
	}
	rowsX, colsX := stored(k.opX, k.m, k.k)
	rowsY, colsY := stored(k.opY, k.k, k.n)
	for _, l := range []struct {
		to         *lt.CublasLtMatrixLayout_t
		kind       lib.CudaDataType
		rows, cols int64
		ld         int64
	}{{&p.x, k.x, rowsX, colsX, k.ldx}, {&p.y, k.y, rowsY, colsY, k.ldy}, {&p.d, k.d, k.m, k.n, k.ldd}} {
		if err := lt.CublasLtMatrixLayoutCreate(l.to, l.kind, uint64(l.rows), uint64(l.cols), l.ld); err != nil {
			return err
		}
	}
	p.c = p.d
	if k.c != k.d {
		p.c = nil
		if err := lt.CublasLtMatrixLayoutCreate(&p.c, k.c, uint64(k.m), uint64(k.n), k.ldd); err != nil {
			return err
		}
	}
	return p.attributes(k)
}

// stored returns the size of a matrix in memory.
func stored(op cublas.CublasOperation_t, rows, cols int64) (int64, int64) {
	if op == cublas.CUBLAS_OP_N {
		return rows, cols
	}
	return cols, rows
}

func (p *plan) attributes(k *planKey) error {
	type desc = lt.CublasLtMatmulDescAttributes_t
	set := func(a desc, v unsafe.Pointer, size uint64) error {
		return lt.CublasLtMatmulDescSetAttribute(p.op, a, v, size)
	}
	err := errors.Join(
		set(lt.CUBLASLT_MATMUL_DESC_TRANSA, unsafe.Pointer(&k.opX), 4),
		set(lt.CUBLASLT_MATMUL_DESC_TRANSB, unsafe.Pointer(&k.opY), 4),
		set(lt.CUBLASLT_MATMUL_DESC_EPILOGUE, unsafe.Pointer(&k.epilogue), 4))
	if k.given&(1<<addressBias) != 0 {
		err = errors.Join(err, set(lt.CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, unsafe.Pointer(&k.bias), 4))
	}
	if k.given&(1<<addressAux) != 0 {
		err = errors.Join(err, set(lt.CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, unsafe.Pointer(&k.auxStride), 8))
	}
	if k.fast {
		fast := int8(1)
		err = errors.Join(err, set(lt.CUBLASLT_MATMUL_DESC_FAST_ACCUM, unsafe.Pointer(&fast), 1))
	}
	return err
}

// errNoAlgorithm says that a search has found nothing.
var errNoAlgorithm = errors.New("cuBLASLt has no algorithm for these types, shapes, strides and options on this GPU")

// choose asks for the best algorithm.
func (p *plan) choose(c *core, k *planKey) error {
	var preference lt.CublasLtMatmulPreference_t
	if err := lt.CublasLtMatmulPreferenceCreate(&preference); err != nil {
		return err
	}
	defer lt.CublasLtMatmulPreferenceDestroy(preference)
	set := func(a lt.CublasLtMatmulPreferenceAttributes_t, v uint64, size uint64) error {
		return lt.CublasLtMatmulPreferenceSetAttribute(preference, a, unsafe.Pointer(&v), size)
	}
	err := errors.Join(
		set(lt.CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64(c.size), 8),
		set(lt.CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint64(k.alignX), 4),
		set(lt.CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint64(k.alignY), 4),
		set(lt.CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint64(k.alignD), 4),
		set(lt.CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint64(k.alignD), 4))
	if c.full {
		scheme := lt.CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
		err = errors.Join(err, set(lt.CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint64(scheme), 4))
	}
	if err != nil {
		return err
	}
	var found lt.CublasLtMatmulHeuristicResult_t
	var count int32
	err = lt.CublasLtMatmulAlgoGetHeuristic(c.lt, p.op, p.x, p.y, p.c, p.d, preference, 1, &found, &count)
	if errors.Is(err, cublas.CUBLAS_STATUS_NOT_SUPPORTED) || err == nil && count == 0 {
		return errors.Join(safe.ErrNotSupported, errNoAlgorithm)
	}
	p.algorithm = found.Algo
	return err
}

// destroy destroys what there is, once. The plan is locked, or not used any more.
func (p *plan) destroy() (err error) {
	if p.gone {
		return nil
	}
	p.gone = true
	if p.c == p.d {
		p.c = nil
	}
	for _, l := range []lt.CublasLtMatrixLayout_t{p.x, p.y, p.c, p.d} {
		if l != nil {
			err = errors.Join(err, lt.CublasLtMatrixLayoutDestroy(l))
		}
	}
	if p.op != nil {
		err = errors.Join(err, lt.CublasLtMatmulDescDestroy(p.op))
	}
	return err
}
