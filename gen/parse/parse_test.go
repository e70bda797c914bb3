package parse

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// What was read, spelled in C again, is what the header says.
func TestPrototypes(t *testing.T) {
	const types = "#include <stddef.h>\n#include <stdint.h>\n" +
		"typedef struct CUx_st *CUx; typedef struct CUbox_st { int a; } CUbox; enum CUmode { CU_A };\n"
	for _, want := range []string{
		"void cuNothing(void)",
		"int cuUnnamed(int, const char *)",
		"const char *cuText(unsigned int code)",
		"const char *const *cuTexts(void)",
		"void **cuPointers(void *a, const void *b, void **c, const void **d, void *const *e, const void *const *f)",
		"int cuHandles(CUx x, CUx *list, const CUx *fixed, CUx *const *far)",
		"enum CUmode cuTagged(enum CUmode mode)",
		"CUbox cuBox(CUbox box, const CUbox *from)",
		"size_t cuSizes(size_t a, uint64_t b, unsigned long long c, signed char d, const size_t *e)",
		"float cuFloats(float a, double b)",
		"int cuGrid(int (*grid)[4], const char (*texts)[2][3])",
	} {
		t.Run(want, func(t *testing.T) {
			a := parsed(t, types+want+";")
			require.Len(t, a.Funcs, 1)
			assert.Equal(t, want, a.Funcs[0].Prototype())
		})
	}
}

// A parameter that C turns into a pointer is one.
func TestArrayParameters(t *testing.T) {
	a := parsed(t, "int cuTake(int a[4], const char *names[], const int x, char *const p);")
	assert.Equal(t, "int cuTake(int *a, const char **names, int x, char *p)", a.Funcs[0].Prototype())
}

func TestLayout(t *testing.T) {
	a := parsed(t, `
typedef struct CUx_st {
	char a;
	struct { short b; double c; } in[2];
	union { int d; long long e; };
	struct CUx_st *next;
} CUx;
union CUu { char bytes[5]; int n; };
struct CUtable { struct { char c; } in[2][3]; };
struct __attribute__((aligned(64))) CUwide { int n; };`)
	x := decl(t, a, "CUx")
	assert.Equal(t, model.Struct, x.Kind)
	assert.Equal(t, "CUx_st", x.Tag)
	assert.EqualValues(t, 56, x.Size)
	var offsets []int64
	for _, f := range x.Fields {
		offsets = append(offsets, f.Offset)
	}
	assert.Equal(t, []int64{0, 8, 40, 48}, offsets)

	in := decl(t, a, "CUx_in")
	assert.True(t, in.Nested)
	assert.Equal(t, "(*(CUx*)0).in[0]", in.CPath)
	assert.EqualValues(t, 16, in.Size)
	assert.EqualValues(t, 8, in.Fields[1].Offset)
	assert.Equal(t, model.Union, decl(t, a, "CUx_anon2").Kind)

	assert.Equal(t, "(*(struct CUtable*)0).in[0][0]", decl(t, a, "struct CUtable_in").CPath)

	u := decl(t, a, "union CUu")
	assert.Equal(t, []int64{8, 4}, []int64{u.Size, u.Align})
	wide := decl(t, a, "struct CUwide")
	assert.Equal(t, []int64{64, 64}, []int64{wide.Size, wide.Align})
}

// The same record under its tag, its name and a pointer is one declaration.
func TestOneDeclaration(t *testing.T) {
	for name, declarations := range map[string]string{
		"definition first": "struct CUx_st { int a; }; typedef struct CUx_st CUx;",
		"in one":           "typedef struct CUx_st { int a; } CUx;",
		"typedef first":    "typedef struct CUx_st CUx; struct CUx_st { int a; };",
		"forward first":    "struct CUx_st; typedef struct CUx_st CUx; struct CUx_st { int a; };",
		"twice":            "struct CUx_st; struct CUx_st; typedef struct CUx_st { int a; } CUx;",
	} {
		t.Run(name, func(t *testing.T) {
			a := parsed(t, declarations+"\nint cuTake(CUx *x, struct CUx_st *y);")
			require.Len(t, a.Decls, 1)
			for _, p := range a.Funcs[0].Params {
				assert.Same(t, a.Decls[0], p.Type.Elem.Decl, p.C)
			}
		})
	}
}

