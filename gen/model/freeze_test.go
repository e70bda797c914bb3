package model

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// apiOf is an API of functions in one chapter, without parameters.
func apiOf(symbols ...string) *API {
	a := &API{Row: RowOf("driver"), Header: "cuda.h", Version: "14.0"}
	for _, s := range symbols {
		a.Funcs = append(a.Funcs, &Func{Symbol: s, Group: "CUDA_THING", Result: basic("int")})
	}
	return a
}

func complete(tb testing.TB, a *API, frozen map[string]string) {
	tb.Helper()
	require.NoError(tb, Complete(a, Options{Frozen: frozen, Partial: true}))
}

// goFuncs tells which symbol each Go function calls.
func goFuncs(a *API) map[string]string {
	out := map[string]string{}
	for _, f := range a.Funcs {
		out[f.Go] = f.Symbol
	}
	for _, al := range a.Aliases {
		if al.Func {
			out[al.Go] = al.Target
		}
	}
	return out
}

func TestFreezeFunctions(t *testing.T) {
	symbols := []string{"cuTake", "cuTake_v2", "cuTake_v3"}
	for _, tt := range []struct {
		name   string
		maps   string // what the header maps cuTake to, "" where it declares it
		frozen map[string]string
		want   map[string]string
		newer  string
	}{
		{"not frozen yet", "cuTake_v3", nil,
			map[string]string{"CuTake": "cuTake_v3", "CuTake_v1": "cuTake", "CuTake_v2": "cuTake_v2", "CuTake_v3": "cuTake_v3"}, ""},
		{"as frozen", "cuTake_v3", map[string]string{"cuTake": "cuTake_v3"},
			map[string]string{"CuTake": "cuTake_v3", "CuTake_v1": "cuTake", "CuTake_v2": "cuTake_v2", "CuTake_v3": "cuTake_v3"}, ""},
		{"mapped elsewhere", "cuTake_v3", map[string]string{"cuTake": "cuTake_v2"},
			map[string]string{"CuTake": "cuTake_v2", "CuTake_v1": "cuTake", "CuTake_v2": "cuTake_v2", "CuTake_v3": "cuTake_v3"}, "cuTake_v3"},
		{"frozen as itself", "cuTake_v3", map[string]string{"cuTake": "cuTake"},
			map[string]string{"CuTake": "cuTake", "CuTake_v2": "cuTake_v2", "CuTake_v3": "cuTake_v3"}, ""},
		{"frozen at what this header lacks", "cuTake_v2", map[string]string{"cuTake": "cuTake_v4"},
			map[string]string{"CuTake": "cuTake_v2", "CuTake_v1": "cuTake", "CuTake_v2": "cuTake_v2", "CuTake_v3": "cuTake_v3"}, ""},
		{"no plain name", "", nil,
			map[string]string{"CuTake": "cuTake", "CuTake_v2": "cuTake_v2", "CuTake_v3": "cuTake_v3"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := apiOf(symbols...)
			if tt.maps != "" {
				a.Aliases = []*Alias{{C: "cuTake", Target: tt.maps, Func: true}}
			}
			complete(t, a, tt.frozen)
			assert.Equal(t, tt.want, goFuncs(a))
			for _, al := range a.Aliases {
				assert.Equal(t, tt.newer, al.Newer)
			}
		})
	}
}

// Once published, a plain name means the same with every later header.
func TestPlainNamesStay(t *testing.T) {
	first := apiOf("cuTake", "cuTake_v2", "cuGive", "cuGive_ptsz", "cuKeep_v2")
	first.Aliases = []*Alias{{C: "cuTake", Target: "cuTake_v2", Func: true}, {C: "cuKeep", Target: "cuKeep_v2", Func: true}}
	complete(t, first, nil)
	frozen := PlainNames(first)
	assert.Equal(t, map[string]string{"cuTake": "cuTake_v2", "cuGive": "cuGive", "cuKeep": "cuKeep_v2"}, frozen)

	later := apiOf("cuTake", "cuTake_v2", "cuTake_v3", "cuGive", "cuGive_v2", "cuGive_ptsz", "cuKeep_v2", "cuNew")
	later.Aliases = []*Alias{{C: "cuTake", Target: "cuTake_v3", Func: true}, {C: "cuGive", Target: "cuGive_v2", Func: true}, {C: "cuKeep", Target: "cuKeep_v2", Func: true}}
	complete(t, later, frozen)
	for name, symbol := range goFuncs(first) {
		assert.Equal(t, symbol, goFuncs(later)[name], name)
	}
	again := PlainNames(later)
	for name, target := range frozen {
		assert.Equal(t, target, again[name], name)
	}
	assert.Equal(t, "cuNew", again["cuNew"])
}

// boxes is an API with versions of one type, the plain name of the last, and a
// function that takes the plain type.
func boxes(decls ...string) *API {
	a := apiOf("cuTake")
	for i, c := range decls {
		a.Decls = append(a.Decls, &Decl{Kind: Struct, C: c, Size: int64(4 * (i + 1)), Align: 4})
	}
	last := a.Decls[len(a.Decls)-1]
	a.Aliases = []*Alias{{C: "CUbox", Target: last.C}}
	a.Funcs[0].Params = []*Param{param("box", pointer(&Type{Kind: Named, C: "CUbox", Decl: last}))}
	return a
}

func goTypes(a *API) map[string]string {
	out := map[string]string{}
	for _, d := range a.Decls {
		out[d.Go] = d.C
	}
	return out
}

func TestFreezeTypes(t *testing.T) {
	first := boxes("CUbox_v1")
	complete(t, first, nil)
	assert.Equal(t, map[string]string{"CUbox": "CUbox_v1"}, goTypes(first))
	assert.Equal(t, "CUbox_v1", first.Aliases[0].Go)
	assert.Equal(t, "CUbox", first.Aliases[0].GoRef)
	frozen := PlainNames(first)
	assert.Equal(t, "CUbox_v1", frozen["CUbox"])

	later := boxes("CUbox_v1", "CUbox_v2")
	complete(t, later, frozen)
	assert.Equal(t, map[string]string{"CUbox": "CUbox_v1", "CUbox_v2": "CUbox_v2"}, goTypes(later))
	assert.Equal(t, "CUbox_v2", later.Aliases[0].Newer)
	used := later.Funcs[0].Params[0].Type.Elem
	assert.Equal(t, "CUbox_v2", used.Go, "the function takes the newer type")
	assert.Equal(t, "CUbox_v2", used.C)
	assert.Equal(t, frozen["CUbox"], PlainNames(later)["CUbox"])

	unfrozen := boxes("CUbox_v1", "CUbox_v2")
	complete(t, unfrozen, nil)
	assert.Equal(t, map[string]string{"CUbox_v1": "CUbox_v1", "CUbox": "CUbox_v2"}, goTypes(unfrozen))
	assert.Equal(t, "CUbox", unfrozen.Funcs[0].Params[0].Type.Elem.Go)
}
