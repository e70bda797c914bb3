package parse

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the parser does not know what to do with stops it. The message says
// what it is and where.
func TestUnhandled(t *testing.T) {
	for _, tt := range []struct {
		name, declarations string
		want               string
	}{
		{"variable with a value", "int cuCount = 5;", "cuda/cuda.h:2:1: cuCount: unhandled variable"},
		{"function definition", "int cuInit(void) { return 0; }", "cuda/cuda.h:2:1: unhandled definition of function cuInit"},
		{"assembler", `__asm__("nop");`, "cuda/cuda.h:2:1: unhandled declaration"},
		{"variadic function", "int cuPrint(const char *format, ...);", "cuda/cuda.h:2:1: cuPrint: unhandled variadic function"},
		{"variadic callback", "typedef int (*CUprint)(const char *format, ...);", "cuda/cuda.h:2:1: CUprint: unhandled variadic function"},
		{"pointer to a function as a parameter without a name", "int cuCall(void (*)(int));", "cuCall: parameter 0 : unhandled pointer to a function without a typedef"},
		{"variadic pointer to a function as a parameter", "int cuCall(void (*fn)(int, ...));", "cuCall: parameter 0 fn: unhandled variadic function"},
		{"pointer to a function as a result", "void (*cuGet(int x))(int);", "cuGet: result: unhandled pointer to a function without a typedef"},
		{"pointer to variadic functions as a member", "struct CUx { int a; void (*fn)(int, ...); };", "struct CUx.fn: unhandled variadic function"},
		{"flexible array", "struct CUx { int n; char text[]; };", "struct CUx.text: unhandled flexible array"},
		{"member without a name", "struct CUx { int a; int; };", "struct CUx: unhandled member without a name: int"},
		{"semicolon among members", "struct CUx { int a; ; };", "struct CUx: unhandled member without a name"},
		{"wide enum", "enum CUx { CU_BIG = 0x100000000 };", "enum CUx: unhandled enum of 8 bytes"},
		{"enum that is never defined", "enum CUx;", "enum CUx: unhandled enum"},
		{"enum inside a record", "struct CUx { enum { CU_A } a; };", "struct CUx.a: unhandled type enum"},
		{"pointer to an unknown record", "int cuTake(struct CUx *x);", "cuTake: parameter 0 x: unhandled use of struct CUx, which nothing declares"},
		{"function type", "typedef int CUx(int);", "CUx: unhandled type"},
		{"number that Go lacks", "int cuTake(long double x);", "cuTake: parameter 0 x: unhandled type long double"},
		{"record in a parameter", "int cuTake(union { int a; } *x);", "cuTake: parameter 0 x: unhandled type union"},
		{"pragma with a name", "#pragma pack(push, mine, 1)\nstruct CUx { char a; int b; };", "struct CUx: cuda/cuda.h:2:1: unhandled pragma pack(push,mine,1)"},
		{"pragma as an operator", "_Pragma(\"pack(1)\")\nstruct CUx { char a; int b; };", "unhandled pragma pack"},
		{"layout of another compiler", "struct __attribute__((ms_struct)) CUx { char a; int b : 3; };", "struct CUx: unhandled attribute ms_struct"},
		{"bit field of an aligned type", "typedef int CUi __attribute__((aligned(8))); struct CUx { CUi a : 3; };", "struct CUx: unhandled bit field a of a type that is aligned to 8"},
		{"record that a typedef aligns", "typedef struct { int a; } CUx __attribute__((aligned(16)));", "CUx: unhandled typedef of a record with an alignment of 16"},
		{"packed enum with a tag", "enum CUx { CU_A } __attribute__((packed));", "unhandled packed enum"},
		{"packed enum", "typedef enum { CU_A } __attribute__((packed)) CUx;", "unhandled packed enum"},
		{"number of another size", "typedef int CUx __attribute__((mode(DI)));", "unhandled attribute mode"},
		{"member of no size", "struct CUx { int a; struct {} b; };", "struct CUx.b: unhandled member of no size"},
		{"aligned pointer", "struct CUx { int *__attribute__((aligned(16))) p; };", "struct CUx: unhandled attribute inside of"},
		{"length by a layout that systems have in two ways", "struct CUx { char a; int b : 3; };\nstruct CUy { char pad[64 - sizeof(struct CUx)]; };", "cuda/cuda.h:3:1: unhandled sizeof: CUx has another layout on some system"},
		{"value by a layout that the front end has otherwise", "typedef struct { char a; int b; } __attribute__((packed)) CUx;\ntypedef CUx CUz;\nenum { CU_A = sizeof(CUz) };", "cuda/cuda.h:4:1: unhandled sizeof: CUz has another layout on some system"},
		{"unknown type", "int cuTake(size_of_nothing n);", `name that header in "before" of the row`},
		{"included header that is not there", "#include <nowhere.h>", "include file not found: <nowhere.h>"},
		{"plain name of nothing", "#ifndef __CUDA_API_VERSION_INTERNAL\n#define cuTake cuTake_v2\nint cuTake(void);\n#endif", "plain name cuTake maps to cuTake_v2, which the internal parse does not declare"},
		{"public alone", "#ifndef __CUDA_API_VERSION_INTERNAL\nint cuTake(void);\n#endif", "cuTake is declared publicly but not by the internal parse"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(include(tt.declarations), "driver")
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// A static function and what no program sees are no part of the API.
func TestNotOurs(t *testing.T) {
	for name, declarations := range map[string]string{
		"static function":   "static int helper(void) { return 0; }",
		"inline function":   "static __inline__ int helper(void) { return 0; }",
		"assertion":         `_Static_assert(sizeof(int) == 4, "four bytes");`,
		"semicolon alone":   ";",
		"number of Go's":    "typedef unsigned int cuuint32_t;",
		"forward":           "struct CUx;",
		"number of stddef":  "#include <stddef.h>",
		"comment of a type": "/* struct CUx { int a : 3; }; */",
	} {
		t.Run(name, func(t *testing.T) {
			a := parsed(t, declarations)
			assert.Empty(t, a.Decls)
			assert.Empty(t, a.Funcs)
			require.Len(t, a.Consts, 1)
			assert.Equal(t, "CUDA_VERSION", a.Consts[0].C)
		})
	}
}

func TestHeaderErrors(t *testing.T) {
	without := func(name string) fstest.MapFS {
		headers := include("")
		delete(headers, name)
		return headers
	}
	text := func(cuda string) fstest.MapFS {
		headers := include("")
		headers["cuda.h"] = &fstest.MapFile{Data: []byte(cuda)}
		return headers
	}
	typedefs := include("int cuTake(int x);")
	typedefs["cudaTypedefs.h"] = &fstest.MapFile{Data: []byte("typedef int (*PFN_cuTake_v2000)(int x, ...);\n")}
	for _, tt := range []struct {
		name    string
		headers fstest.MapFS
		api     string
		want    string
	}{
		{"unknown API", include(""), "nvcuvid", `unknown API "nvcuvid": it is one of driver, runtime`},
		{"no cuda.h", without("cuda.h"), "driver", "no cuda.h in the include folder"},
		{"no cudaTypedefs.h", without("cudaTypedefs.h"), "driver", "no cudaTypedefs.h in the include folder"},
		{"no cuda_runtime_api.h", include(""), "runtime", "no cuda_runtime_api.h in the include folder"},
		{"no version", text("#define CUDA_VERSION_MAJOR 13\n"), "driver", "cuda.h defines no CUDA_VERSION"},
		{"version out of range", text("#define CUDA_VERSION 99999999999999999999\n"), "driver", "CUDA_VERSION 99999999999999999999"},
		{"variadic form", typedefs, "driver", "PFN_cuTake_v2000: unhandled variadic function"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(tt.headers, tt.api)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// One wrong line can cause many errors: the message shows the first few.
func TestBrokenHeader(t *testing.T) {
	_, err := Parse(include(strings.Repeat("int cuX(undeclared a, 5);\n", 200)), "driver")
	require.ErrorContains(t, err, "cuda.h:2:")
	assert.LessOrEqual(t, strings.Count(err.Error(), "\n"), 6)
	assert.Less(t, len(err.Error()), 1000)
}

// A folder that lacks an API is told from one that is wrong.
func TestMissingHeader(t *testing.T) {
	_, err := Parse(include(""), "runtime")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Parse(include("#include <nowhere.h>"), "driver")
	assert.NotErrorIs(t, err, fs.ErrNotExist)
}

// A header that is cut off anywhere is an error, and the parser gets to an end.
func TestTruncatedHeader(t *testing.T) {
	const text = `typedef struct CUx_st { int *a; enum { CU_A = (1 << 2) } b; } CUx;
/** text */
__attribute__((deprecated)) int cuTake(const char *const *x, CUx (*y)[4], void (*z)(int *));
`
	for i := range strings.TrimSpace(text) {
		if err := errorOf(text[:i]); err != nil {
			assert.Less(t, len(err.Error()), 1000, text[:i])
		}
	}
	assert.Error(t, errorOf("int cuTake(const char *"))
	assert.Error(t, errorOf("n(o 1 *"))
}

func errorOf(declarations string) error {
	_, err := Parse(fstest.MapFS{
		"cuda.h":         {Data: []byte("#define CUDA_VERSION 13050\n" + declarations)},
		"cudaTypedefs.h": {Data: []byte("#include \"cuda.h\"\n")},
	}, "driver")
	return err
}
