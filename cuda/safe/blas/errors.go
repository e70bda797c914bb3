package blas

import "github.com/cudabind/cudabind/cuda/safe/library"

// refuse returns an error for op that neither CUDA nor cuBLAS caused.
func refuse(op string, err error, format string, args ...any) error {
	return library.Refuse(op, err, format, args...)
}

// detail returns an error with a detail, of a step of an operation: [fail] names the operation.
func detail(err error, format string, args ...any) error { return refuse("", err, format, args...) }

// fail makes op the operation of err, which may be an error of package safe.
func fail(op string, err error) error { return library.Rename(op, err) }
