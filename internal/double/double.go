//go:build linux && (cgo || cudabind_nocgo)

// Package double has doubles of CUDA's libraries for tests on the simulated driver. They compute
// on the host, in the order of the streams, and say nothing about NVIDIA's libraries.
package double

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
)

// Library is the double of a library. It is one of the Kernels of sim.Main:
//
//	sim.Main(m, double.Library{Name: "cufft", Open: cufft.Open})
type Library struct {
	Name string                  // cublas, cublaslt, cufft, curand or nccl
	Open func(file string) error // of the raw package
	Log  string                  // a file that gets a line for each call, "" for none
}

// sources are the sources of the doubles, from this folder.
var sources = map[string]string{
	"cublas":   "blas/testdata/double/cublas.c",
	"cublaslt": "blas/testdata/double/cublaslt.c",
	"cufft":    "fft/testdata/cufft.c",
	"curand":   "random/testdata/double/curand.c",
	"nccl":     "collective/testdata/nccl/nccl.c",
}

// Register builds the double for the simulated driver that the process has opened, and uses it.
func (l Library) Register(c sim.Control) error {
	simulated, _, err := driver.Library()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", l.Name)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // what is open stays
	file, err := l.Build(dir, simulated)
	if err != nil {
		return err
	}
	return l.Use(c, file)
}

// Use opens a double that Build has built. That of cuFFT comes with the kernels of package fft.
func (l Library) Use(c sim.Control, file string) (err error) {
	if l.Name == "cufft" {
		err = scalers(c)
	}
	return errors.Join(err, l.Open(file))
}

// Build builds the double for a simulated driver, in a folder.
func (l Library) Build(dir, simulated string) (file string, err error) {
	file = filepath.Join(dir, "lib"+l.Name+".so")
	_, self, _, _ := runtime.Caller(0)
	cuda := filepath.Join(filepath.Dir(self), "..", "..", "cuda")
	log := cmp.Or(l.Log, os.DevNull)
	cc := command.CC("-O2", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror", "-DDRIVER="+strconv.Quote(simulated), "-DLOG="+strconv.Quote(log),
		"-I", filepath.Join(cuda, "generated"), "-I", filepath.Join(cuda, "safe", "blas", "testdata", "double"),
		"-o", file, filepath.Join(cuda, "safe", sources[l.Name]), "-lm", "-ldl")
	if out, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the double of %s: %w\n%s", l.Name, err, out)
	}
	return file, nil
}
