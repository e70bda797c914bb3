//go:build cudabind_lockorder

package safe

import "sync/atomic"

// atStep is what between calls, or nil.
var atStep atomic.Pointer[func()]

// between marks the place between two steps that must be in this order, because another goroutine takes
// steps of its own meanwhile: mostly each side first says what it does and then looks for the other. A
// test stops goroutines there.
func between() {
	if f := atStep.Load(); f != nil {
		(*f)()
	}
}