// Of a record that no header defines there are only pointers, of the same type under each of its names.
func TestIncomplete(t *testing.T) {
	for _, tt := range []struct{ name, declarations, record string }{
		{"name", "typedef struct st name; int thing(name *x, const struct st *y);", "name"},
		{"tag", "int thing(struct st *x, const struct st *y);", "struct st"},
		{"name after the tag", "int thingOther(struct st *x); typedef struct st name; int thing(name *x, struct st *y);", "struct st"},
		{"name like the tag", "struct st; int thingOther(struct st *x); typedef struct st st; int thing(st *x, struct st *y);", "st"},
		{"two names", "typedef struct st one; typedef struct st two; typedef struct st two; int thing(two *x, one *y);", "one"},
		{"name of a pointer", "typedef struct st name; typedef name *pointer; int thing(pointer x, const name *y);", "name"},
		{"union", "typedef union st name; int thing(name *x, union st *y);", "name"},
		{"in a record", "typedef struct st name; struct in { name *x; }; int thing(struct st *x, const name *y);", "name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := ofLibrary(t, tt.declarations)
			record := decl(t, a, tt.record)
			assert.Equal(t, model.Incomplete, record.Kind)
			for _, p := range find(a.Funcs, "thing").Params {
				if p.Type.Is(model.Second) {
					p.Type = p.Type.Decl.Underlying
				}
				assert.Same(t, record, p.Type.Elem.Decl, p.C)
			}
		})
	}
}

// Records of the system's headers are pointers to anything, and a name for a pointer alone is a handle.
func TestIncompleteElsewhere(t *testing.T) {
	a := ofLibrary(t, "#include <stdio.h>\n#include <time.h>\ntypedef struct st *handle;\nint thing(FILE *x, const struct st *y, struct tm *z);")
	require.Len(t, a.Decls, 1)
	assert.Equal(t, model.Handle, a.Decls[0].Kind)
	assert.Equal(t, "int thing(struct _IO_FILE *x, const struct st *y, struct tm *z)", a.Funcs[0].Prototype())
	for _, p := range a.Funcs[0].Params {
		assert.Equal(t, model.Void, p.Type.Elem.Kind, p.C)
	}
}

func TestAliases(t *testing.T) {
	a := parsed(t, `
typedef int CUx_v1;
typedef CUx_v1 CUx;
typedef CUx CUy;
#define CUz CUx
enum CUmode { CU_A = 2 };
#define CU_FIRST CU_A
#define cuTake cuTake_v2
int cuTake(CUx x);
#ifdef __CUDA_API_VERSION_INTERNAL
#undef cuTake
int cuTake(int x);
#endif`)
	got := map[string]string{}
	for _, al := range a.Aliases {
		got[al.C] = al.Target
		assert.Equal(t, al.C == "cuTake", al.Func, al.C)
	}
	assert.Equal(t, map[string]string{"CUx": "CUx_v1", "CUy": "CUx_v1", "CUz": "CUx_v1", "cuTake": "cuTake_v2"}, got)
	var symbols []string
	for _, f := range a.Funcs {
		symbols = append(symbols, f.Symbol)
	}
	assert.Equal(t, []string{"cuTake_v2", "cuTake"}, symbols)
}

func TestConstants(t *testing.T) {
	a := parsed(t, `
typedef int CUx_v1;
typedef CUx_v1 CUx;
enum { CU_UNNAMED = -1 };
enum CUmode { CU_MODE = 3 };
#define CU_UNNAMED -1
#define CU_MODE CU_MODE
#define CU_TEXT "text"
#define CU_FLOAT 1.5
#define CU_CALL cuNothing(1)
#define CU_CAST ((CUx)-1)
#define CU_EMPTY
#define CU_WITH(x) x
#define _CU_GUARD 1`)
	got := map[string]string{}
	for _, c := range a.Consts {
		got[c.C] = c.Value
		if c.C == "CU_CAST" {
			assert.Equal(t, "CUx", c.Type.C)
		}
	}
	assert.Equal(t, map[string]string{
		"CUDA_VERSION": "13050", "CU_UNNAMED": "-1", "CU_CAST": "-1",
		"CU_TEXT": `"text"`, "CU_FLOAT": "1.5", "CU_CALL": "", // no constant: a quirk must say why they are left out
	}, got)
}

