package safe

import (
	"fmt"
	"runtime"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
)

// A CaptureMode says which calls of package driver, and of other libraries, CUDA rejects
// during a capture because they could depend on captured work, such as cuMemAlloc and
// cuEventQuery. No mode affects calls of this package.
type CaptureMode int

const (
	// CaptureThreadLocal rejects them on the thread that captures.
	CaptureThreadLocal CaptureMode = iota
	// CaptureGlobal rejects them on every thread of the process.
	CaptureGlobal
	// CaptureRelaxed rejects none. Any goroutine may end the capture.
	CaptureRelaxed
)

func (m CaptureMode) raw() driver.CUstreamCaptureMode {
	switch m {
	case CaptureGlobal:
		return driver.CU_STREAM_CAPTURE_MODE_GLOBAL
	case CaptureRelaxed:
		return driver.CU_STREAM_CAPTURE_MODE_RELAXED
	}
	return driver.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
}

func (m CaptureMode) String() string {
	switch m {
	case CaptureThreadLocal:
		return "thread-local"
	case CaptureGlobal:
		return "global"
	case CaptureRelaxed:
		return "relaxed"
	}
	return fmt.Sprintf("CaptureMode(%d)", int(m))
}

// check returns an error if there is no such mode.
func (m CaptureMode) check(op string) error {
	if m < CaptureThreadLocal || m > CaptureRelaxed {
		return refuse(op, ErrInvalidArgument, "%v does not exist", m)
	}
	return nil
}

// CaptureOptions are the options of [Stream.CaptureWith].
type CaptureOptions struct {
	Mode CaptureMode
}

// CaptureToOptions are the options of [Stream.CaptureTo].
type CaptureToOptions struct {
	Mode CaptureMode
	// Dependencies are nodes of the graph that the first captured work depends on.
	Dependencies []Node
	// EdgeData is the data of the edges from Dependencies, one each; nil for plain edges.
	EdgeData []driver.CUgraphEdgeData
}

func (o CaptureToOptions) target(g *Graph) *target {
	return &target{graph: g, deps: o.Dependencies, data: o.EdgeData}
}

// WithCaptureMode calls f with another capture mode for its thread. The mode decides which calls
// of package driver and of other libraries CUDA rejects in f, and which captures of other threads
// such calls invalidate. It does not affect calls of this package. The goroutine stays on its
// thread during f. WithCaptureMode restores the previous mode even if f panics. Source:
// cuThreadExchangeStreamCaptureMode.
func WithCaptureMode(mode CaptureMode, f func() error) error {
	const op = "WithCaptureMode"
	if err := mode.check(op); err != nil {
		return err
	}
	if f == nil {
		return noFunction(op)
	}
	if rt.InCallback() {
		return &Error{Op: op, Err: ErrInCallback}
	}
	if err := initialize(); err != nil {
		return wrap(op, err)
	}
	return inMode(op, mode, f)
}

// inMode calls f in a capture mode of the thread, to which it locks the goroutine.
func inMode(op string, mode CaptureMode, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	raw := mode.raw()
	if err := driver.CuThreadExchangeStreamCaptureMode(&raw); err != nil {
		return wrap(op, err)
	}
	defer driver.CuThreadExchangeStreamCaptureMode(&raw)
	return f()
}
