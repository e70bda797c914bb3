package model

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A quirk that finds nothing in a version it is meant for is an error, outside
// of its range it is not.
func TestUnusedQuirk(t *testing.T) {
	unused := func(version string) string {
		a := apiOf("cuTake")
		a.Version = version
		err := Complete(a, Options{})
		assert.Error(t, err)
		return err.Error()
	}
	const row = "the quirk for CUlogsCallback (measured: a failing call runs it before it returns) matches nothing in cuda.h of CUDA "
	assert.Contains(t, unused("12.9"), row+"12.9: bound its range")
	assert.Contains(t, unused("13.10"), row+"13.10: bound its range")
	assert.NotContains(t, unused("12.8"), "CUlogsCallback")
	assert.NotContains(t, unused("13.5"), "cudaHostFn_t", "a row of the other API")
}

func TestBetween(t *testing.T) {
	for _, tt := range []struct {
		version, from, to string
		want              bool
	}{
		{"12.4", "", "", true},
		{"12.4", "12.4", "12.4", true},
		{"12.4", "12.5", "", false},
		{"12.4", "", "12.3", false},
		{"12.10", "12.9", "", true}, // numbers, not text
		{"9.2", "", "11.8", true},
		{"13.0", "12.9", "13.1", true},
		{"1.2.3", "1.2.3", "1.2.3", true}, // of a library that is not CUDA's
		{"1.2.3", "1.2.4", "", false},
		{"1.2.3", "", "1.2", true}, // with its patches
	} {
		assert.Equal(t, tt.want, between(tt.version, tt.from, tt.to), "%+v", tt)
	}
}

// Every row has a reason, and none is there twice.
func TestQuirkTable(t *testing.T) {
	seen := map[string]string{}
	for _, q := range quirks {
		assert.Contains(t, APIs(), q.api, q.name)
		assert.NotEmpty(t, q.reason, q.name)
		if q.from != "" && q.to != "" {
			assert.LessOrEqual(t, CompareVersions(q.from, q.to), 0, q.name)
		}
		key := q.api + " " + q.name + " " + q.from
		assert.NotContains(t, seen, key)
		seen[key] = q.reason
	}
}

func TestEnumQuirks(t *testing.T) {
	number := func(size int64) *Type { return &Type{Kind: Basic, C: "unsigned", Go: "uint", Size: size} }
	flags := &Decl{Kind: Enum, C: "enum CUflags", Size: 4}
	inner := &Decl{Kind: Struct, C: "struct CUinner", Fields: []*Field{{C: "flags", Type: number(4)}}}
	outer := &Decl{Kind: Struct, C: "CUouter", Fields: []*Field{{C: "in", Type: &Type{Kind: Named, Decl: inner}}, {C: "wide", Type: number(8)}}}
	a := apiOf("cuTake")
	a.Decls = []*Decl{flags, inner, outer}
	a.Funcs[0].Params = []*Param{
		param("float", &Type{Kind: Basic, C: "float", Go: "float32", Size: 4}), param("bool", &Type{Kind: Basic, C: "_Bool", Go: "bool", Size: 4}),
		param("flags", number(4)), param("wide", number(8)), param("narrow", number(2)),
		param("out", pointer(number(4))), param("wideOut", pointer(number(8))), param("anything", pointer(nothing())),
	}
	for _, tt := range []struct {
		name  string
		at    *Type
		found bool
	}{
		{"cuTake.float", a.Funcs[0].Params[0].Type, false},
		{"cuTake.bool", a.Funcs[0].Params[1].Type, false},
		{"cuTake.flags", a.Funcs[0].Params[2].Type, true},
		{"cuTake.wide", a.Funcs[0].Params[3].Type, true},
		{"cuTake.narrow", a.Funcs[0].Params[4].Type, false},
		{"cuTake.out", a.Funcs[0].Params[5].Type.Elem, true},
		{"cuTake.wideOut", a.Funcs[0].Params[6].Type.Elem, false},
		{"cuTake.anything", a.Funcs[0].Params[7].Type.Elem, false},
		{"CUouter.in.flags", inner.Fields[0].Type, true},
		{"CUouter.wide", outer.Fields[1].Type, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.found, holds("CUflags")(a, tt.name))
			assert.Equal(t, tt.found, tt.at.Enum == flags)
		})
	}
	assert.False(t, holds("CUgone")(a, "cuTake.flags"), "no such enum")
}