// Older variants take chapter and comment from the function they vary.
func TestVariants(t *testing.T) {
	a := parsed(t, `
#define cuTake cuTake_v2
/** \defgroup CUDA_OUTER Outer
 * @{ */
/** \defgroup CUDA_INNER Inner @{ */
/** \return ::CUDA_SUCCESS */
__attribute__((deprecated)) int cuTake(int x);
/** @} */
int cuLast(void);
/** @} */
int cuOutside(void);
#ifdef __CUDA_API_VERSION_INTERNAL
#undef cuTake
int cuTake(char x);
int cuTake_v2_ptsz(int x);
#endif`)
	type row struct {
		group, comment string
		deprecated     bool
	}
	got := map[string]row{}
	for _, f := range a.Funcs {
		got[f.Symbol] = row{f.Group, f.Comment, f.Deprecated}
	}
	const comment = `/** \return ::CUDA_SUCCESS */`
	assert.Equal(t, map[string]row{
		"cuTake_v2":      {"CUDA_INNER", comment, true},
		"cuTake":         {"CUDA_INNER", comment, false},
		"cuTake_v2_ptsz": {"CUDA_INNER", comment, true},
		"cuLast":         {"CUDA_OUTER", "", false},
		"cuOutside":      {"", "", false},
	}, got)
}

// A comment that marks itself as standing after its member may stand in front
// all the same, and belongs to no member that has none.
func TestMemberComments(t *testing.T) {
	a := parsed(t, `
typedef enum CUmode_enum {
    CU_BEHIND = 1, /**< behind */
    CU_BELOW = 2,
    /**< below */
    CU_NONE = 3,

    /** in front */
    CU_FRONT = 4, /**< late */
    /**< ahead */
    CU_AHEAD = 5,
    CU_BARE = 6,
    /**< ahead too */
    CU_AHEAD_TOO = 7,
    CU_LAST = 8 /**< last */
} CUmode;`)
	got := map[string]string{}
	for _, e := range decl(t, a, "CUmode").Enumerators {
		got[e.C] = e.Comment
	}
	assert.Equal(t, map[string]string{
		"CU_BEHIND": "/**< behind */", "CU_BELOW": "/**< below */", "CU_NONE": "", "CU_FRONT": "/** in front */",
		"CU_AHEAD": "/**< ahead */", "CU_BARE": "", "CU_AHEAD_TOO": "/**< ahead too */", "CU_LAST": "/**< last */",
	}, got)
}

func TestForms(t *testing.T) {
	headers := include("typedef struct CUx_st *CUx;\nint cuTake(CUx x);")
	headers["cudaTypedefs.h"] = &fstest.MapFile{Data: []byte(`
#include "cuda.h"
#define PFN_cuTake PFN_cuTake_v12000
typedef int (*PFN_cuTake_v2000)(int x);
typedef int (*PFN_cuTake_v12000)(CUx x);
typedef PFN_cuTake_v12000 PFN_other;
typedef int *PFN_cuNumber_v1;
int PFN_cuVariable_v1;
;`)}
	a, err := Parse(headers, "driver")
	require.NoError(t, err)
	require.Len(t, a.PFNs, 2)
	assert.Equal(t, "cuTake", a.PFNs[0].Func)
	assert.Equal(t, 2000, a.PFNs[0].Version)
	assert.Equal(t, 12000, a.PFNs[1].Version)
	assert.Equal(t, "CUx", a.PFNs[1].Params[0].Type.C)
}

// A comment may name the chapter of a function that stands elsewhere.
func TestIngroup(t *testing.T) {
	a := parsed(t, `/** \defgroup linking Linking */
/** \defgroup options Options */
/** \ingroup linking
 * \brief links */
int cuLink(int x);
/** \ingroup nowhere */
int cuOther(int x);`)
	require.Len(t, a.Funcs, 2)
	assert.Equal(t, "linking", a.Funcs[0].Group)
	assert.Equal(t, "options", a.Funcs[1].Group)
}

