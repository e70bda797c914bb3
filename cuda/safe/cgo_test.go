//go:build cgo

package safe_test

const withCgo = true
