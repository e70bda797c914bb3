// Package safe is the layer over the raw bindings that knows Go: handles with a
// lifetime, calls from any goroutine, errors that say what happened.
//
// It is not written yet; use the raw package
// [github.com/cudabind/cudabind/cuda/generated/driver].
package safe