// A pointer to a function that a parameter spells in place gets a name of its own, and is
// spelled in place again.
func TestInlineCallback(t *testing.T) {
	a := parsed(t, "int cuCall(int (*fn)(void *, const char *text), void *data);")
	d := decl(t, a, "cuCall_fn")
	assert.Equal(t, model.Callback, d.Kind)
	assert.True(t, d.Inline)
	require.Len(t, a.Funcs, 1)
	assert.Equal(t, "int cuCall(int (*fn)(void *, const char *), void *data)", a.Funcs[0].Prototype())
	assert.Equal(t, "int (*x)(int (*)(void *, const char *), void *)", a.Funcs[0].PointerTo("x"))
}

// The prototype spells a pointer to a function that has no name, too.
func TestUnnamedCallback(t *testing.T) {
	a := parsed(t, "int cuCall(void *data, int(*)(void*,const char\n\t\t*), char *(*)(void));\nint cuTake(int, const void *);")
	require.Len(t, a.Funcs, 2)
	assert.Equal(t, "int cuCall(void *data, int (*)(void *, const char *), char *(*)(void))", a.Funcs[0].Prototype())
	assert.Equal(t, "int cuTake(int, const void *)", a.Funcs[1].Prototype())
}

// Functions that a header defines are kept with the library's functions that they call.
func TestInlines(t *testing.T) {
	a := parsed(t, "int cuTake(int x);\nint cuGive(int x);\nstatic inline int cuBoth(int x) { return cuGive(x) + cuTake(x) + cuTake(2); }\nstatic int cuNone(void) { return 0; }")
	assert.Equal(t, []model.Inline{{C: "cuBoth", Calls: []string{"cuGive", "cuTake"}}, {C: "cuNone", Calls: []string{}}}, a.Inlines)
}

// Macros with parameters are named as left out, if they are the library's and no attributes.
func TestDropped(t *testing.T) {
	a := parsed(t, "#define CU_MAKE(x) ((x) + 1)\n#define CU_OLD(x) __attribute__((deprecated))\n#define CU_OURS __attribute__((unused))\n#define OTHER(x) x\n#define _CU_HIDDEN(x) x\nint cuTake(int x);")
	assert.Equal(t, []string{"CU_MAKE"}, a.Dropped)
	require.Len(t, a.Consts, 1)
	assert.Equal(t, "CUDA_VERSION", a.Consts[0].C)
}

func TestVersion(t *testing.T) {
	for define, want := range map[string]string{"11080": "11.8", "13050": "13.5", "13110": "13.11"} {
		a, err := Parse(fstest.MapFS{
			"cuda.h":         {Data: []byte("/* CUDA */\n # define CUDA_VERSION\t" + define + " /* now */\n")},
			"cudaTypedefs.h": {Data: []byte("\n")},
		}, "driver")
		require.NoError(t, err)
		assert.Equal(t, want, a.Version)
	}
}

// What the header includes is read too, and what stands beside it is not.
func TestIncludes(t *testing.T) {
	headers := include("#include \"types.h\"\n#include <stdint.h>\nint cuTake(CUx x);")
	headers["types.h"] = &fstest.MapFile{Data: []byte("#include <stdlib.h>\ntypedef int CUx;\n#define CU_MORE 2\n")}
	headers["other.h"] = &fstest.MapFile{Data: []byte("this is no C\n")}
	headers["stdint.h"] = &fstest.MapFile{Data: []byte("nor is this\n")} // ours is in front of it
	a, err := Parse(headers, "driver")
	require.NoError(t, err)
	assert.Equal(t, "CUx", a.Decls[0].C)
	assert.Len(t, a.Consts, 2)
}

func TestGroups(t *testing.T) {
	text := []byte(`/** \defgroup CUDA_A First one
 * @{ */
/** @{ */ a group without a name
/** @} */
/**
 * @defgroup CUDA_B   Second
 */
/** @{ */
/** @} */
int cuOfA(void);
/** @} */
int cuOutside(void);
/** @{ */
/** @} */
/** @} */ closes nothing
/** \addtogroup CUDA_C @{ */
never closed`)
	assert.Equal(t, []model.Group{
		{Name: "CUDA_A", Title: "First one", Header: "cuda.h", Line: 1, End: 11},
		{Name: "CUDA_B", Title: "Second", Header: "cuda.h", Line: 6, End: 9},
		{Name: "CUDA_C", Title: "@{ */", Header: "cuda.h", Line: 16, End: 1 << 30},
	}, groups("cuda.h", text))
}
