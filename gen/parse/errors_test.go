package parse

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is no C to the front end stops the parser. The message says what it is and where.
func TestNoC(t *testing.T) {
	for _, tt := range []struct {
		name, declarations string
		want               string
	}{
		{"pragma as an operator", "_Pragma(\"pack(1)\")\nstruct CUx { char a; int b; };", "unhandled pragma pack"},
		{"pragma for another order of bytes", "#pragma scalar_storage_order little-endian\n#pragma scalar_storage_order big-endian\nstruct CUx { int b; };", "cuda.h:3:9: unhandled pragma scalar_storage_order"},
		{"pragma for Microsoft's layouts", "#pragma ms_struct off\n#pragma ms_struct on\nstruct CUx { int b; };", "unhandled pragma ms_struct"},
		{"unknown type", "int cuTake(size_of_nothing n);", `name that header in "before" of the row`},
		{"included header that is not there", "#include <nowhere.h>", "cuda.h: cuda.h:2:10: include file not found: <nowhere.h>\nadd its folder to -headers, as in include:/usr/include, or give -cuda"},
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
		{"variadic form", typedefs, "driver", "PFN_cuTake_v2000: it takes a variable number of arguments"},
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
	assert.ErrorContains(t, errorOf("int *\n#include <nowhere.h>\n"), "include file not found")
	assert.Error(t, errorOf("int *\n#include\n"))
}

func errorOf(declarations string) error {
	_, err := Parse(fstest.MapFS{
		"cuda.h":         {Data: []byte("#define CUDA_VERSION 13050\n" + declarations)},
		"cudaTypedefs.h": {Data: []byte("#include \"cuda.h\"\n")},
	}, "driver")
	return err
}
