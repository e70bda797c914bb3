package safe

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/lifetime"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// Facts of this package, to compare with by [errors.Is]. What CUDA itself says
// is compared with its own code, such as driver.CUDA_ERROR_OUT_OF_MEMORY.
var (
	// ErrClosed: the object is closed, nil, or a zero value.
	ErrClosed = lifetime.ErrClosed
	// ErrNotSupported: the driver or the device lacks it.
	ErrNotSupported = errors.ErrUnsupported
	// ErrCapturing: the stream captures, and the call would destroy the capture.
	ErrCapturing = errors.New("the stream captures, which this call would destroy")
	// ErrWrongThread: a capture can be ended only on the thread that began it.
	ErrWrongThread = errors.New("not the thread that began the capture")
	// ErrInCallback: a function that CUDA called has called CUDA.
	ErrInCallback = errors.New("called from a function that CUDA has called")
	// ErrForeignNode: a node is of another graph.
	ErrForeignNode = errors.New("a node of another graph")
	// ErrGraphLost: a capture into the graph has failed, and CUDA has destroyed the graph.
	ErrGraphLost = errors.New("the graph is lost by a capture that failed")
	// ErrConditional: CUDA does not do that with a graph that has conditional nodes.
	ErrConditional = errors.New("the graph has conditional nodes")
	// ErrReset: the device's primary context was reset, and what was made in it is gone.
	// After [Device.ResetPrimary] every object of before returns it. A reset by other means
	// is noticed, on drivers of CUDA 12.0 or newer, by calls that make or wait for something;
	// others pass the old handle to CUDA, which may crash.
	ErrReset = errors.New("the primary context was reset")
	// ErrContextMismatch: objects of different contexts were used together.
	ErrContextMismatch = errors.New("objects of different contexts")
	// ErrRange: an index, a length or a size is outside of what is there.
	ErrRange = errors.New("out of range")
	// ErrOverlap: source and destination of a copy overlap.
	ErrOverlap = errors.New("source and destination overlap")
	// ErrInvalidArgument: a kernel's arguments do not fit its parameters.
	ErrInvalidArgument = errors.New("wrong argument")
)

// Error is what every function of this package returns when it fails.
type Error struct {
	Op     string          // the function or method, such as "Stream.Query"
	Code   driver.CUresult // CUDA's code, 0 where it was not CUDA that refused
	Err    error           // the code, or one of this package's, or what kept the call from the driver
	Async  bool            // reported by Op, but caused by work that was enqueued earlier
	Detail string          // what is known beyond the code: a limit, a compiler's log
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cuda: %s: %s", e.Op, strings.TrimPrefix(e.Err.Error(), "cuda: "))
	if e.Async {
		b.WriteString(" (caused by earlier work)")
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String()
}

// Unwrap returns the cause: a driver.CUresult where CUDA refused.
func (e *Error) Unwrap() error { return e.Err }

// IsFatal tells whether err means that CUDA is lost to this process: a kernel
// has faulted, or the hardware has. Every context of every device is affected,
// and nothing but a new process helps. Closing still works: what is closed is
// gone, whatever Close returns.
func IsFatal(err error) bool {
	var code driver.CUresult
	return errors.As(err, &code) && fatal(code)
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

// check makes an error of what a call of package rt returned.
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

// onLoss is called with a code after which CUDA is lost. The witness sets it.
var onLoss = func(driver.CUresult) {}

// codeOf is the code of package rt for an error of an admission.
func codeOf(err error) driver.CUresult {
	switch {
	case errors.Is(err, ErrInCallback):
		return rt.CodeCallback
	case errors.Is(err, ErrReset):
		return rt.CodeReset
	}
	return rt.CodeCapturing
}

// wrap names the operation in which err happened: the one that the user called,
// if it was done by others of this package.
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

// refuse is an error of this package, with what there is to say about it.
func refuse(op string, err error, format string, args ...any) error {
	return &Error{Op: op, Err: err, Detail: fmt.Sprintf(format, args...)}
}
