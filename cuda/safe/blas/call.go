package blas

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/cudabind/cudabind/cuda/ffi"
	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// call is one call of cuBLAS, as cuBLAS takes it: matrices are x, y and the result z, stored
// by column. Calls are pooled, so that none allocates.
type call struct {
	core     *core
	stream   *safe.Stream
	do       func(*call, cublas.CublasHandle_t) error
	doLt     func(*call, driver.CUstream) error // of Matmul, instead of do
	toDevice bool                               // the result goes to device memory
	waits    bool                               // the caller will wait for the result

	opX, opY            cublas.CublasOperation_t
	m, n, k, count      int64
	x, y, z             driver.CUdeviceptr
	ldx, ldy, ldz       int64 // or steps of vectors
	stepX, stepY, stepZ int64
	alpha, beta         factor
	kind                *kind
	compute             cublas.CublasComputeType_t
	lt                  matmulCall // of Matmul

	views   [3]view // the operands, where functions get them by pointer
	uses    []safe.Arg
	space   *workspace
	capture uint64 // in which space may be used
	moved   bool   // the stream is in another capture, or in none
	enqueue func(driver.CUstream) error
}

var calls = sync.Pool{New: func() any {
	c := new(call)
	c.enqueue = c.run
	return c
}}

// newCall returns a call whose fields are zero.
func newCall(h *Handle, s *safe.Stream) (*call, error) {
	core, err := h.acquire()
	if err != nil {
		return nil, err
	}
	c := calls.Get().(*call)
	c.core, c.stream = core, s
	return c, nil
}

// free ends the use of a call.
func (c *call) free() {
	c.core.Release()
	enqueue, uses := c.enqueue, c.uses
	clear(uses)
	*c = call{enqueue: enqueue, uses: uses[:0]}
	calls.Put(c)
}

// use lists memory that the call uses.
func (c *call) use(a safe.Arg) { c.uses = append(c.uses, a) }

// use3 lists the memory of three operands.
func (c *call) use3(a, b, d safe.Arg) { c.uses = append(c.uses, a, b, d) }

// submit enqueues the call with a workspace of its stream, or of its capture.
func (c *call) submit() error {
	own := len(c.uses)
	c.space = c.core.workspaces.last(c.stream)
	if c.space == nil {
		if err := c.matches(); err != nil {
			return err
		}
	} else {
		c.capture = c.space.capture
	}
	for {
		c.moved = false
		c.uses = c.uses[:own]
		if c.space != nil {
			c.uses = append(c.uses, c.space.memory.Arg())
		}
		err := c.stream.EnqueueRaw(c.enqueue, c.uses...)
		if space := c.space; space != nil {
			c.space = nil
			if done := c.core.workspaces.put(space); !c.moved && err == nil {
				err = done
			}
		}
		if !c.moved {
			return err
		}
		if err := c.move(); err != nil {
			return err
		}
	}
}

// move takes a workspace for the capture that the stream is in.
func (c *call) move() (err error) {
	c.space, err = c.core.workspaces.take(c.stream, c.capture)
	if errors.Is(err, safe.ErrCapturing) && c.capture == 0 {
		c.space, err = nil, nil // it has begun meanwhile: ask again
	}
	return err
}

// matches checks that the stream belongs to the context.
func (c *call) matches() error {
	x := c.stream.Context()
	if x == nil {
		return fmt.Errorf("%w: the stream", safe.ErrClosed)
	}
	if x.Raw() != c.core.x.Raw() {
		return detail(safe.ErrContextMismatch, "the handle belongs to a context of %v, the stream to one of %v", c.core.x.Device(), c.stream.Device())
	}
	return nil
}

var errMoved = errors.New("the stream is in another capture")

// run is called while the stream's captures neither begin nor end.
func (c *call) run(raw driver.CUstream) error {
	capture, err := captureOf(raw)
	switch {
	case err != nil:
		return err
	case capture != 0 && c.waits:
		return errWaits
	case c.space == nil || capture != c.capture:
		c.capture, c.moved = capture, true
		return errMoved
	case c.doLt != nil:
		return c.doLt(c, raw)
	}
	h := c.core.lock(c.space)
	defer h.Unlock()
	if err := h.set(c.space, raw, c.toDevice); err != nil {
		return err
	}
	return c.do(c, h.raw)
}

var errWaits = errors.New("cannot wait for a result in a capture")

// lock locks a handle, if possible the one that worked in space last. Whoever has one is
// inside cuBLAS and waits for nothing of this process.
func (c *core) lock(space *workspace) *handle {
	first := int(uintptr(unsafe.Pointer(space)) / unsafe.Sizeof(*space) % uintptr(len(c.handles)))
	for i := range c.handles {
		if h := &c.handles[(first+i)%len(c.handles)]; h.TryLock() {
			return h
		}
	}
	c.handles[first].Lock()
	return &c.handles[first]
}

// set sets what has changed since the handle's last call.
func (h *handle) set(space *workspace, raw driver.CUstream, toDevice bool) error {
	if h.space != space {
		h.space = nil
		if err := cublas.CublasSetStream(h.raw, raw); err != nil {
			return err
		}
		// After SetStream, which takes it away.
		if err := cublas.CublasSetWorkspace(h.raw, ffi.Pointer(space.memory.Raw()), space.memory.Size()); err != nil {
			return err
		}
		h.space = space
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
