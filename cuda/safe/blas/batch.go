package blas

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Batch is many products of the same shape, of matrices anywhere in memory. Its addresses are
// in device memory, so that [GemmBatched] copies nothing. For matrices at equal distances use
// [GemmStrided].
//
// Any number of goroutines may use a Batch at once. Close it before the [Handle].
type Batch[T Element] struct {
	h         Handle // of its own, as the buffers are: the program may write others into those that it has
	a, b, c   view   // the first of each
	count     int
	addresses *safe.Buffer[uint64] // of all x, then y, then z
	first     [3]int               // of a, b and c among the addresses
	buffers   []safe.Buffer[T]
}

// NewBatch prepares the products of a[i] and b[i] with the results c[i]. All of a have one shape, stride and order, and
// so have all of b and all of c. It copies the addresses to the device and returns when the copy has completed.
//
// Matrices of 16-bit types must begin at multiples of 16 bytes. So must all matrices if the Handle's [Math] allows
// tensor cores for float32.
//
// It returns [safe.ErrInvalidArgument] if the lengths, shapes or addresses do not fit, [safe.ErrRange] if a matrix is
// not within its buffer, [safe.ErrOverlap] if a result overlaps another matrix, and [safe.ErrClosed].
func NewBatch[T Element](h *Handle, a, b, c []Matrix[T]) (*Batch[T], error) {
	const op = "blas.NewBatch"
	core, err := h.acquire()
	if err != nil {
		return nil, fail(op, err)
	}
	defer core.Release()
	if len(a) != len(c) || len(b) != len(c) {
		return nil, refuse(op, safe.ErrInvalidArgument, "there are %d a, %d b and %d c", len(a), len(b), len(c))
	}
	p := &Batch[T]{h: *h, count: len(c)}
	var all []placed
	for i, list := range [][]Matrix[T]{a, b, c} {
		p.first[i] = len(all)
		if all, err = place(all, "abc"[i:i+1], list); err != nil {
			return nil, fail(op, err)
		}
	}
	if p.count == 0 {
		return p, nil
	}
	p.a, p.b, p.c = all[p.first[0]].view, all[p.first[1]].view, all[p.first[2]].view
	try := makeCall()
	if err := try.product(h.math, &p.a, &p.b, &p.c, 0, 0); err != nil {
		return nil, fail(op, err)
	}
	addresses := make([]uint64, len(all))
	for i := range all {
		addresses[i] = uint64(all[i].address)
	}
	if err := errors.Join(aligned(all, h.math), disjoint(all)); err != nil {
		return nil, fail(op, err)
	}
	p.remember(a, b, c)
	if p.addresses, err = safe.NewBuffer[uint64](core.Context(), len(addresses)); err != nil {
		return nil, fail(op, err)
	}
	if err := p.addresses.CopyFromHost(addresses); err != nil {
		p.addresses.Close()
		return nil, fail(op, err)
	}
	return p, nil
}

// remember lists every buffer once.
func (p *Batch[T]) remember(lists ...[]Matrix[T]) {
	known := map[safe.Buffer[T]]bool{}
	for _, list := range lists {
		for i := range list {
			if b := *list[i].Buffer; !known[b] {
				known[b] = true
				p.buffers = append(p.buffers, b)
			}
		}
	}
}

// placed is a matrix of a batch.
type placed struct {
	view
	name  string
	index int
}

// place adds the matrices of a list, which have one shape.
func place[T Element](all []placed, name string, list []Matrix[T]) ([]placed, error) {
	first := len(all)
	for i, m := range list {
		v, err := m.view(fmt.Sprintf("%s[%d]", name, i))
		if err != nil {
			return nil, err
		}
		same := v
		if i > 0 {
			same.address = all[first].address
			if same != all[first].view {
				return nil, fmt.Errorf("%w: %s[%d] is %v, but %s[0] is %v", safe.ErrInvalidArgument, name, i, m, name, list[0])
			}
		}
		all = append(all, placed{v, name, i})
	}
	return all, nil
}

