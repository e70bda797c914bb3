//go:build (linux && (amd64 || arm64)) || (windows && amd64)

package compile

// stopped is the address of a C function in assembly that tells NVRTC whether to stop: 1 if
// the int32 at its first argument is not 0. NVRTC asks hundreds of times in a compilation.
var stopped uintptr
