package trust

import _ "unsafe" // for go:linkname

// auxv returns the pairs of a type and a value that the kernel gave the program. Without cgo
// nothing else in Go tells them.
//
//go:linkname auxv runtime.getAuxv
func auxv() []uintptr

func secure() bool {
	const atSecure = 23
	pairs := auxv()
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == atSecure {
			return pairs[i+1] != 0
		}
	}
	return true
}
