package model

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Undecided declarations stop the generator, which reports all of them at once.
func TestUndecided(t *testing.T) {
	a := apiOf("cuTake", "cuGive")
	a.Funcs[1].Group = ""
	a.Consts = []*Const{{C: "CU_TEXT"}, {C: "CU_ONE", Value: "1"}}
	a.Decls = []*Decl{{Kind: Callback, C: "CUthingFn", Result: nothing()}}
	err := Complete(a, Options{Partial: true})
	require.ErrorContains(t, err, "cuda.h of CUDA 14.0")
	assert.ErrorContains(t, err, "macro CU_TEXT has a body that is no constant")
	assert.ErrorContains(t, err, "callback type CUthingFn has no quirk row")
	assert.ErrorContains(t, err, "function cuGive stands in no chapter of cuda.h")
	assert.NotContains(t, err.Error(), "cuTake")
	assert.NotContains(t, err.Error(), "CU_ONE")
}

func TestOneGoName(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*API)
		want   string
	}{
		{"two functions", func(a *API) { a.Funcs = append(a.Funcs, &Func{Symbol: "cuTake", Group: "X", Result: basic("int")}) },
			"cuTake and cuTake both become CuTake in Go"},
		{"function and type", func(a *API) { a.Decls = []*Decl{{Kind: Handle, C: "CuTake"}} },
			"cuTake and CuTake both become CuTake in Go"},
		{"type and constant", func(a *API) {
			a.Decls = []*Decl{{Kind: Handle, C: "cudaX"}}
			a.Consts = []*Const{{C: "CudaX", Value: "1"}}
		}, "cudaX and CudaX both become CudaX in Go"},
		{"enumerators", func(a *API) {
			a.Decls = []*Decl{
				{Kind: Enum, C: "CUa", Enumerators: []*Const{{C: "cudaOne", Value: "1", Type: basic("int")}}},
				{Kind: Enum, C: "CUb", Enumerators: []*Const{{C: "CudaOne", Value: "1", Type: basic("int")}}},
			}
		}, "cudaOne and CudaOne both become CudaOne in Go"},
		{"members", func(a *API) {
			a.Decls = []*Decl{{Kind: Struct, C: "CUx", Fields: []*Field{{C: "a", Type: basic("int")}, {C: "A", Type: basic("int")}}}}
		}, "CUx.a and CUx.A both become A in Go"},
		{"members through a record without a name", func(a *API) {
			in := &Decl{Kind: Union, C: "CUx_anon1", Nested: true, Fields: []*Field{{C: "a", Type: basic("int")}}}
			a.Decls = []*Decl{{Kind: Struct, C: "struct CUx", Fields: []*Field{{C: "A", Type: basic("int")}, {Type: of(in)}}}, in}
		}, "CUx.A and CUx.a both become A in Go"},
		{"a name of the package's own", func(a *API) { a.Consts = []*Const{{C: "Open", Value: "1"}} },
			"the package's own Open and Open both become Open in Go"},
		{"not of CUDA", func(a *API) { a.Funcs[0].Symbol = "nvmlInit" }, "function nvmlInit does not begin with cu"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := apiOf("cuTake")
			tt.change(a)
			assert.ErrorContains(t, Complete(a, Options{Partial: true}), tt.want)
		})
	}
}

func TestNames(t *testing.T) {
	a := apiOf("cuTake", "cudaGive_v2_ptsz")
	inner := &Decl{Kind: Struct, C: "CUx_in", Nested: true}
	anon := &Decl{Kind: Union, C: "CUx_in_anon0", Nested: true}
	inner.Fields = []*Field{{Type: &Type{Kind: Named, C: anon.C, Decl: anon}}}
	outer := &Decl{Kind: Struct, C: "CUx_v1", Fields: []*Field{
		{C: "in", Type: array(2, &Type{Kind: Named, C: inner.C, Decl: inner})},
		{C: "_pad", Type: basic("int")},
	}}
	a.Decls = []*Decl{outer, inner, anon, {Kind: Enum, C: "enum cudaMode"}}
	a.Aliases = []*Alias{{C: "CUx", Target: "CUx_v1"}, {C: "cudaMode_t", Target: "enum cudaMode"}}
	complete(t, a, nil)

	assert.Equal(t, []string{"CuTake", "CudaGive_v2_ptsz"}, []string{a.Funcs[0].Go, a.Funcs[1].Go})
	assert.Equal(t, []int{0, 1}, []int{a.Funcs[0].Number, a.Funcs[1].Number})
	assert.Equal(t, map[string]string{"CUx": "CUx_v1", "CUx_in": "CUx_in", "CUx_in_anon0": "CUx_in_anon0", "CudaMode": "enum cudaMode"}, goTypes(a))
	assert.Equal(t, []string{"In", "X_pad"}, []string{outer.Fields[0].Go, outer.Fields[1].Go})
	assert.Equal(t, "anon0", inner.Fields[0].Go)
	assert.Equal(t, "CUx_in", outer.Fields[0].Type.Elem.Go)
	assert.Equal(t, []string{"CUx_v1", "CudaMode_t"}, []string{a.Aliases[0].Go, a.Aliases[1].Go})
	assert.Equal(t, map[string]string{"cuTake": "cuTake", "CUx": "CUx_v1", "cudaMode_t": "enum cudaMode"}, PlainNames(a))
}

