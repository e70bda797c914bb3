package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/generated/cudart12"
	"github.com/cudabind/cudabind/cuda/generated/cudart13"
	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/generated/nvjitlink"
	"github.com/cudabind/cudabind/cuda/generated/nvml"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
)

// library is a CUDA library and how much of its package it offers.
type library struct {
	Package   string   `json:"package"`
	File      string   `json:"file,omitempty"`
	Version   string   `json:"version,omitempty"`
	Functions int      `json:"functions"`          // of the package
	Offered   int      `json:"offered"`            // by the library
	Missing   []symbol `json:"missing,omitempty"`  // those it lacks
	NotFound  string   `json:"notFound,omitempty"` // why there is no library
	Misfits   []string `json:"misfits,omitempty"`  // what does not work with the driver, or with another library
}

type symbol struct {
	Name  string `json:"name"`
	Since string `json:"since"`
}

// raw is a raw package: all have the same functions of different types.
type raw struct {
	name      string
	functions int
	open      func(path string) error
	library   func() (file, version string, err error)
	missing   func() ([]symbol, error)
	// misfit says what of a library's version does not work with the driver's.
	misfit func(library, driver version) string
}

var driverPackage = raw{"driver", driver.Functions, driver.Open, driver.Library,
	missing(driver.Missing, func(e *driver.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), nil}

var packages = []raw{
	{"cudart12", cudart12.Functions, cudart12.Open, cudart12.Library,
		missing(cudart12.Missing, func(e *cudart12.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), newerMajor},
	{"cudart13", cudart13.Functions, cudart13.Open, cudart13.Library,
		missing(cudart13.Missing, func(e *cudart13.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), newerMajor},
	{"nvrtc", nvrtc.Functions, nvrtc.Open, nvrtc.Library,
		missing(nvrtc.Missing, func(e *nvrtc.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), newerCompiler},
	{"nvjitlink", nvjitlink.Functions, nvjitlink.Open, nvjitlink.Library,
		missing(nvjitlink.Missing, func(e *nvjitlink.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), newerMajor},
	{"nccl", nccl.Functions, nccl.Open, nccl.Library,
		missing(nccl.Missing, func(e *nccl.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), fits},
	{"cublas", cublas.Functions, cublas.Open, cublas.Library,
		missing(cublas.Missing, func(e *cublas.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), newerMajor},
	{"cublaslt", cublaslt.Functions, cublaslt.Open, cublaslt.Library,
		missing(cublaslt.Missing, func(e *cublaslt.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), newerMajor},
	{"cufft", cufft.Functions, cufft.Open, cufft.Library,
		missing(cufft.Missing, func(e *cufft.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), fits},
	{"curand", curand.Functions, curand.Open, curand.Library,
		missing(curand.Missing, func(e *curand.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), fits},
	{"cupti", cupti.Functions, cupti.Open, cupti.Library,
		missing(cupti.Missing, func(e *cupti.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), fits},
	{"nvml", nvml.Functions, nvml.Open, nvml.Library,
		missing(nvml.Missing, func(e *nvml.SymbolError) symbol { return symbol{e.Symbol, e.Since} }), fits},
}

func missing[E any](list func() ([]*E, error), read func(*E) symbol) func() ([]symbol, error) {
	return func() (out []symbol, err error) {
		gone, err := list()
		for _, e := range gone {
			out = append(out, read(e))
		}
		return out, err
	}
}

// look finds the package's library: in dir, if one is named, else where it usually is.
func (p raw) look(dir string, list bool) library {
	l := library{Package: p.name, Functions: p.functions}
	if dir != "" {
		_ = p.open(dir) // if it is not there, the next call looks elsewhere
	}
	var err error
	if l.File, l.Version, err = p.library(); err != nil {
		l.NotFound = err.Error()
		return l
	}
	gone, err := p.missing()
	if err != nil {
		l.NotFound = err.Error()
		return l
	}
	l.Offered = l.Functions - len(gone)
	if list {
		l.Missing = gone
	}
	return l
}

// version is a version of CUDA.
type version struct{ major, minor int }

// parse reads 13.5, and 13.x for an unknown minor version.
func parse(text string) version {
	major, minor, _ := strings.Cut(text, ".")
	var v version
	v.major, _ = strconv.Atoi(major)
	v.minor, _ = strconv.Atoi(minor)
	return v
}

func (v version) newer(than version) bool {
	return v.major > than.major || v.major == than.major && v.minor > than.minor
}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// fits: nothing is known that does not, as the versions do not follow CUDA's.
func fits(library, driver version) string { return "" }

// newerMajor: a driver serves libraries of its own major version and of older ones.
func newerMajor(library, driver version) string {
	if library.major > driver.major {
		return fmt.Sprintf("needs a driver of CUDA %d.0 or newer", library.major)
	}
	return ""
}

// newerCompiler: within a major version, drivers load machine code of newer compilers.
func newerCompiler(library, driver version) string {
	if library.major == driver.major && library.newer(driver) {
		return fmt.Sprintf("PTX of this compiler needs a driver of CUDA %s; machine code works", library)
	}
	if library.major > driver.major {
		return fmt.Sprintf("PTX of this compiler needs a driver of CUDA %s, machine code one of %d.0", library, library.major)
	}
	return ""
}

// compare notes which libraries do not fit the driver, or each other.
func (m *machine) compare() {
	found := map[string]version{}
	for i, p := range packages {
		l := &m.Libraries[i]
		if l.NotFound != "" {
			continue
		}
		found[p.name] = parse(l.Version)
		if misfit := p.misfit(found[p.name], parse(m.Driver.Version)); misfit != "" {
			l.Misfits = append(l.Misfits, misfit)
		}
		compiler, ok := found["nvrtc"]
		if p.name == "nvjitlink" && ok && (compiler.major != found[p.name].major || compiler.newer(found[p.name])) {
			l.Misfits = append(l.Misfits, fmt.Sprintf("LTO-IR of NVRTC %s needs nvJitLink %s or newer, of CUDA %d", compiler, compiler, compiler.major))
		}
	}
}
