package collective

import (
	"context"
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Sentinel errors; compare with [errors.Is]. Errors of NCCL match their own codes, such as
// nccl.NcclRemoteError, and closed objects match safe.ErrClosed.
var (
	// ErrAborted: the communicator was aborted, because of the error that this one wraps.
	// The results of operations that had not completed are undefined.
	ErrAborted = errors.New("the communicator was aborted")
	// ErrPeerLost: another rank has ended, or its machine cannot be reached. The error is a
	// [*PeerError].
	ErrPeerLost = errors.New("another rank is lost")
	// ErrNoLauncher: [FromEnv] found no variables of a launcher.
	ErrNoLauncher = errors.New("no launcher has started this process")
)

// PeerError says which rank is lost. It matches [ErrPeerLost].
type PeerError struct {
	Rank   int // in the communicator of [Join]
	Reason string
}

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d is lost: %s", e.Rank, e.Reason) }

// Is reports whether target is [ErrPeerLost].
func (e *PeerError) Is(target error) bool { return target == ErrPeerLost }

// abortError is why a communicator was aborted.
type abortError struct{ cause error }

func (e *abortError) Error() string   { return ErrAborted.Error() + ": " + e.cause.Error() }
func (e *abortError) Unwrap() []error { return []error{ErrAborted, e.cause} }

// refuse returns a *safe.Error with a formatted Detail.
func refuse(op string, err error, format string, args ...any) error {
	return &safe.Error{Op: op, Err: err, Detail: fmt.Sprintf(format, args...)}
}

// mayWait returns safe.ErrInCallback where a call must not wait: the locks and the ranks that it waits
// for may need the driver's thread.
func mayWait(op string) error {
	if rt.InCallback() {
		return &safe.Error{Op: op, Err: safe.ErrInCallback}
	}
	return nil
}

// given returns safe.ErrInvalidArgument if ctx is nil.
func given(op string, ctx context.Context) error {
	if ctx == nil {
		return refuse(op, safe.ErrInvalidArgument, "the context.Context is nil")
	}
	return nil
}

// named makes op the operation of err, which may come from a step of it.
func named(op string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*safe.Error); ok {
		renamed := *e
		renamed.Op = op
		return &renamed
	}
	return &safe.Error{Op: op, Err: err}
}

// explained adds what NCCL says of its latest failure to an error code of NCCL.
func explained(err error) error {
	code, ok := err.(nccl.NcclResult_t)
	if !ok {
		return err
	}
	text, lookup := nccl.NcclGetLastError(0)
	if lookup != nil || text == "" {
		return err
	}
	return &ncclError{code, text}
}

// ncclError is an error code of NCCL with the reason.
type ncclError struct {
	code   nccl.NcclResult_t
	reason string
}

func (e *ncclError) Error() string { return e.code.Error() + ": " + e.reason }
func (e *ncclError) Unwrap() error { return e.code }
