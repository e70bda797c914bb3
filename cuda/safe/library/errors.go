package library

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/internal/rt"
	"github.com/cudabind/cudabind/cuda/safe"
)

// Refuse returns an error for op that no library caused. Without op, [Rename] gives it one.
func Refuse(op string, err error, format string, args ...any) error {
	return &safe.Error{Op: op, Err: err, Detail: fmt.Sprintf(format, args...)}
}

// Rename makes op the operation of err, which may be an error of package safe, also one that another one wraps without a
// word of its own. It returns nil for nil.
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

// Load loads a library by the functions Open and Library of its generated package, unless the
// program has loaded one already.
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
