package parse

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"

	"github.com/cudabind/cudabind/gen/model"
)

// layoutOf spells a record as a system lays it out: size and alignment, and where each member
// lies, of bit fields as bits.
func layoutOf(d *model.Decl, system string) string {
	d = d.On(system)
	text := []string{fmt.Sprintf("%d/%d", d.Size, d.Align)}
	for _, f := range d.Fields {
		at := fmt.Sprint(f.C, " ", f.Offset)
		if f.Bits > 0 {
			at = fmt.Sprintf("%s %d+%d", f.C, 8*f.Offset+f.Bit, f.Bits)
		}
		text = append(text, at)
	}
	return strings.Join(text, ", ")
}

// TestLayouts: records as the C compilers of each system lay them out. TestRandomLayouts
// compares many more with compilers.
func TestLayouts(t *testing.T) {
	for _, tt := range []struct {
		name, declaration string
		linux             string
		arm64, windows    string // "" where it is that of linux
	}{
		{"bit field behind a smaller member", "{ char t; int a : 3; }", "4/4, t 0, a 8+3", "", "8/4, t 0, a 32+3"},
		{"bit fields of types of different sizes", "{ char a : 3; int b : 5; short c : 9; }", "4/4, a 0+3, b 3+5, c 16+9", "", "12/4, a 0+3, b 32+5, c 64+9"},
		{"no room in the unit", "{ int a : 20; int b : 20; }", "8/4, a 0+20, b 32+20", "", ""},
		{"zero width", "{ char a : 3; char : 0; char b : 3; }", "2/1, a 0+3, b 8+3", "", ""},
		{"wider zero width", "{ char a : 3; int : 0; char b : 3; }", "5/1, a 0+3, b 32+3", "8/4, a 0+3, b 32+3", "8/4, a 0+3, b 32+3"},
		{"zero width behind a plain member", "{ char a; int : 0; char b; }", "5/1, a 0, b 4", "8/4, a 0, b 4", "2/1, a 0, b 1"},
		{"bits without a name", "{ char a; int : 3; char b; }", "3/1, a 0, b 2", "4/4, a 0, b 2", "12/4, a 0, b 8"},
		{"_Bool", "{ _Bool on : 1; _Bool off : 1; _Bool plain; int n : 2; }", "4/4, on 0+1, off 1+1, plain 1, n 16+2", "", "8/4, on 0+1, off 1+1, plain 1, n 32+2"},
		{"packed", "{ char a; int b; short c; } __attribute__((packed))", "7/1, a 0, b 1, c 5", "", ""},
		{"packed bits", "{ int a : 20; int b : 20; } __attribute__((packed))", "5/1, a 0+20, b 20+20", "", "8/1, a 0+20, b 32+20"},
		{"packed and aligned", "{ long long a; char b; } __attribute__((packed, aligned(4)))", "12/4, a 0, b 8", "", ""},
		{"packed member", "{ char a; int b __attribute__((packed)); int c; }", "12/4, a 0, b 1, c 8", "", ""},
		{"aligned member", "{ char a; char b __attribute__((aligned(8))); char c; }", "16/8, a 0, b 8, c 9", "", ""},
		{"aligned specifier", "{ char a; _Alignas(16) char b; }", "32/16, a 0, b 16", "", ""},
		{"aligned member of a packed record", "{ char a; int b __attribute__((aligned(4))); } __attribute__((packed))", "8/4, a 0, b 4", "", ""},
		{"aligned to the most", "{ char a; } __attribute__((aligned))", "16/16, a 0", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := decl(t, parsed(t, "typedef struct "+tt.declaration+" CUx;"), "CUx")
			for i, want := range []string{tt.linux, tt.arm64, tt.windows} {
				if want == "" {
					want = tt.linux
				}
				assert.Equal(t, want, layoutOf(d, systems[i].name), systems[i].name)
			}
		})
	}
}

// TestMacrosOfLayouts: a macro has a value where the layout that it depends on is the same
// everywhere, and known to the front end.
func TestMacrosOfLayouts(t *testing.T) {
	const packed = "typedef struct { char a; int b; } __attribute__((packed)) CUx;\n"
	const plain = "typedef struct { char a; int b; } CUx;\n"
	const pasted = "#define CU_VERSION(name) (sizeof(CU ## name) | 1 << 24)\n"
	for _, tt := range []struct{ name, declarations, want string }{
		{"plain", plain + "#define CU_A sizeof(CUx)", "8"},
		{"packed", packed + "#define CU_A sizeof(CUx)", ""},
		{"through another macro", packed + "#define CU_B sizeof(CUx)\n#define CU_A (CU_B + 1)", ""},
		{"packed, of another type", packed + "#define CU_A sizeof(int)", "4"},
		{"pasted name of a plain record", plain + pasted + "#define CU_A CU_VERSION(x)", "16777224"},
		{"pasted name beside a packed record", packed + pasted + "#define CU_A CU_VERSION(x)", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, value(t, parsed(t, tt.declarations), "CU_A"))
		})
	}
}

