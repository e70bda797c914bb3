//go:build !(cgo && linux)

package cloop

// Without cgo no driver is ever loaded, so that there is nothing to call.

// Empty does nothing.
func Empty() {}

// Symbol finds nothing.
func Symbol(file, name string) uintptr { return 0 }

// Run cannot be called: there is no function to give it.
func (l Loop) Run(n int, args ...uintptr) (code int) { panic("cloop: built without cgo") }