// TestRenameSwaps: two enumerators can change places, and constants that name them keep their values.
func TestRenameSwaps(t *testing.T) {
	for range 20 { // in any order of the rows
		flags := &Decl{Kind: Enum, C: "CUflags", Underlying: &Type{Kind: Basic, C: "unsigned", Go: "uint32", Size: 4}, Enumerators: []*Const{{C: "CU_ONE", Value: "1", Type: basic("int")}, {C: "CU_TWO", Value: "2", Type: basic("int")}}}
		a := apiOf("cuTake")
		a.Decls = []*Decl{flags}
		a.Consts = []*Const{{C: "CU_FIRST", Value: "CU_ONE"}, {C: "CU_SECOND", Value: "CU_TWO"}}
		assert.True(t, rename("CU_TWO")(a, "CU_ONE"))
		assert.True(t, rename("CU_ONE")(a, "CU_TWO"))
		complete(t, a, nil)
		assert.Equal(t, []string{"CU_TWO", "CU_ONE"}, []string{flags.Enumerators[0].Go, flags.Enumerators[1].Go})
		assert.Equal(t, []string{"CU_TWO", "CU_ONE"}, []string{a.Consts[0].Value, a.Consts[1].Value})
	}
}

// TestSkipWhatOthersName: what names something that is skipped gets its value or its type.
func TestSkipWhatOthersName(t *testing.T) {
	flags := &Decl{Kind: Enum, C: "CUflags", Size: 4, Underlying: &Type{Kind: Basic, C: "unsigned", Go: "uint32", Size: 4}, Enumerators: []*Const{{C: "CU_ONE", Value: "1", Type: basic("int")}, {C: "CU_TWO", Value: "2", Type: basic("int")}}}
	a := apiOf("cuTake")
	a.Decls = []*Decl{flags}
	a.Consts = []*Const{{C: "CU_FIRST", Value: "CU_ONE"}, {C: "CU_SECOND", Value: "CU_TWO"}, {C: "CU_THIRD", Value: "CU_FOURTH"}, {C: "CU_FOURTH", Value: "4"}}
	a.Aliases = []*Alias{{C: "CUflags2", Target: "CUflags"}}
	a.Funcs[0].Params = []*Param{param("flags", &Type{Kind: Named, C: "CUflags2", Decl: flags, Size: 4}), param("number", &Type{Kind: Basic, C: "unsigned", Go: "uint32", Size: 4})}
	assert.True(t, holds("CUflags")(a, "cuTake.number"))
	for _, name := range []string{"CU_ONE", "CU_FOURTH", "CUflags2"} {
		assert.True(t, skip(a, name), name)
	}
	assert.Equal(t, "1", a.Consts[0].Value)
	assert.Equal(t, "CU_TWO", a.Consts[1].Value)
	assert.Equal(t, "4", a.Consts[2].Value)
	assert.Equal(t, "CUflags", a.Funcs[0].Params[0].Type.C)
	assert.True(t, skip(a, "CUflags"))
	complete(t, a, nil)
	assert.Equal(t, "2", a.Consts[1].Value)
	assert.Nil(t, a.Funcs[0].Params[1].Type.Enum, "a number again")
	assert.Equal(t, "uint32", a.Funcs[0].Params[0].Type.Go)
}

