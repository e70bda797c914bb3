package safe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Sentinel errors; compare with [errors.Is]. Errors that CUDA returns match their own
// codes, such as driver.CUDA_ERROR_OUT_OF_MEMORY.
var (
	// ErrClosed: the object is closed, nil, or a zero value.
	ErrClosed = lifetime.ErrClosed
	// ErrNotSupported: the driver or the device does not support the call.
	ErrNotSupported = errors.ErrUnsupported
	// ErrCapturing: a stream is capturing, and the call would invalidate its capture.
	ErrCapturing = errors.New("a stream is capturing, and this call would invalidate the capture")
	// ErrWrongThread: a capture must end on the thread that began it.
	ErrWrongThread = errors.New("the capture must end on the thread that began it")
	// ErrInCallback: a host function or a callback called a function of this package that needs CUDA, which could
	// deadlock. So did a function that [Stream.EnqueueRaw] or [Context.WithoutCaptures] calls. It may call package
	// driver and other libraries, and of this package [Stream.CaptureStatus].
	ErrInCallback = errors.New("not allowed in a host function, a callback or a function that makes raw calls")
	// ErrForeignNode: a node, a condition or an edge belongs to another graph.
	ErrForeignNode = errors.New("not part of this graph")
	// ErrGraphLost: a capture into the graph, or into a graph inside one of its nodes, failed, and CUDA destroyed the
	// graph that was captured into. If the capture of the outer graph is invalidated, too, CUDA cannot end it: calls with its
	// streams and events return ErrGraphLost from then on.
	ErrGraphLost = errors.New("CUDA destroyed the graph because a capture into it failed")
	// ErrNotAllocated: memory that a graph allocates is used before the first launch of the
	// graph, or after [Buffer.FreeAsync].
	ErrNotAllocated = errors.New("no launch of the graph has allocated the memory")
	// ErrConditional: CUDA does not support the call for graphs with conditional nodes.
	ErrConditional = errors.New("the graph has conditional nodes")
	// ErrInUse: the call would disturb something that is open or in use, which the error names.
	ErrInUse = errors.New("in use")
	// ErrReset: other code has reset the device's primary context, for instance by
	// cudaDeviceReset, which destroyed everything created in it. With a driver for CUDA 12.0
	// or newer, calls that create or destroy objects notice that, and most that wait. Other
	// calls pass the stale handle to CUDA, which may crash. [Device.ResetPrimary] destroys no
	// object of this package.
	ErrReset = errors.New("the primary context was reset")
	// ErrContextMismatch: the objects belong to different contexts.
	ErrContextMismatch = errors.New("objects of different contexts")
	// ErrRange: an index, a length or a size is out of range.
	ErrRange = errors.New("out of range")
	// ErrOverlap: the source and the destination of a copy overlap.
	ErrOverlap = errors.New("source and destination overlap")
	// ErrInvalidArgument: an argument is invalid, or a kernel's arguments do not match its
	// parameters.
	ErrInvalidArgument = errors.New("invalid argument")
)

// Error is the type of the errors that functions of this package return.
type Error struct {
	Op     string          // the function or method, such as "Stream.Query"; "NewStream" for NewStreamWith, and so on
	Code   driver.CUresult // the code that CUDA returned, 0 if CUDA did not fail
	Err    error           // Code, a sentinel error of this package, or another cause
	Async  bool            // Op reports a failure of work that was enqueued earlier
	Detail string          // more about the cause: a limit, sizes, a compiler's log
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cuda: %s: %s", e.Op, strings.TrimPrefix(fmt.Sprint(e.Err), "cuda: "))
	if e.Async {
		b.WriteString(" (caused by earlier work)")
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String()
}

// Unwrap returns the cause: a driver.CUresult if CUDA failed.
func (e *Error) Unwrap() error { return e.Err }

// IsFatal reports whether err means that this process can no longer use CUDA, because a
// kernel or the hardware faulted. The fault affects every context of every device, and
// only a new process recovers from it. Closing objects still works: Close releases the
// object even if it returns an error.
func IsFatal(err error) bool {
	switch e := err.(type) {
	case driver.CUresult:
		return fatal(e)
	case interface{ Unwrap() error }:
		return IsFatal(e.Unwrap())
	case interface{ Unwrap() []error }: // errors.As would find the first code only
		return slices.ContainsFunc(e.Unwrap(), IsFatal)
	}
	return false
}

func fatal(code driver.CUresult) bool {
	switch code {
	case driver.CUDA_ERROR_CONTAINED, driver.CUDA_ERROR_ILLEGAL_ADDRESS, driver.CUDA_ERROR_LAUNCH_TIMEOUT,
		driver.CUDA_ERROR_ASSERT, driver.CUDA_ERROR_HARDWARE_STACK_ERROR, driver.CUDA_ERROR_ILLEGAL_INSTRUCTION,
		driver.CUDA_ERROR_MISALIGNED_ADDRESS, driver.CUDA_ERROR_INVALID_ADDRESS_SPACE, driver.CUDA_ERROR_INVALID_PC,
		driver.CUDA_ERROR_LAUNCH_FAILED, driver.CUDA_ERROR_TENSOR_MEMORY_LEAK, driver.CUDA_ERROR_MPS_CLIENT_TERMINATED,
		driver.CUDA_ERROR_EXTERNAL_DEVICE:
		return true
	}
	return false
}

// check returns the error for a code of package rt, nil for success.
func check(op string, code driver.CUresult) error {
	if code == driver.CUDA_SUCCESS {
		return nil
	}
	return failed(op, code)
}

func failed(op string, code driver.CUresult) *Error {
	switch code {
	case rt.CodeCapturing:
		return &Error{Op: op, Err: ErrCapturing}
	case rt.CodeCallback:
		return &Error{Op: op, Err: ErrInCallback}
	case rt.CodeReset:
		return &Error{Op: op, Err: ErrReset}
	}
	lost := fatal(code)
	if lost {
		onLoss(code)
	}
	return &Error{Op: op, Code: code, Err: code, Async: lost}
}

// onLoss is called with each fatal code. The witness replaces it.
var onLoss = func(driver.CUresult) {}

// wrap makes op the operation of err. If err already names one, that was a step of op,
// the operation that the user called.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok && e.Op != op {
		renamed := *e
		renamed.Op = op
		return &renamed
	}
	var named *Error
	if errors.As(err, &named) {
		return err
	}
	var code driver.CUresult
	if errors.As(err, &code) {
		return failed(op, code)
	}
	return &Error{Op: op, Err: err}
}

// refuse returns an *Error that CUDA did not cause, with a formatted Detail. It is not inlined, as
// hundreds of copies would take a while to compile.
//
//go:noinline
func refuse(op string, err error, format string, args ...any) error {
	return &Error{Op: op, Err: err, Detail: fmt.Sprintf(format, args...)}
}

// noContext and noFunction return the errors of calls with a nil argument, which would panic
// otherwise.
func noContext(op string) error { return refuse(op, ErrInvalidArgument, "the context.Context is nil") }

func noFunction(op string) error { return refuse(op, ErrInvalidArgument, "the function is nil") }

// placed adds to an error the place of its cause in a list, such as "node 3".
func placed(op, place string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Op: op, Err: err, Detail: place}
	}
	at := *e
	at.Op, at.Detail = op, place
	if e.Detail != "" {
		at.Detail += ": " + e.Detail
	}
	return &at
}

// named adds what was asked for to an error that has no detail.
func named(err error, name string) error {
	var e *Error
	if errors.As(err, &e) && e.Detail == "" {
		e.Detail = name
	}
	return err
}
