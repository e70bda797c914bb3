package blas

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Math is the arithmetic that matrices of float32 and complex64 are multiplied in. Pedantic
// also affects other types.
type Math int

const (
	// Float32 computes in float32.
	Float32 Math = iota
	// TF32 may round inputs to TF32, which has 11 significant bits, for tensor cores.
	TF32
	// FastBFloat16 may round inputs to bfloat16, which has 8 significant bits.
	FastBFloat16
	// FastFloat16 may round inputs to float16, which has 11 significant bits and a small range.
	FastFloat16
	// Pedantic keeps cuBLAS from using any faster arithmetic.
	Pedantic
)

// String returns the name of the constant.
func (m Math) String() string {
	if m < Float32 || m > Pedantic {
		return "unknown"
	}
	return [...]string{"Float32", "TF32", "FastBFloat16", "FastFloat16", "Pedantic"}[m]
}

// Options are the options of [Open]. The zero value is cuBLAS's default.
type Options struct {
	// Math is the arithmetic for float32 and complex64: see [Handle.With].
	Math Math
	// Atomics lets some routines add by atomic operations. They may be faster, but results
	// may differ in the last bits from run to run.
	Atomics bool
	// FullReduction keeps cuBLAS from adding parts of a product of 16-bit numbers in 16
	// bits.
	FullReduction bool
	// Workspace is the size of a workspace in bytes. 0 means 32 MiB from compute capability
	// 9.0 on, and 4 MiB before.
	Workspace int
	// Workspaces is how many streams may have a workspace at the same time, 0 for 16.
	// Further streams take over the workspace that was used least recently.
	Workspaces int
	// Handles is the number of handles of cuBLAS, 0 for 2, at most 1024: so many goroutines may
	// be inside cuBLAS at the same time. Each handle also has device memory of its own.
	Handles int
	// Plans is how many plans of [Matmul] are kept, 0 for 1024.
	Plans int
}

// Handle is cuBLAS in one context. Any number of goroutines may use a Handle at once, on any
// streams of the context.
//
// A Handle keeps its context: [safe.Context.Close] before [Handle.Close] is fine. Close it
// before [safe.Context.CloseAll], which closes its memory.
type Handle struct {
	core *core
	math Math
	view bool // of With: Close does nothing
	root *Handle
	stop lifetime.Cleanup
}

// mostHandles bounds Options.Handles, so that a mistyped number costs no memory.
const mostHandles = 1024

type core struct {
	lifetime.Handle
	leave      func()         // releases what keeps x usable
	destroys   lifetime.Queue // of this core: its destruction waits for the context
	x          *safe.Context
	capability int // 90 for 9.0
	full       bool
	handles    []handle
	lt         cublaslt.CublasLtHandle_t
	ltError    error // why there is no lt
	plans      plans
	workspaces workspaces
}

// handle is a handle of cuBLAS and the settings that it has now.
type handle struct {
	sync.Mutex // a leaf: cuBLAS allows one call at a time
	raw        cublas.CublasHandle_t
	space      *workspace // and its stream
	device     bool       // results go to device memory
}

// Open creates handles of cuBLAS in a context. That is slow, and may wait for all work of the
// context: call Open once.
//
// It returns [safe.ErrCapturing] while a stream of the context is capturing: call it before.
// It returns an error that matches [safe.ErrNotSupported] and lists where it has looked if
// there is no cuBLAS, and [safe.ErrRange] if an option is negative or too large.
// Source: cublasCreate_v2, cublasSetMathMode, cublasSetAtomicsMode, cublasLtCreate.
func Open(x *safe.Context, o Options) (*Handle, error) {
	const op = "blas.Open"
	if o.Math < Float32 || o.Math > Pedantic {
		return nil, refuse(op, safe.ErrInvalidArgument, "%d is no constant of Math", int(o.Math))
	}
	if min(o.Workspace, o.Workspaces, o.Handles, o.Plans) < 0 {
		return nil, refuse(op, safe.ErrRange, "an option is negative: %+v", o)
	}
	if o.Handles > mostHandles {
		return nil, refuse(op, safe.ErrRange, "Options.Handles is %d, more than %d", o.Handles, mostHandles)
	}
	if err := cublas.Open(""); err != nil {
		if _, _, loaded := cublas.Library(); loaded != nil { // else the program has opened another file
			return nil, fail(op, err)
		}
	}
	c, err := newCore(x, o)
	if err != nil {
		return nil, fail(op, err)
	}
	if err := c.create(o); err != nil {
		return nil, fail(op, errors.Join(err, c.Close()))
	}
	h := &Handle{core: c, math: o.Math}
	h.stop.Watch(&c.Handle)
	return h, nil
}

