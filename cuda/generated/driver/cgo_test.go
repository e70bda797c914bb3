//go:build cgo

package driver_test

const withCgo = true
