// Package rt is the C part of package safe: calls that make a context current, do their
// work and restore the previous context, in one cgo call.
//
// CUDA's current context belongs to the OS thread, and goroutines move between threads,
// so a call must set the context in the same cgo call that uses it. The same holds for
// the thread's capture mode: package safe works in mode RELAXED, because in the default
// mode even a query invalidates a capture on another thread.
package rt