func newCore(x *safe.Context, o Options) (*core, error) {
	c := &core{full: o.FullReduction}
	var err error
	if c.x, c.leave, err = hold(x); err != nil {
		return nil, err
	}
	if err := c.Handle.Open(c, nil); err != nil {
		c.leave()
		return nil, err
	}
	major, minor, err := c.x.Device().ComputeCapability()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.capability = 10*major + minor
	size := 4 << 20
	if major >= 9 {
		size = 32 << 20
	}
	c.plans.limit = or(o.Plans, 1024)
	c.handles = make([]handle, or(o.Handles, 2))
	if err := c.workspaces.open(c.x, or(o.Workspace, size), or(o.Workspaces, 16)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// hold returns a context that is usable until leave, also after [safe.Context.CloseAll].
func hold(x *safe.Context) (usable *safe.Context, leave func(), err error) {
	r, err := safe.NewResource(x, func() {})
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	leave, err = safe.Retain(r.Arg())
	return r.Context(), leave, err
}

func or(v, standard int) int {
	if v == 0 {
		return standard
	}
	return v
}

// create creates the handles. If the device has too little memory for them, it makes room and goes on.
func (c *core) create(o Options) error {
	for tries := 0; ; tries++ {
		err := c.whole(func() error { return c.createMore(o) })
		if !errors.Is(err, cublas.CUBLAS_STATUS_ALLOC_FAILED) || tries == 3 {
			return err
		}
		lifetime.Collect()
		if err := c.x.TrimMemory(); err != nil {
			return err
		}
	}
}

// createMore creates the handles that are not there yet.
func (c *core) createMore(o Options) error {
	for i := range c.handles {
		h := &c.handles[i]
		if h.raw != 0 {
			continue
		}
		if err := cublas.CublasCreate(&h.raw); err != nil {
			return err
		}
		if o.FullReduction {
			if err := cublas.CublasSetMathMode(h.raw, cublas.CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION); err != nil {
				return err
			}
		}
		if o.Atomics {
			if err := cublas.CublasSetAtomicsMode(h.raw, cublas.CUBLAS_ATOMICS_ALLOWED); err != nil {
				return err
			}
		}
	}
	c.ltError = cublaslt.CublasLtCreate(&c.lt) // only Matmul needs it
	return nil
}

// whole calls f, for which cuBLAS may wait for the context's work, while no stream captures. Captures, and
// destructions on every device, wait for f. So whole waits before for the work that is there now.
func (c *core) whole(f func() error) error {
	if err := c.x.Wait(context.Background()); err != nil && !safe.IsFatal(err) {
		return err
	}
	return c.x.WithoutCaptures(f)
}

// With returns the same Handle with another arithmetic. Its own Close does nothing. If m is no
// constant of Math, its calls return [safe.ErrInvalidArgument].
func (h *Handle) With(m Math) *Handle {
	if h == nil {
		return nil
	}
	root := h
	if h.view {
		root = h.root // which the garbage collector must not find dropped
	}
	return &Handle{core: h.core, math: m, view: true, root: root}
}

// Close destroys the handles of cuBLAS and releases the workspaces. Calls in flight, and work
// that they have enqueued, complete: graphs and their executables keep their workspaces. Close
// waits for all work of the context. For work that is enqueued meanwhile, cuBLAS waits:
// captures on the context begin after that, and so do destructions of
// executables on every device. While a stream of the context is capturing, the release
// is deferred until the capture has ended. Closing again does nothing.
// Source: cublasDestroy_v2, cublasLtDestroy.
func (h *Handle) Close() error {
	if h == nil || h.core == nil || h.view {
		return nil
	}
	h.stop.Stop()
	return fail("blas.Handle.Close", h.core.Close())
}

// Context returns a context that is usable as long as the Handle is open: see
// [safe.Stream.Context].
func (h *Handle) Context() *safe.Context {
	if h == nil || h.core == nil {
		return nil
	}
	return h.core.x
}

// Workspaces returns how many workspaces the Handle has, and their size in bytes. Those that
// only graphs still use do not count.
func (h *Handle) Workspaces() (n, size int) {
	if h == nil || h.core == nil {
		return 0, 0
	}
	return h.core.workspaces.count(), h.core.workspaces.size
}

// acquire acquires the Handle for a call.
func (h *Handle) acquire() (*core, error) {
	if h == nil || h.core == nil || !h.core.Acquire() {
		return nil, safe.ErrClosed
	}
	if h.math < Float32 || h.math > Pedantic {
		h.core.Release()
		return nil, detail(safe.ErrInvalidArgument, "%d is no constant of Math", int(h.math))
	}
	return h.core, nil
}

// Kind implements lifetime.Object.
func (c *core) Kind() string { return "blas handle" }

// Destroy implements lifetime.Object.
func (c *core) Destroy(wait bool) error {
	if !wait {
		return &lifetime.Elsewhere{Queue: &c.destroys}
	}
	err := c.whole(c.destroy)
	if errors.Is(err, safe.ErrCapturing) || errors.Is(err, safe.ErrInCallback) {
		return lifetime.ErrLater
	}
	if errors.Is(err, safe.ErrReset) {
		err = nil // the reset has destroyed everything
	}
	err = errors.Join(err, c.workspaces.close())
	c.leave()
	return err
}

func (c *core) destroy() (err error) {
	err = c.plans.close()
	for i := range c.handles {
		if raw := c.handles[i].raw; raw != 0 {
			err = errors.Join(err, cublas.CublasSetStream(raw, 0), cublas.CublasDestroy(raw)) // its last stream may be closed
		}
	}
	if c.lt != 0 {
		err = errors.Join(err, cublaslt.CublasLtDestroy(c.lt))
	}
	return err
}

// compute returns the arithmetic for the products of a kind, but of 8-bit kinds.
func (m Math) compute(k *kind) cublas.CublasComputeType_t {
	double := k == kindFloat64 || k == kindComplex128
	single := k == kindFloat32 || k == kindComplex64
	switch {
	case double && m == Pedantic:
		return cublas.CUBLAS_COMPUTE_64F_PEDANTIC
	case double:
		return cublas.CUBLAS_COMPUTE_64F
	case m == Pedantic:
		return cublas.CUBLAS_COMPUTE_32F_PEDANTIC
	case single && m == TF32:
		return cublas.CUBLAS_COMPUTE_32F_FAST_TF32
	case single && m == FastBFloat16:
		return cublas.CUBLAS_COMPUTE_32F_FAST_16BF
	case single && m == FastFloat16:
		return cublas.CUBLAS_COMPUTE_32F_FAST_16F
	}
	return cublas.CUBLAS_COMPUTE_32F
}

// everything is the release threshold of a pool that keeps its memory.
const everything = math.MaxUint64
