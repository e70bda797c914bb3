//go:build !(linux && (amd64 || arm64)) && !(windows && amd64)

package compile

const stopped uintptr = 0 // no compiler can be loaded
