//go:build !(cgo && linux)

package cloop

// Built tells whether the loops were built, which takes cgo.
const Built = false

// Empty does nothing.
func Empty() {}

// Symbol finds nothing.
func Symbol(file, name string) uintptr { return 0 }

// Run cannot be called: there is no function to give it.
func (l Loop) Run(n int, args ...uintptr) (code int) { panic("cloop: built without cgo") }

// Now cannot be called: there is nothing to time.
func Now() int64 { panic("cloop: built without cgo") }

// Timed cannot be called either.
func (l Loop) Timed(ns []int64, args ...uintptr) (code int) { panic("cloop: built without cgo") }

// Start starts nothing.
func Start(synchronize, event, setCurrent, context uintptr) (w Watch, ok bool) { return Watch{}, false }

// Done cannot be called either.
func (w Watch) Done() (at int64, code int) { panic("cloop: built without cgo") }
