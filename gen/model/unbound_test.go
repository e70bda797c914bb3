package model

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// of is the type that a declaration declares.
func of(d *Decl) *Type { return &Type{Kind: Named, C: d.C, Size: d.Size, Decl: d} }

// TestWithdraw: what needs the value of a type that is left out is left out, too, and the rest
// gets along without it.
func TestWithdraw(t *testing.T) {
	odd := &Decl{Kind: Struct, C: "struct CUodd", LeftOut: "odd"}
	pair := &Decl{Kind: Struct, C: "CUpair", Fields: []*Field{{C: "two", Type: array(2, of(odd))}}}
	inside := &Decl{Kind: Struct, C: "CUouter_in", Nested: true, Fields: []*Field{{C: "x", Type: basic("int")}}}
	outer := &Decl{Kind: Struct, C: "CUouter", Fields: []*Field{{C: "pair", Type: of(pair)}, {C: "in", Type: of(inside)}}}
	holder := &Decl{Kind: Struct, C: "CUholder", Fields: []*Field{{C: "at", Type: pointer(of(odd))}}}
	fn := &Decl{Kind: Callback, C: "CUfn", Params: []*Param{param("pair", of(pair))}, Result: nothing()}
	a := apiOf("cuTake", "cuGive", "cuPoint", "cuCall", "cuHold")
	a.Decls = []*Decl{odd, pair, outer, inside, holder, fn}
	a.Funcs[0].Params = []*Param{param("x", of(outer))}
	a.Funcs[1].Result = of(pair)
	a.Funcs[2].Params = []*Param{param("x", pointer(of(odd))), param("y", pointer(pointer(of(outer))))}
	a.Funcs[3].Params = []*Param{param("fn", of(fn))}
	a.Funcs[4].Params = []*Param{param("h", of(holder))}
	a.Vars = []*Var{{C: "cuOdd", Type: of(odd)}, {C: "cuAt", Type: pointer(of(odd))}}
	a.Aliases = []*Alias{{C: "CUother", Target: "CUouter"}, {C: "cuTakeIt", Target: "cuTake", Func: true}}
	withdraw(a)

	assert.Equal(t, []string{
		"CUpair: it holds struct CUodd by value, which is not bound",
		"CUouter: it holds CUpair by value, which is not bound",
		"CUfn, cuGive: it passes CUpair by value, which is not bound",
		"cuTake: it passes CUouter by value, which is not bound",
		"cuOdd: it is of type struct CUodd, which is not bound",
	}, a.Reasons())
	var kept []string
	for _, f := range a.Funcs {
		kept = append(kept, f.Prototype())
	}
	assert.Equal(t, []string{"int cuPoint(struct CUodd *x, CUouter **y)", "int cuCall(void *fn)", "int cuHold(CUholder h)"}, kept)
	assert.Equal(t, "uintptr", a.Funcs[1].Params[0].Type.Go)
	assert.Equal(t, []*Decl{holder}, a.Decls)
	assert.Equal(t, Void, holder.Fields[0].Type.Elem.Kind)
	require.Len(t, a.Vars, 1)
	assert.Empty(t, a.Aliases)
}

// TestSkip: a quirk leaves out a declaration of any kind. Numbers take the place of a type that
// is one in Go.
func TestSkip(t *testing.T) {
	make := func() *API {
		mode := &Decl{Kind: Enum, C: "CUmode", Size: 4, Underlying: basic("int"), Enumerators: []*Const{{C: "CU_ON", Value: "1"}}}
		handle := &Decl{Kind: Handle, C: "CUbox", Size: 8}
		fn := &Decl{Kind: Callback, C: "CUfn", Size: 8, Thread: "any", Result: nothing()}
		record := &Decl{Kind: Struct, C: "struct CUx", Size: 4, Fields: []*Field{{C: "a", Type: basic("int")}}}
		incomplete := &Decl{Kind: Incomplete, C: "CUz"}
		a := apiOf("cuTake", "cuGive")
		a.Decls = []*Decl{mode, handle, fn, record, incomplete}
		a.Funcs[0].Params = []*Param{param("mode", of(mode)), param("box", of(handle)), param("fn", of(fn)), param("x", pointer(of(record)))}
		a.Funcs[1].Params = []*Param{param("z", pointer(of(incomplete)))}
		a.Aliases = []*Alias{{C: "cuTakeIt", Target: "cuTake", Func: true}, {C: "CUy", Target: "struct CUx"}}
		a.Vars = []*Var{{C: "cuCount", Type: basic("int")}}
		a.Consts = []*Const{{C: "CU_TWO", Value: "2"}, {C: "CU_LIST"}}
		a.Unbound = []Unbound{{C: "cuPrint", Why: "it takes a variable number of arguments"}}
		a.Inlines = []Inline{{C: "cuBoth"}}
		a.Dropped = []string{"CU_MAKE"}
		return a
	}
	spell := func(a *API) string {
		var all []string
		for _, f := range a.Funcs {
			all = append(all, f.Prototype())
		}
		for _, al := range a.Aliases {
			all = append(all, al.C)
		}
		for _, d := range a.Decls {
			all = append(all, d.C)
			for _, e := range d.Enumerators {
				all = append(all, e.C)
			}
		}
		for _, v := range a.Vars {
			all = append(all, v.C)
		}
		for _, c := range a.Consts {
			all = append(all, c.C)
		}
		for _, in := range a.Inlines {
			all = append(all, in.C)
		}
		return strings.Join(append(append(all, a.Reasons()...), a.Dropped...), "; ")
	}
	const whole = "int cuTake(CUmode mode, CUbox box, CUfn fn, struct CUx *x); int cuGive(CUz *z); cuTakeIt; CUy; CUmode; CU_ON; CUbox; CUfn; struct CUx; CUz; cuCount; CU_TWO; CU_LIST; cuBoth; cuPrint: it takes a variable number of arguments; CU_MAKE"
	for _, tt := range []struct{ name, what, old, new string }{
		{"function", "cuTake", "int cuTake(CUmode mode, CUbox box, CUfn fn, struct CUx *x); int cuGive(CUz *z); cuTakeIt; ", "int cuGive(CUz *z); "},
		{"other name", "cuTakeIt", "cuTakeIt; ", ""},
		{"enum", "CUmode", "CUmode mode|CUmode; CU_ON; ", "int mode|"},
		{"enumerator", "CU_ON", "CU_ON; ", ""},
		{"handle", "CUbox", "CUbox box|CUbox; ", "void *box|"},
		{"callback type", "CUfn", "CUfn fn|CUfn; ", "void *fn|"},
		{"record", "struct CUx", "CUy; |struct CUx; ", "|"},
		{"record that no header defines", "CUz", "CUz; ", ""},
		{"variable", "cuCount", "cuCount; ", ""},
		{"constant", "CU_TWO", "CU_TWO; ", ""},
		{"macro that is no constant", "CU_LIST", "CU_LIST; ", ""},
		{"inline function", "cuBoth", "cuBoth; ", ""},
		{"what cannot be bound", "cuPrint", "cuPrint: it takes a variable number of arguments; ", ""},
		{"macro with parameters", "CU_MAKE", "; CU_MAKE", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := make()
			require.Equal(t, whole, spell(a))
			require.True(t, skip(a, tt.what))
			withdraw(a)
			want := whole
			for i, old := range strings.Split(tt.old, "|") {
				require.Contains(t, want, old)
				want = strings.Replace(want, old, strings.Split(tt.new, "|")[i], 1)
			}
			assert.Equal(t, want, spell(a))
		})
	}
	assert.False(t, skip(make(), "CUnone"))
}

