package blas

import (
	"errors"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/cuda/safe/library"
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

// Handle gives access to cuBLAS in one context. Any number of goroutines may use a Handle at once, on any streams of
// the context.
//
// A Handle keeps its context: [safe.Context.Close] before [Handle.Close] is fine. Close it before
// [safe.Context.CloseAll], which closes its memory.
type Handle struct {
	core *core
	math Math
	view bool // of With: Close does nothing
}

// mostHandles bounds Options.Handles, so that a mistyped number costs no memory.
const mostHandles = 1024

// core is what a Handle and its views share.
type core struct {
	*library.Object
	*libraries
}

// libraries is what cuBLAS and cuBLASLt have created. It knows nothing of the Handle, which
// the garbage collector would never find dropped.
type libraries struct {
	capability int // 90 for 9.0
	size       int // of a workspace
	full       bool
	handles    []handle
	lt         cublaslt.CublasLtHandle_t
	ltError    error // why there is no lt
	plans      plans
}

// handle is a handle of cuBLAS and the settings that it has now.
type handle struct {
	raw    cublas.CublasHandle_t
	space  uint64 // the number of its workspace, which has a stream
	device bool   // results go to device memory
}

// Open creates handles of cuBLAS in a context. That is slow, and may wait for all work of the context: call Open once.
//
// It returns [safe.ErrCapturing] while a stream of the context is capturing. If there is no cuBLAS, it returns an error
// that matches [safe.ErrNotSupported] and lists where it has looked. It returns [safe.ErrRange] if an option is
// negative or too large. Source: cublasCreate_v2, cublasSetMathMode, cublasSetAtomicsMode, cublasLtCreate.
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
	if err := library.Load(cublas.Open, cublas.Library); err != nil {
		return nil, fail(op, err)
	}
	l := &libraries{full: o.FullReduction, handles: make([]handle, or(o.Handles, 2))}
	l.plans.limit = or(o.Plans, 1024)
	var err error
	if l.capability, l.size, err = properties(x, o.Workspace); err != nil {
		return nil, fail(op, err)
	}
	object, err := library.New(x, library.Options{
		Name:        "blas handle",
		Create:      func() error { return l.create(o) },
		Destroy:     l.destroy,
		OutOfMemory: cublas.CUBLAS_STATUS_ALLOC_FAILED,
		Handles:     len(l.handles),
		CallsOnly:   true,
		Streams:     or(o.Workspaces, 16),
		Workspace:   l.size,
	})
	if err != nil {
		return nil, fail(op, err)
	}
	return &Handle{core: &core{object, l}, math: o.Math}, nil
}

// properties returns the compute capability, 90 for 9.0, and the size of workspaces.
func properties(x *safe.Context, size int) (capability, workspace int, err error) {
	if x.Raw() == 0 {
		return 0, 0, safe.ErrClosed
	}
	major, minor, err := x.Device().ComputeCapability()
	if size == 0 {
		size = 4 << 20
		if major >= 9 {
			size = 32 << 20
		}
	}
	return 10*major + minor, size, err
}

func or(v, standard int) int {
	if v == 0 {
		return standard
	}
	return v
}

// create creates the handles. If that fails, it destroys those that it has created.
func (l *libraries) create(o Options) error {
	for i := range l.handles {
		if err := l.handles[i].create(o); err != nil {
			l.destroy()
			return err
		}
	}
	l.ltError = cublaslt.CublasLtCreate(&l.lt) // only Matmul needs it
	return nil
}

func (h *handle) create(o Options) error {
	if err := cublas.CublasCreate(&h.raw); err != nil {
		return err
	}
	if o.FullReduction {
		if err := cublas.CublasSetMathMode(h.raw, cublas.CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION); err != nil {
			return err
		}
	}
	if o.Atomics {
		return cublas.CublasSetAtomicsMode(h.raw, cublas.CUBLAS_ATOMICS_ALLOWED)
	}
	return nil
}

func (l *libraries) destroy() (err error) {
	err = l.plans.close()
	for i := range l.handles {
		h := &l.handles[i]
		if h.raw != 0 {
			err = errors.Join(err, cublas.CublasSetStream(h.raw, 0), cublas.CublasDestroy(h.raw)) // its last stream may be closed
		}
		*h = handle{}
	}
	if l.lt != 0 {
		err = errors.Join(err, cublaslt.CublasLtDestroy(l.lt))
	}
	return err
}

// With returns the same Handle with another arithmetic. Its own Close does nothing. If m is not a constant of Math,
// calls with the result return [safe.ErrInvalidArgument].
func (h *Handle) With(m Math) *Handle {
	if h == nil {
		return nil
	}
	return &Handle{core: h.core, math: m, view: true}
}

// Close destroys the handles of cuBLAS and releases the workspaces. Calls in flight, and work that they have enqueued,
// complete: graphs and their executables keep their workspaces. Close waits for all work of the context. cuBLAS waits
// for work that is enqueued meanwhile, too. Until that is done, no capture begins on the context, and no executable is
// destroyed on any device. While a stream of the context is capturing, the release is deferred until the capture has
// ended. Closing again does nothing. Source: cublasDestroy_v2, cublasLtDestroy.
func (h *Handle) Close() error {
	if h == nil || h.core == nil || h.view {
		return nil
	}
	return fail("blas.Handle.Close", h.core.Close())
}

// Context returns a context that is usable as long as the Handle is open: see
// [safe.Stream.Context].
func (h *Handle) Context() *safe.Context {
	if h == nil || h.core == nil {
		return nil
	}
	return h.core.Context()
}

// Workspaces returns how many workspaces the Handle has, and their size in bytes. Those that
// only graphs still use do not count.
func (h *Handle) Workspaces() (n, size int) {
	if h == nil || h.core == nil {
		return 0, 0
	}
	return h.core.Workspaces(), h.core.size
}

// acquire acquires the Handle for a call.
func (h *Handle) acquire() (*core, error) {
	if h == nil || h.core == nil {
		return nil, safe.ErrClosed
	}
	if err := h.core.Acquire(); err != nil {
		return nil, err
	}
	if h.math < Float32 || h.math > Pedantic {
		h.core.Release()
		return nil, detail(safe.ErrInvalidArgument, "%d is no constant of Math", int(h.math))
	}
	return h.core, nil
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
