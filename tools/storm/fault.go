//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Classes of faults.
const (
	crash     = "crash"     // the process is gone
	hang      = "hang"      // no step ended for long
	mismatch  = "mismatch"  // memory has not what the model says, or something ran too often
	lost      = "lost"      // a capture was
	wrong     = "error"     // one that nothing explains
	fatal     = "fatal"     // CUDA is lost to the process, whichever step notices it
	panicked  = "panic"     // in a step
	leak      = "leak"      // something is alive after all was closed
	violation = "violation" // the simulated driver saw a wrong use
)

// A fault is something that went wrong in a program.
type fault struct {
	Class string `json:"class"`
	Kind  string `json:"kind,omitempty"` // of the step
	At    string `json:"at,omitempty"`   // goroutine and step
	Text  string `json:"text"`
}

func (f *fault) Error() string {
	return fmt.Sprintf("%s in %s (%s): %s", f.Class, f.Kind, f.At, f.Text)
}

// failf returns a fault, to which task.run adds the step.
func failf(class, format string, args ...any) error {
	return &fault{Class: class, Text: fmt.Sprintf(format, args...)}
}

var numbers = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

// newFault makes a fault of an error.
func newFault(kind, at string, err error) *fault {
	var f *fault
	switch {
	case safe.IsFatal(err):
		return &fault{fatal, kind, at, err.Error()}
	case errors.As(err, &f):
		f.Kind, f.At = kind, at
		return f
	}
	return &fault{wrong, kind, at, err.Error()}
}

// same tells whether two faults probably have one cause. Of crashes and hangs it compares only
// the class, as each time another step notices them.
func (f *fault) same(other *fault) bool {
	if f.Class != other.Class {
		return false
	}
	switch f.Class {
	case wrong, mismatch, lost:
		return f.Kind == other.Kind
	}
	return true
}

// signature groups equal faults for the summary.
func (f *fault) signature() string {
	text := numbers.ReplaceAllString(firstLine(f.Text), "#")
	if f.Class == fatal {
		return f.Class
	}
	return f.Class + " " + f.Kind + " " + text[:min(len(text), 80)]
}

// Every call may say that: its object is closed, by others, or its stream captures, for
// others, or the driver cannot.
var always = []error{
	safe.ErrClosed, safe.ErrCapturing, safe.ErrNotSupported, context.Canceled, context.DeadlineExceeded,
	driver.CUDA_ERROR_OUT_OF_MEMORY,
}

// explained tells whether err, and each of those that it joins, is one of the expected.
func explained(err error, also []error) bool {
	if err == nil {
		return true
	}
	var f *fault
	if errors.As(err, &f) {
		return false
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !explained(e, also) })
	}
	is := func(e error) bool { return errors.Is(err, e) }
	return slices.ContainsFunc(always, is) || slices.ContainsFunc(also, is)
}

// typed tells whether err is an error of package safe or of a context.Context: after a fault of the device, no
// more is required.
func typed(err error) bool {
	var e *safe.Error
	return err == nil || errors.As(err, &e) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
