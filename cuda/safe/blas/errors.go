package blas

import (
	"errors"
	"fmt"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// refuse returns an error for op that neither CUDA nor cuBLAS caused.
func refuse(op string, err error, format string, args ...any) error {
	return &safe.Error{Op: op, Err: err, Detail: fmt.Sprintf(format, args...)}
}

// detail returns an error with a detail, of a step of an operation: [fail] names the operation.
func detail(err error, format string, args ...any) error { return refuse("", err, format, args...) }

// fail makes op the operation of err, which may be an error of package safe.
func fail(op string, err error) error {
	if err == nil {
		return nil
	}
	var code driver.CUresult
	e := &safe.Error{Op: op, Err: err}
	if inner, ok := err.(*safe.Error); ok {
		*e = *inner
		e.Op = op
	} else if errors.As(err, &code) {
		e.Code = code
	}
	return e
}
