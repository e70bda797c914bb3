// Package rt makes the calls of package safe that must not be interrupted: they make a context
// current, do their work and restore the previous context, in one crossing into C. Each is
// described once, in Go. With cgo, C makes what is described; without, a list of steps does.
//
// CUDA's current context belongs to the OS thread, and goroutines move between threads,
// so a call must set the context in the same crossing that uses it. The same holds for
// the thread's capture mode: package safe works in mode RELAXED, because in the default
// mode even a query invalidates a capture on another thread.
package rt
