package sim

import (
	"os"
	"path/filepath"
)

// nvrtcFirst is the name by which programs look for NVRTC first.
const nvrtcFirst = "libnvrtc.so.13"

// BuildNVRTC builds a double of NVRTC in a directory, as [Build] does, and returns the path of
// the file. A program that finds it compiles CUDA C++ for the simulated driver without NVRTC:
// the images name the kernels that the source declares, with the sizes of their parameters as
// far as these are of C's own types. Register the kernels to run them.
//
// It compiles nothing. It finds brackets that do not match, #error, name expressions of no
// kernel and sources without any; other errors in a source go unnoticed. It ignores the
// preprocessor and the text of headers.
func BuildNVRTC(dir, version string) (string, error) {
	number, err := parse(version)
	if err != nil {
		return "", err
	}
	l, err := newLibrary(library{api: "nvrtc", file: nvrtcFile(number), folder: "nvrtc"}, number)
	if err != nil {
		return "", err
	}
	file, err := l.build(dir)
	if err != nil || l.file == nvrtcFirst {
		return file, err
	}
	// Programs must not find a newer one elsewhere.
	first := filepath.Join(dir, nvrtcFirst)
	if err := os.Remove(first); err != nil && !os.IsNotExist(err) {
		return "", err
	}
	return file, os.Symlink(filepath.Base(file), first)
}

// nvrtcFile is the name of the library of a CUDA version.
func nvrtcFile(number int) string {
	switch number / 1000 {
	case 11:
		return "libnvrtc.so.11.2"
	case 12:
		return "libnvrtc.so.12"
	}
	return nvrtcFirst
}
