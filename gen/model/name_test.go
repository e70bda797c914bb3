package model

import (
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGoName(t *testing.T) {
	for c, want := range map[string]string{
		"cuStreamCreate": "CuStreamCreate", "CUstream": "CUstream", "cudaStream_t": "CudaStream_t",
		"x": "X", "öl": "Öl", "_reserved": "X_reserved", "__x": "X__x",
	} {
		assert.Equal(t, want, GoName(c))
	}
}

func TestBase(t *testing.T) {
	for _, tt := range []struct {
		symbol, base string
		version      int
		thread       string
	}{
		{"cuMemAlloc", "cuMemAlloc", 1, ""},
		{"cuMemAlloc_v2", "cuMemAlloc", 2, ""},
		{"cuCtxCreate_v10", "cuCtxCreate", 10, ""},
		{"cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD", 2, "ptds"},
		{"cuStreamQuery_ptsz", "cuStreamQuery", 1, "ptsz"},
		{"cudaGraphAddNode_v12_ptsz", "cudaGraphAddNode", 12, "ptsz"},
		{"cublasSgemm_v2_64", "cublasSgemm_64", 2, ""},
		{"cublasDotEx_64", "cublasDotEx_64", 1, ""},
		{"CU_POINTER_ATTRIBUTE_v", "CU_POINTER_ATTRIBUTE_v", 1, ""},
		{"cudaX_v12020", "cudaX_v12020", 1, ""}, // a CUDA version is no variant
		{"CUDA_NODE_PARAMS_V1", "CUDA_NODE_PARAMS_V1", 1, ""},
		{"_v2", "_v2", 1, ""},
		{"", "", 1, ""},
	} {
		base, version, thread := Base(tt.symbol)
		assert.Equal(t, tt.base, base, tt.symbol)
		assert.Equal(t, tt.version, version, tt.symbol)
		assert.Equal(t, tt.thread, thread, tt.symbol)
	}
}

func TestParamName(t *testing.T) {
	for c, want := range map[string]string{
		"stream": "stream", "Flags": "Flags", "len": "len", "": "p3", "_": "p3",
		"type": "type_", "range": "range_", "func": "func_", // keywords
		"string": "string_", "byte": "byte_", "uint64": "uint64_", "error": "error_", "any": "any_", // types
		"args": "args_", "call": "call_", "err": "err_", "ret": "ret_", "status": "status_", "nil": "nil_", "unsafe": "unsafe_",
	} {
		assert.Equal(t, want, paramName(c, 3))
	}
}

// Parameters of one function keep different names.
func TestParamNamesDiffer(t *testing.T) {
	params := func(names ...string) (out []string) {
		var ps []*Param
		for _, n := range names {
			ps = append(ps, &Param{C: n, Type: &Type{Kind: Void}})
		}
		typeNames{}.params(ps, nil)
		for _, p := range ps {
			out = append(out, p.Go)
		}
		return out
	}
	assert.Equal(t, []string{"a", "p1", "b"}, params("a", "", "b"))
	assert.Equal(t, []string{"p1", "p1_"}, params("p1", ""))
	assert.Equal(t, []string{"string_", "string__", "string___"}, params("string_", "string", "string__"))
}

// TestParamLikeType: a parameter does not hide the type of one.
func TestParamLikeType(t *testing.T) {
	thing := &Decl{Kind: Struct, C: "CUthing", Go: "CUthing"}
	ps := []*Param{{C: "CUthing", Type: &Type{Kind: Pointer, Elem: &Type{Kind: Named, C: "CUthing", Decl: thing}}}, {C: "n", Type: basic("int")}}
	typeNames{}.params(ps, nil)
	assert.Equal(t, "CUthing_", ps[0].Go)
	assert.Equal(t, "n", ps[1].Go)
}

func TestVersionString(t *testing.T) {
	for n, want := range map[int]string{11080: "11.8", 12000: "12.0", 13050: "13.5", 13110: "13.11", 2000: "2.0"} {
		assert.Equal(t, want, VersionString(n))
	}
}

var cIdentifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Every C name has a Go name that other packages can use, and a base whose
// variants lead back to it.
func FuzzNames(f *testing.F) {
	for _, c := range []string{"cuMemAlloc_v2", "CUstream", "_x", "cuX_v1_ptsz_ptds", "a_v", "type", "cuA_v007", "_ptds"} {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, c string) {
		base, version, _ := Base(c)
		assert.True(t, strings.HasPrefix(c, base), base)
		if !cIdentifier.MatchString(c) || base == "" {
			return
		}
		assert.True(t, 0 <= version && version < 1000, version)
		again, version, thread := Base(base + "_v7_ptsz")
		assert.Equal(t, []any{base, 7, "ptsz"}, []any{again, version, thread})
		assert.True(t, token.IsIdentifier(GoName(c)) && token.IsExported(GoName(c)), GoName(c))
		assert.True(t, token.IsIdentifier(paramName(c, 0)), paramName(c, 0))
	})
}
