package library

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Refuse returns a [*safe.Error] for op that wraps err, with a text for its Detail: for calls that you refuse before
// the library sees them. If op is "", [Rename] sets it later.
func Refuse(op string, err error, format string, args ...any) error {
	return &safe.Error{Op: op, Err: err, Detail: fmt.Sprintf(format, args...)}
}

// Rename returns err as a [*safe.Error] of the operation op. If err is a [*safe.Error] already, op replaces its
// operation. Rename returns nil for nil.
func Rename(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &safe.Error{Op: op, Err: err}
	for inner, ok := err.(*safe.Error); ok && inner != nil && e.Detail == ""; inner, ok = e.Err.(*safe.Error) {
		*e = *inner
		e.Op = op
	}
	var code driver.CUresult
	if e.Code == 0 && errors.As(e.Err, &code) {
		e.Code = code
	}
	return e
}

// Load loads a library, unless the program has loaded it already. open and loaded are the functions Open and Library of
// its generated package.
func Load(open func(string) error, loaded func() (file, version string, err error)) error {
	if open == nil || loaded == nil {
		return Refuse("library.Load", safe.ErrInvalidArgument, "a function is nil")
	}
	if err := open(""); err != nil {
		if _, _, none := loaded(); none != nil { // else the program has opened another file
			return rt.Simulated(err)
		}
	}
	return nil
}