// TestStrict: where cudabind publishes a package, what cannot be bound stops the generator until a
// row says that it is left out; of other libraries it is left out at once.
func TestStrict(t *testing.T) {
	take := func() *API {
		a := apiOf("cuTake")
		a.Unbound = []Unbound{{C: "cuPrint", At: "cuda.h:7:1", Why: "it takes a variable number of arguments"}}
		return a
	}
	err := Complete(take(), Options{Partial: true})
	require.ErrorContains(t, err, "cuda.h:7:1: cuPrint cannot be bound: it takes a variable number of arguments")
	rows, err := ReadQuirks("q.json", []byte(err.Error()[strings.Index(err.Error(), "[\n"):]))
	require.NoError(t, err)
	require.NoError(t, Complete(take(), Options{Partial: true, Quirks: rows}))

	a := take()
	a.Row = &Row{API: "other", Own: []string{"cuda.h"}}
	require.NoError(t, Complete(a, Options{}))
	assert.Equal(t, []string{"cuPrint: it takes a variable number of arguments"}, a.Reasons())
}

// TestRename: a quirk names a declaration of any kind, also where others speak of it.
func TestRename(t *testing.T) {
	mode := &Decl{Kind: Enum, C: "CUmode", Size: 4, Underlying: basic("int"), Enumerators: []*Const{{C: "CU_ON", Value: "1"}}}
	mode.Enumerators[0].Type = of(mode)
	record := &Decl{Kind: Struct, C: "struct CUx", Size: 4, Fields: []*Field{{C: "a", Type: of(mode)}}}
	a := apiOf("cuTake")
	a.Decls = []*Decl{mode, record}
	a.Funcs[0].Params = []*Param{param("x", pointer(of(record)))}
	a.Aliases = []*Alias{{C: "cuTakeIt", Target: "cuTake", Func: true}, {C: "CUy", Target: "struct CUx"}}
	a.Vars = []*Var{{C: "cuCount", Type: of(mode)}}
	a.Consts = []*Const{{C: "CU_FIRST", Value: "CU_ON"}}
	for name, as := range map[string]string{"cuTake": "Take", "cuTakeIt": "TakeIt", "CUmode": "Mode", "CU_ON": "On", "struct CUx": "X", "CUx.a": "Member", "cuCount": "Count", "CU_FIRST": "First"} {
		require.True(t, rename(as)(a, name), name)
	}
	assert.False(t, rename("None")(a, "CUnone"))
	require.NoError(t, Complete(a, Options{Partial: true}))

	assert.Equal(t, []string{"Take", "TakeIt", "Take", "CUy", "X"}, []string{a.Funcs[0].Go, a.Aliases[0].Go, a.Aliases[0].GoRef, a.Aliases[1].Go, a.Aliases[1].GoRef})
	assert.Equal(t, []string{"Mode", "On", "X", "Member", "Mode"}, []string{mode.Go, mode.Enumerators[0].Go, record.Go, record.Fields[0].Go, record.Fields[0].Type.Go})
	assert.Equal(t, []string{"X", "Count", "Mode", "First", "On"}, []string{a.Funcs[0].Params[0].Type.Elem.Go, a.Vars[0].Go, a.Vars[0].Type.Go, a.Consts[0].Go, a.Consts[0].Value})
}