func TestCallbackQuirks(t *testing.T) {
	host := &Decl{Kind: Callback, C: "CUhostFn", Result: nothing()}
	fn := func() *Type { return &Type{Kind: Named, C: "CUhostFn", Decl: host} }
	a := apiOf("cuLaunch", "cuUserObjectCreate")
	a.Decls = []*Decl{host}
	a.Funcs[0].Params = []*Param{param("fn", fn()), param("userData", pointer(nothing()))}
	a.Funcs[1].Params = []*Param{param("ptr", pointer(nothing())), param("destroy", fn())}
	complete(t, a, nil)

	assert.Equal(t, "a thread of the driver's own", host.Thread)
	assert.True(t, host.GoAllowed)
	assert.Equal(t, []*Decl{host}, a.Funcs[0].Callbacks)
	assert.Len(t, a.Funcs[1].Callbacks, 1)
	assert.False(t, a.Funcs[1].Callbacks[0].GoAllowed, "it runs on the calling thread here")
	assert.Equal(t, "uintptr", a.Funcs[0].Params[1].Type.Go)
	assert.Equal(t, "uintptr", a.Funcs[1].Params[0].Type.Go)
}

func TestOpaque(t *testing.T) {
	a := apiOf("cuLaunch", "cuOther", "cuLaunch_v2")
	deep, plain, versioned := pointer(pointer(nothing())), pointer(nothing()), pointer(nothing())
	a.Funcs[0].Params = []*Param{param("extra", deep)}
	a.Funcs[1].Params = []*Param{param("data", plain), param("extra", basic("int"))}
	a.Funcs[2].Params = []*Param{param("extra", versioned)}
	a.Decls = []*Decl{{Kind: Struct, C: "CUx", Fields: []*Field{{C: "extra", Type: pointer(nothing())}, {C: "data", Type: pointer(nothing())}}}}
	assert.True(t, opaque(a, "cuLaunch.extra"))
	assert.Equal(t, []string{"", "uintptr", "", "uintptr"}, []string{deep.Go, deep.Elem.Go, plain.Go, versioned.Go})
	assert.Empty(t, a.Decls[0].Fields[0].Type.Go)
	assert.True(t, opaque(a, "CUx.extra"))
	assert.Equal(t, "uintptr", a.Decls[0].Fields[0].Type.Go)
	assert.False(t, opaque(a, "cuOther.extra"), "that is no pointer")
	assert.False(t, opaque(a, "cuOther.nothing"))
	assert.True(t, opaque(a, "*.data"))
	assert.Equal(t, []string{"uintptr", "uintptr"}, []string{plain.Go, a.Decls[0].Fields[1].Type.Go})
}

// A type is called by the name that programs know.
func TestCanonical(t *testing.T) {
	a := apiOf("cudaTake")
	a.Row = RowOf("runtime")
	d := &Decl{Kind: Enum, C: "enum cudaError", Tag: "cudaError"}
	a.Decls = []*Decl{d}
	a.Aliases = []*Alias{{C: "cudaError_t", Target: d.C}}
	a.Funcs[0].Result = &Type{Kind: Named, C: "cudaError_t", Decl: d}
	complete(t, a, nil)
	assert.True(t, d.Error)
	assert.Equal(t, "CudaError_t", d.Go)
	assert.Equal(t, "CudaError", a.Aliases[0].Go)
	assert.Equal(t, "CudaError_t", a.Aliases[0].GoRef)
	assert.Equal(t, "CudaError_t", a.Funcs[0].Result.Go)
}

func TestGroupAndSkip(t *testing.T) {
	a := apiOf("cuTake", "cuGive")
	a.Funcs[0].Group = ""
	assert.True(t, group("CUDA_BOX")(a, "cuTake"))
	assert.False(t, group("CUDA_BOX")(a, "cuGive"), "it has a chapter")
	assert.Equal(t, "CUDA_BOX", a.Funcs[0].Group)
	assert.Equal(t, "CUDA_THING", a.Funcs[1].Group)

	a.Consts = []*Const{{C: "CU_A", Value: "1"}, {C: "CU_B"}, {C: "CU_C", Value: "3"}}
	assert.True(t, skip(a, "CU_B"))
	assert.False(t, skip(a, "CU_D"))
	assert.Len(t, a.Consts, 2)
}