// Two readings of a prototype must agree.
func TestForms(t *testing.T) {
	handle := &Decl{Kind: Handle, C: "CUx"}
	other := &Decl{Kind: Handle, C: "CUy"}
	of := func(d *Decl) *Type { return &Type{Kind: Named, C: d.C, Size: 8, Decl: d} }
	sized := func(c string, size int64) *Type { return &Type{Kind: Basic, C: c, Size: size} }
	for _, tt := range []struct {
		name           string
		declared, form *Type
		contradicts    bool
	}{
		{"the same", sized("int", 4), sized("int", 4), false},
		{"another spelling", sized("size_t", 8), sized("unsigned long long", 8), false},
		{"another number", sized("int", 4), sized("unsigned int", 4), true},
		{"another size", sized("int", 4), sized("long", 8), true},
		{"another handle", of(handle), of(other), true},
		{"a pointer instead", sized("long", 8), pointer(sized("int", 4)), true},
		{"a pointer to another", pointer(of(handle)), pointer(of(other)), true},
		{"const or not", pointer(fixed(*sized("int", 4))), pointer(sized("int", 4)), true},
		{"const of the pointer", fixed(*pointer(nothing())), pointer(nothing()), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := apiOf("cuTake_v2", "cuUnknown")
			a.Funcs[0].Params = []*Param{param("x", tt.declared)}
			a.PFNs = []*PFN{
				{Func: "cuTake", Version: 2000, Result: basic("int")},
				{Func: "cuTake", Version: 3020, Result: basic("int"), Params: []*Param{param("", tt.form)}},
			}
			err := Complete(a, Options{Partial: true})
			if !tt.contradicts {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, "cuTake_v2(")
			assert.ErrorContains(t, err, "contradicts cudaTypedefs.h, which knows 2 other forms of cuTake")
		})
	}
}

func TestSince(t *testing.T) {
	assert.Equal(t, "2.0", Since("driver", "cuInit"))
	assert.Equal(t, "12.3", Since("driver", "cuStreamBeginCaptureToGraph"))
	assert.Equal(t, "<=11.8", Since("runtime", "cudaMalloc"))
	assert.Empty(t, Since("driver", "cudaMalloc"), "of the other API")
	assert.Empty(t, Since("driver", "cuNowhere"))
	assert.Equal(t, "CUDA 12.3", SinceText("12.3"))
	assert.Equal(t, "CUDA 11.8 or earlier", SinceText("<=11.8"))
}

// The header that declares a symbol first tells its version; for the oldest
// header cudaTypedefs.h knows more.
func TestIntroduced(t *testing.T) {
	old := apiOf("cuTake", "cuTake_v2", "cuTake_v2_ptsz", "cuPlain")
	old.Version = "11.8"
	old.PFNs = []*PFN{
		{Func: "cuTake", Version: 3020, Result: basic("int")},
		{Func: "cuTake", Version: 2000, Result: basic("int")},
	}
	later := apiOf("cuTake", "cuTake_v2", "cuTake_v3")
	later.Version = "12.0"
	assert.Equal(t, `driver cuTake 2.0
driver cuTake_v2 3.2
driver cuTake_v2_ptsz 7.0
driver cuPlain <=11.8
driver cuTake_v3 12.0
`, Introduced([]*API{old, later}))
}
