package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/cudabind/cudabind/cuda/generated/cublas"
	"github.com/cudabind/cudabind/cuda/generated/cublaslt"
	"github.com/cudabind/cudabind/cuda/generated/cudart12"
	"github.com/cudabind/cudabind/cuda/generated/cudart13"
	"github.com/cudabind/cudabind/cuda/generated/cufft"
	"github.com/cudabind/cudabind/cuda/generated/cupti"
	"github.com/cudabind/cudabind/cuda/generated/curand"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/cuda/generated/nvjitlink"
	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
)

// packages look for libraries that can be downloaded.
var packages = []struct {
	name    string
	library func() (file, version string, err error)
}{
	{"cudart12", cudart12.Library},
	{"cudart13", cudart13.Library},
	{"nvrtc", nvrtc.Library},
	{"nvjitlink", nvjitlink.Library},
	{"nccl", nccl.Library},
	{"cublas", cublas.Library},
	{"cublaslt", cublaslt.Library},
	{"cufft", cufft.Library},
	{"curand", curand.Library},
	{"cupti", cupti.Library},
}

// list prints what can be downloaded, what was, and what the packages find.
func (t *tool) list() error {
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LIBRARY\tCUDA\tWHEEL\tVERSION\tMB\tDOWNLOADED")
	known := map[string]bool{}
	for _, p := range t.pins {
		dir := "-"
		if t.installed(p) {
			dir = t.dir(p)
		}
		known[t.dir(p)] = true
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", p.Name, p.CUDA, p.Wheel, p.Version, p.Files[t.system].MB, dir)
	}
	others, _ := filepath.Glob(filepath.Join(t.root, "[a-z]*", "*"))
	for _, dir := range others {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && !known[dir] {
			fmt.Fprintf(w, "%s\t-\t-\t%s\t-\t%s\n", filepath.Base(filepath.Dir(dir)), filepath.Base(dir), dir)
		}
	}
	fmt.Fprintln(w, "\nPACKAGE\tCUDA\tFOUND")
	for _, p := range packages {
		file, version, err := p.library()
		if err != nil {
			file = err.Error()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.name, cmp.Or(version, "-"), file)
	}
	return w.Flush()
}
