package sim

import (
	"os"
	"path/filepath"
)

// BuildNVRTC builds a double of NVRTC in a directory, as [Build] does, and returns the path of
// the file. A program that finds it compiles CUDA C++ for the simulated driver without NVRTC:
// the images name the kernels that the source declares, with the sizes of their parameters as
// far as these are of C's own types, and have variables of these types. Register the kernels to
// run them.
//
// It compiles nothing. It finds brackets that do not match, #error, name expressions of no
// kernel and no variable, and sources without kernels; most other errors in a source go
// unnoticed. It ignores the text of headers, and the preprocessor except macros that are
// numbers. Where it cannot tell the size or the first values of a variable, the driver returns
// CUDA_ERROR_NOT_SUPPORTED for it.
func BuildNVRTC(dir, version string) (string, error) {
	number, err := parse(version)
	if err != nil {
		return "", err
	}
	on := target()
	l, err := newLibrary(library{api: "nvrtc", on: on, file: on.nvrtc[number/1000], folder: "nvrtc"}, number)
	if err != nil {
		return "", err
	}
	file, err := l.build(dir)
	if err != nil || number >= 13000 {
		return file, err
	}
	// Programs look for the newest first, and must not find one elsewhere.
	first := filepath.Join(dir, on.nvrtc[13])
	if err := mayReplace(first); err != nil {
		return "", err
	}
	if err := os.Remove(first); err != nil && !os.IsNotExist(err) {
		return "", err
	}
	if on == windows { // which lets few users make links
		return file, copyFile(file, first, 0o777)
	}
	return file, os.Symlink(filepath.Base(file), first)
}
