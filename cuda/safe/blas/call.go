package blas

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
)

// call is one call of cuBLAS, as cuBLAS takes it: matrices are x, y and the result z, stored
// by column. Calls are pooled, so that none allocates.
type call struct {
	library.Call
	core     *core
	do       func(*call, cublas.CublasHandle_t) error
	doLt     func(*call, library.Place) error // of Matmul, instead of do
	toDevice bool                             // the result goes to device memory
	waits    bool                             // the caller will wait for the result

	opX, opY            cublas.CublasOperation_t
	m, n, k, count      int64
	x, y, z             driver.CUdeviceptr
	ldx, ldy, ldz       int64 // or steps of vectors
	stepX, stepY, stepZ int64
	alpha, beta         *factor // the call's own, also when it is used again
	kind                *kind
	compute             cublas.CublasComputeType_t
	lt                  matmulCall // of Matmul

	views [3]view // the operands, where functions get them by pointer
}

var calls = sync.Pool{New: func() any { return makeCall() }}

func makeCall() *call {
	factors := ffi.Aligned([2]factor{}, factorAlignment)
	c := &call{alpha: &factors[0], beta: &factors[1]}
	c.Do = c.run
	return c
}

// callPlaces is how many kernels and copies cuBLAS enqueues for a call at most: mostly one or two.
const callPlaces = 8

// newCall returns a call that has its own factors, and is zero otherwise.
func newCall(h *Handle, s *safe.Stream) (*call, error) {
	core, err := h.acquire()
	if err != nil {
		return nil, err
	}
	c := calls.Get().(*call)
	c.core, c.Object, c.Stream, c.Memory, c.Places = core, core.Object, s, core.size, callPlaces
	return c, nil
}

// free ends the use of a call.
func (c *call) free() {
	c.core.Release()
	c.Reset()
	*c = call{Call: c.Call, alpha: c.alpha, beta: c.beta}
	calls.Put(c)
}

// use lists memory that the call uses.
func (c *call) use(a safe.Arg) { c.Uses = append(c.Uses, a) }

// use3 lists the memory of three operands.
func (c *call) use3(a, b, d safe.Arg) { c.Uses = append(c.Uses, a, b, d) }

// submit enqueues the call with a workspace of its stream, or of its capture.
func (c *call) submit() error {
	c.NoHandle = c.doLt != nil
	return c.Submit()
}

// run is called while the stream's captures neither begin nor end.
func (c *call) run(p library.Place) error {
	switch {
	case p.Capture != 0 && c.waits:
		return errWaits
	case c.doLt != nil:
		return c.doLt(c, p)
	}
	h := &c.core.handles[p.Handle]
	if err := h.set(p, c.toDevice); err != nil {
		return err
	}
	return c.do(c, h.raw)
}

var errWaits = errors.New("cannot wait for a result in a capture")

// set sets what has changed since the handle's last call.
func (h *handle) set(p library.Place, toDevice bool) error {
	if h.space != p.Space {
		h.space = 0
		if err := cublas.CublasSetStream(h.raw, p.Stream); err != nil {
			return err
		}
		// After SetStream, which takes it away.
		if err := cublas.CublasSetWorkspace(h.raw, ffi.Pointer(p.Memory), p.Size); err != nil {
			return err
		}
		h.space = p.Space
	}
	if h.device != toDevice {
		mode := cublas.CUBLAS_POINTER_MODE_HOST
		if toDevice {
			mode = cublas.CUBLAS_POINTER_MODE_DEVICE
		}
		if err := cublas.CublasSetPointerMode(h.raw, mode); err != nil {
			return err
		}
		h.device = toDevice
	}
	return nil
}

// failed is the error of an operation. If cuBLAS has caused it, it has the shapes.
func failed(op string, err error, shapes ...fmt.Stringer) error {
	e := fail(op, err).(*safe.Error)
	var status cublas.CublasStatus_t
	if errors.Is(e.Err, errWaits) {
		e.Err, e.Detail = safe.ErrCapturing, "its result would have to be waited for: use "+op+"To"
	} else if errors.As(e.Err, &status) && e.Detail == "" {
		for i, s := range shapes {
			if i > 0 {
				e.Detail += ", "
			}
			e.Detail += s.String()
		}
	}
	return e
}