// TestByPointer: functions that take or return a record by value are bound where C passes it
// as the package does, and left out with a reason where not.
func TestByPointer(t *testing.T) {
	for _, tt := range []struct{ name, record, want string }{
		{"plain", "{ char a; int b; }", ""},
		{"bit fields", "{ int a : 3; int b : 4; }", ""},
		{"aligned to a word", "{ char a; } __attribute__((aligned(8)))", ""},
		{"packing that changes nothing", "{ int a; int b; } __attribute__((packed, aligned(4)))", ""},
		{"aligned", "{ long long words[16]; } __attribute__((aligned(128)))", "it is aligned to 128 bytes, and arguments to 8"},
		{"packed", "{ char a; int b; } __attribute__((packed))", "it is packed, or its members are aligned"},
		{"aligned member", "{ char a; char b __attribute__((aligned(4))); }", "it is packed, or its members are aligned"},
		{"member of an aligned number", "{ char a; CUeight b; }", "it is packed, or its members are aligned"},
		{"bits without a name", "{ int a : 3; int : 3; int b : 3; }", "it has bit fields without a name"},
		{"another size on Windows", "{ char a; int b : 3; }", "its size differs between Linux on amd64, Linux on arm64 and Windows"},
		{"a packed one inside", "{ int x; struct { char a; int b; } __attribute__((packed)) in[2]; }", "of a member: it is packed, or its members are aligned"},
		{"a packed one deep inside", "{ struct { int x; struct { char a; int b; } __attribute__((packed)) in; char pad[3]; } deep; }", "of a member: it is packed, or its members are aligned"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := parsed(t, "typedef int CUeight __attribute__((aligned(8)));\ntypedef struct "+tt.record+" CUx;\nint cuTake(int a, CUx x);\nCUx cuGive(void);\nint cuPoint(CUx *x);")
			var symbols []string
			var left []string
			for _, f := range a.Funcs {
				symbols = append(symbols, f.Symbol)
			}
			bound := []string{"cuTake", "cuGive", "cuPoint"}
			if tt.want != "" {
				bound, left = bound[2:], []string{"cuTake, cuGive: it passes CUx by value: " + tt.want}
			}
			assert.Equal(t, bound, symbols)
			assert.Equal(t, left, a.Reasons())
		})
	}
}

// TestPlainNameOfLeftOut: a name that the header gives such a function is left out too.
func TestPlainNameOfLeftOut(t *testing.T) {
	a := parsed(t, "typedef struct { char a; int b; } __attribute__((packed)) CUx;\n#define cuTake cuTake_v2\nint cuTake(CUx x);\n#define cuGive cuTake_v2")
	assert.Empty(t, a.Funcs)
	assert.Empty(t, a.Aliases)
	assert.Len(t, a.Consts, 1, "CUDA_VERSION")
	assert.Len(t, a.Unbound, 1)
}

// TestPackingPragmas: each counts from its line on, also in other headers and inside of records.
func TestPackingPragmas(t *testing.T) {
	for _, tt := range []struct{ name, declarations, want string }{
		{"push", "#pragma pack(push, 1)\nstruct CUx { char a; int b; };", "5/1, a 0, b 1"},
		{"spaces", "  #  pragma  pack ( push , 2 ) // tight\nstruct CUx { char a; int b; };", "6/2, a 0, b 2"},
		{"pop", "#pragma pack(push, 1)\n#pragma pack(pop)\nstruct CUx { char a; int b; };", "8/4, a 0, b 4"},
		{"pop in between", "#pragma pack(push, 2)\n#pragma pack(push, 1)\n#pragma pack(pop)\nstruct CUx { char a; int b; };", "6/2, a 0, b 2"},
		{"set and push", "#pragma pack(2)\n#pragma pack(push)\n#pragma pack(1)\n#pragma pack(pop)\nstruct CUx { char a; int b; };", "6/2, a 0, b 2"},
		{"back to none", "#pragma pack(1)\n#pragma pack()\nstruct CUx { char a; int b; };", "8/4, a 0, b 4"},
		{"without effect", "#pragma pack(8)\nstruct CUx { char a; int b; };", "8/4, a 0, b 4"},
		{"where it is not compiled", "#ifdef CU_NEVER\n#pragma pack(1)\n#endif\nstruct CUx { char a; int b; };", "8/4, a 0, b 4"},
		{"inside of a record", "struct CUx { char a;\n#pragma pack(push, 1)\nint b; };", "5/1, a 0, b 1"},
		{"against an aligned member", "#pragma pack(2)\nstruct CUx { char a; int b __attribute__((aligned(8))); };", "6/2, a 0, b 2"},
		{"of another header", "#include \"cudaOpen.h\"\nstruct CUx { char a; int b; };", "5/1, a 0, b 1"},
		{"around another header", "#pragma pack(1)\n#include \"cudaPacked.h\"\n#pragma pack()", "5/1, a 0, b 1"},
		{"attribute by a macro", "#define PACKED __attribute__((__packed__))\nstruct PACKED CUx { char a; int b; };", "5/1, a 0, b 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headers := include(tt.declarations)
			headers["cudaOpen.h"] = &fstest.MapFile{Data: []byte("#pragma pack(1)\n")}
			headers["cudaPacked.h"] = &fstest.MapFile{Data: []byte("struct CUx { char a; int b; };\n")}
			a, err := Parse(headers, "driver")
			if assert.NoError(t, err) {
				assert.Equal(t, tt.want, layoutOf(decl(t, a, "struct CUx"), "linux_amd64"))
			}
		})
	}
}
