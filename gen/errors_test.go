package main

import (
	"bytes"
	"flag"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/headers"
)

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		name, args, want string
	}{
		{"nothing", "", "-cuda is missing"},
		{"no package", "-cuda 12.4", "-package is missing"},
		{"package that is no name", "-cuda 12.4 -package my-cuda", `-package "my-cuda": that is no name for a Go package`},
		{"package that is a keyword", "-cuda 12.4 -package func", `-package "func"`},
		{"unknown API", "-cuda 12.4 -package p -api nvcuvid", `-api "nvcuvid": it is driver, runtime`},
		{"unknown docs", "-cuda 12.4 -package p -docs mine", `-docs "mine": it is own or header`},
		{"unknown flag", "-cuda 12.4 -package p -fast", "flag provided but not defined: -fast"},
		{"argument", "-cuda 12.4 -package p driver", `unexpected argument "driver"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := run(strings.Fields(tt.args), io.Discard)
			assert.ErrorContains(t, err, tt.want)
			assert.ErrorAs(t, err, new(usageError))
		})
	}
	t.Run("help", func(t *testing.T) {
		var out bytes.Buffer
		assert.ErrorIs(t, run([]string{"-h"}, &out), flag.ErrHelp)
		for _, name := range []string{"-cuda version", "-api API", "-out folder", "-package name", "-headers folder", "-docs", "-frozen file", "-quirks file", "-import path", "-cc compiler"} {
			assert.Contains(t, out.String(), name)
		}
	})
}

func TestIncludeErrors(t *testing.T) {
	good := include(t, "int cuTake(int x);", nil)
	broken := include(t, strings.Repeat("int cuTake(undeclared x, 5);\n", 300), nil)
	for _, tt := range []struct {
		name, cuda, headers string
		want                []string
	}{
		{"unknown version", "99.1", "", []string{"99.1", "name an include folder with -headers"}},
		{"no such folder", "", filepath.Join(good, "nowhere"), []string{"nowhere: no cuda.h there: name the include folder of a CUDA toolkit"}},
		{"no cuda.h", "", t.TempDir(), []string{"no cuda.h there"}},
		{"another version", "12.4", good, []string{good + " is of CUDA 13.5, not of 12.4: give -cuda 13.5, or another folder"}},
		{"no version", "", folder(t, map[string]string{"cuda.h": "int x;\n"}), []string{"cuda.h defines no CUDA_VERSION"}},
		{"no cudaTypedefs.h", "", folder(t, map[string]string{"cuda.h": "#define CUDA_VERSION 13050\n"}), []string{"no cudaTypedefs.h in the include folder"}},
		{"broken header", "", broken, []string{"cuda.h:3:", "more"}},
		{"not all of NVIDIA's header", "13.5", good, []string{"the quirk for CUhostFn", "matches nothing in cuda.h of CUDA 13.5", "is this the whole of NVIDIA's header?"}},
		{"broken header of the other API", "", include(t, "", map[string]string{"cuda_runtime_api.h": "int"}), []string{"the quirk for"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			err := run([]string{"-cuda", tt.cuda, "-headers", tt.headers, "-package", "p", "-import", "example.com/p", "-out", out}, io.Discard)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
			assert.Less(t, len(err.Error()), 5000)
			assert.NoDirExists(t, out, "nothing is written")
		})
	}
}

// TestNotPinned: a version without a library names those with it.
func TestNotPinned(t *testing.T) {
	if _, err := headers.Find("12.4"); err != nil {
		t.Skipf("needs the headers that make generate fetches: %v", err)
	}
	err := run([]string{"-cuda", "12.4", "-api", "nccl", "-package", "p", "-import", "example.com/p", "-out", t.TempDir()}, io.Discard)
	assert.ErrorContains(t, err, "nccl.h is not pinned for CUDA 12.4, but for 12.9, 13.0")
	assert.ErrorContains(t, err, "or name an include folder with -headers")
}

// What the model does not know what to do with stops the generator.
func TestUndecided(t *testing.T) {
	for _, tt := range []struct {
		name, declarations, typedefs, want string
	}{
		{"callback without a row", "typedef void (*CUthingFn)(int x);", "", "callback type CUthingFn has no quirk row"},
		{"macro that is no constant", "#define CU_NAME {1, 2}", "", "macro CU_NAME has a body that is no constant"},
		{"function outside the chapters", "/** @} */\nint cuTake(int x);\n/** @{ */", "", "function cuTake stands in no chapter of cuda.h"},
		{"its chapter is the one before", "int cuGive(int x);\n/** @} */\nint cuTake(int x);\n/** \\defgroup CUDA_VDPAU Video @{ */\nint cuVDPAUTake(int x);", "", `"name":"cuTake","chapter":"CUDA_THING"`},
		{"variable number of arguments", "int cuTake(int x, ...);", "", "cuda.h:3:1: cuTake cannot be bound: it takes a variable number of arguments"},
		{"other signature", "int cuTake(int x);", "typedef int (*PFN_cuTake_v2000)(long x);", "int cuTake(int x) contradicts cudaTypedefs.h"},
		{"one Go name", "int cuTake(int x);\nint CuTake;", "", "both become CuTake in Go"},
		{"one Go name for a function and a type", "int cuTake(int x);\ntypedef int CuTake;", "", "both become CuTake in Go"},
		{"name of the package's own", "#define Open 1", "", "the package's own Open and Open both become Open in Go"},
		{"function of another library", "int nvmlInit(void);", "", "function nvmlInit does not begin with cu"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := include(t, tt.declarations, map[string]string{"cudaTypedefs.h": "#include \"cuda.h\"\n" + tt.typedefs + "\n"})
			_, _, err := generate(smallConfig(dir), nil, io.Discard)
			require.ErrorContains(t, err, tt.want)
			assert.Less(t, len(err.Error()), 600, err)
		})
	}
}