// aligned checks what kernels for tensor cores rely on: they fault otherwise, which ends the
// process's use of CUDA.
func aligned(all []placed, m Math) error {
	if all[0].kind.size > 2 && (m == Float32 || m == Pedantic) {
		return nil
	}
	for i := range all {
		if v := &all[i]; v.address%16 != 0 {
			return fmt.Errorf("%w: %s[%d] is %dx%d %v at an address that is no multiple of 16 bytes", safe.ErrInvalidArgument, v.name, v.index, v.rows, v.cols, v.kind)
		}
	}
	return nil
}

// disjoint checks that no result overlaps another matrix.
func disjoint(all []placed) error {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.name, b.name))
	})
	sorted = slices.CompactFunc(sorted, func(a, b placed) bool { // many products may have one input in common
		return a.address == b.address && a.name == b.name && a.name != "c"
	})
	for i := range sorted {
		v := &sorted[i]
		for j := i + 1; j < len(sorted) && sorted[j].address < v.end(); j++ {
			o := &sorted[j]
			if (v.name == "c" || o.name == "c") && v.overlap(&o.view) {
				return fmt.Errorf("%w: %s[%d] (%v) and %s[%d] (%v)", safe.ErrOverlap, v.name, v.index, &v.view, o.name, o.index, &o.view)
			}
		}
	}
	return nil
}

// GemmBatched enqueues c[i] = alpha*a[i]*b[i] + beta*c[i] for every product of p. Otherwise the rules and errors are
// those of [Gemm]. Source: cublasGemmBatchedEx_64.
func GemmBatched[T Element, S Scalar](p *Batch[T], s *safe.Stream, alpha, beta S) error {
	const op = "blas.GemmBatched"
	if p == nil {
		return fail(op, safe.ErrClosed)
	}
	q, err := newCall(&p.h, s)
	if err != nil {
		return fail(op, err)
	}
	err = p.gemm(q, number(alpha), number(beta))
	q.free()
	if err != nil {
		return failed(op, err, &p.a, &p.b, &p.c)
	}
	return nil
}

func (p *Batch[T]) gemm(q *call, alpha, beta complex128) error {
	if p.count == 0 {
		return nil
	}
	if err := q.product(p.h.math, &p.a, &p.b, &p.c, alpha, beta); err != nil || p.c.empty() {
		return err
	}
	base := p.addresses.Raw()
	at := func(i int) driver.CUdeviceptr { return base + 8*driver.CUdeviceptr(p.first[i]) }
	q.x, q.y, q.z, q.count = at(0), at(1), at(2), int64(p.count)
	if !p.c.byColumn {
		q.x, q.y = q.y, q.x
	}
	q.use(p.addresses.Arg())
	for i := range p.buffers {
		q.use(p.buffers[i].Arg())
	}
	q.do = enqueueBatch
	return q.submit()
}

func enqueueBatch(q *call, h cublas.CublasHandle_t) error {
	data := q.kind.data
	list := func(a driver.CUdeviceptr) *unsafe.Pointer { return (*unsafe.Pointer)(ffi.Pointer(a)) }
	return cublas.CublasGemmBatchedEx_64(h, q.opX, q.opY, q.m, q.n, q.k, q.alpha.pointer(), list(q.x), data, q.ldx,
		list(q.y), data, q.ldy, q.beta.pointer(), list(q.z), data, q.ldz, q.count, q.compute, cublas.CUBLAS_GEMM_DEFAULT)
}

// Close releases the addresses, not the matrices. It waits until the GPU has completed the
// work that uses them, as [safe.Buffer.Close] does.
func (p *Batch[T]) Close() error {
	if p == nil || p.addresses == nil {
		return nil
	}
	return fail("blas.Batch.Close", p.addresses.Close())
}
