//go:build (!cgo && cudabind_nocgo && linux && (amd64 || arm64)) || (windows && amd64)

package rt

import "unsafe"

// A step of a list is a call of CUDA's, or a test. Linux's assembly knows the layout.
type step struct {
	fn     uintptr        // 0 for a test
	args   unsafe.Pointer // words, and at least 8 that can be read
	words  uintptr
	word   *uint64 // nil for none: a call is skipped, and a test is passed, if it equals value
	value  uint64
	result uint64 // of a call, what it returned; of a test, the code that ends the list if it fails
	flags  uint64
}

// Flags of a step.
const (
	evenAfterEnd = 1 << iota // the call is also made after the list has ended, and its result is ignored
	anyResult                // an error does not end the list
	unlessEqual              // word must differ from value instead
	copied                   // neither a call nor a test: word is copied to args
)

// steps are made one after another, until a call or a test fails.
type steps struct {
	first unsafe.Pointer // *step
	n     uint64
	code  uint64 // of the step that has failed
	left  uint64 // how many steps there were from that one on
}

// makeSteps makes n steps. It returns the code of the first that fails, and its index; 0 and
// n if none does.
func makeSteps(first *step, n int) (code uint64, at int) {
	s := steps{first: unsafe.Pointer(first), n: uint64(n)}
	s.do()
	return s.code, n - int(s.left)
}
