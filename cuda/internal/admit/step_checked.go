//go:build cudabind_lockorder

package admit

import "sync/atomic"

// AtStep is what Between calls, or nil.
var AtStep atomic.Pointer[func()]

// Between marks the place between two steps that must be in this order, because another goroutine takes
// steps of its own meanwhile: mostly each side first says what it does and then looks for the other. A
// test stops goroutines there.
func Between() {
	if f := AtStep.Load(); f != nil {
		(*f)()
	}
}
