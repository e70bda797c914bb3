package parse

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// TestSeveralCharacters: an enumerator may be a constant of several characters, whatever apostrophes stand around it.
func TestSeveralCharacters(t *testing.T) {
	a := parsed(t, `
/* Don't take 'these'. */
typedef int wchar_t;
#define CU_DIGITS 1'000'000 // a number of C23, which isn't 'ab'
enum { CU_WAVE = 'WAVE', CU_TWO = 'ab', CU_QUOTE = '\'', CU_DOUBLE = '"', CU_WIDE = sizeof(L'a') + 'ab', CU_LAST };
int cuTake(int f);`)
	assert.Equal(t, "1463899717", value(t, a, "CU_WAVE"))
	assert.Equal(t, "24930", value(t, a, "CU_TWO"))
	assert.Equal(t, "24935", value(t, a, "CU_LAST"))
}

// TestMacroValues: a macro is the constant that C computes, of the type that Go has for it.
func TestMacroValues(t *testing.T) {
	const types = `
enum CUmode { CU_A = 1, CU_B = 2 };
enum CUsign { CU_MINUS = -3 };
typedef enum CUmode CUmode_t;
typedef struct CUx { int a; double b; } *CUx_t;
typedef struct CUopaque *CUhandle;
typedef void (*CUfn)(int);
typedef _Bool CUflag;
typedef unsigned char CUbyte;
`
	for _, tt := range []struct{ body, want, of string }{
		{"(1<<31)", "-2147483648", ""},
		{"-0x80000000", "2147483648", ""},
		{"(1 ? -1 : 0u)", "4294967295", ""},
		{"'\\377'", "-1", ""},
		{"'RIFF'", "1380533830", ""}, // of several characters: what GCC makes of it
		{"('a' + ' z')", "8411", ""},
		{`"'ab' and 'cd'"`, `"'ab' and 'cd'"`, ""},
		{"1 /* it's 'ab' */", "1", ""},
		{"1.0", "1.0", ""},
		{"(3.0/2)", "1.5", ""},
		{"1e10", "1e+10", ""},
		{"((double)2)", "2.0", ""},
		{`"a\0b\0"`, `"a\x00b\x00"`, ""},
		{"((enum CUmode)-1)", "4294967295", "enum CUmode"},
		{"((CUmode_t)-1)", "4294967295", "CUmode_t"},
		{"((enum CUsign)-1)", "-1", "enum CUsign"},
		{"((CUx_t)0)", "0", "void *"},
		{"((CUhandle)1)", "1", "CUhandle"},
		{"((CUfn)-1)", "18446744073709551615", "CUfn"},
		{"((CUflag)5)", "true", "CUflag"},
		{"((CUbyte)-1)", "255", "CUbyte"},
		{"(__LINE__ + 1)", "", ""},
		{"CU_PLACE", "", ""},
		{"(1.0/0.0)", "", ""},
		{"(-0.0)", "", ""},
		{`u8"text"`, "", ""},
		{"cuTake(1)", "", ""},
	} {
		t.Run(tt.body, func(t *testing.T) {
			headers := include(types + "#define CU_PLACE __FILE__\nint cuTake(int x);\n#define CU_ANSWER " + tt.body)
			a, err := Row(headers, &model.Row{API: "x", Headers: []string{"cuda.h"}, Own: []string{"cuda.h"}, Prefix: "cu"})
			require.NoError(t, err)
			if tt.want == "" {
				assert.Contains(t, a.Dropped, "CU_ANSWER")
				return
			}
			assert.Equal(t, tt.want, value(t, a, "CU_ANSWER"))
			for _, c := range a.Consts {
				if c.C == "CU_ANSWER" && tt.of != "" {
					require.NotNil(t, c.Type)
					assert.Equal(t, tt.of, c.Type.C)
				}
			}
		})
	}
}

// TestEnumValues: enumerators have the values of C, also those that need all bits.
func TestEnumValues(t *testing.T) {
	a := parsed(t, `
enum { CU_TOP = 0x8000000000000000, CU_ONE = 1 };
enum { CU_LOW = -1, CU_ALL = 0xffffffff };
enum CUwide { CU_LAST_BUT_ONE = 0xfffffffffffffffe, CU_LAST };
struct CUx { enum { CU_INSIDE = 0xffffffffffffffff } a; };`)
	got := map[string]string{}
	for _, c := range append(a.Consts, decl(t, a, "enum CUwide").Enumerators...) {
		got[c.C] = c.Value
	}
	assert.Equal(t, map[string]string{
		"CUDA_VERSION": "13050", "CU_TOP": "9223372036854775808", "CU_ONE": "1", "CU_LOW": "-1", "CU_ALL": "4294967295",
		"CU_LAST_BUT_ONE": "18446744073709551614", "CU_LAST": "18446744073709551615", "CU_INSIDE": "18446744073709551615",
	}, got)
	assert.Equal(t, "uint64", decl(t, a, "enum CUwide").Underlying.Go)
	assert.Equal(t, "uint64", decl(t, a, "struct CUx").Fields[0].Type.Go)
}
