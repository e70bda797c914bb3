package parse

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cudabind/cudabind/gen/model"
)

// TestLeftOut: what cannot be bound is left out with its place and a reason, and nothing else is.
func TestLeftOut(t *testing.T) {
	for _, tt := range []struct {
		name, declarations string
		want               string
	}{
		{"variable with a value", "int cuCount = 5;", "2:1: cuCount: a variable that the header defines"},
		{"variable of a type that its value tells", "__auto_type cuCount = 5;", "2:1: cuCount: a variable that the header defines"},
		{"function definition", "int cuInit(void) { return 0; }", "2:1: cuInit: the header defines it"},
		{"static function", "static int cuTwice(int x); int cuTake(int x); static inline int cuTwice(int x) { return 2 * x; }", ""},
		{"static function without a body", "static int cuTwice(int x);", "2:1: cuTwice: the library does not export it, as it is static"},
		{"inline function in two steps", "inline int cuTwice(int x); inline int cuTwice(int x) { return 2 * x; }", ""},
		{"assembler", `__asm__("nop");`, ""},
		{"variadic function", "int cuPrint(const char *format, ...);", "2:1: cuPrint: it takes a variable number of arguments"},
		{"list of arguments", "#include <stdarg.h>\nint cuPrint(const char *format, va_list list);\nint cuScan(const char *format, __builtin_va_list *list);", "3:1: cuPrint: it takes a variable number of arguments\n4:1: cuScan: it takes a variable number of arguments"},
		{"other symbol", "int cuTake(int x) __asm__(\"cuTake_v2\");", "2:1: cuTake: its symbol has another name"},
		{"variable of a thread", "extern _Thread_local int cuError;", "2:1: cuError: each thread has its own"},
		{"record inside of itself", "typedef struct CUx_st CUx; struct CUx_st { CUx in; int a; };", "2:1: CUx: its member in is of a type that is not defined in front of it"},
		{"alignment without a number", "typedef struct { int a; } CUx __attribute__((aligned));", "2:1: CUx: an alignment that the generator does not know"},
		{"vector", "typedef int CUx __attribute__((vector_size(16)));", "2:1: CUx: the generator does not know what the attribute vector_size makes of it"},
		{"pointer to an unknown enum", "enum CUx; int cuTake(enum CUx *x);", "2:11: cuTake: its parameter x: nothing declares enum CUx"},
		{"member without a size in a record in place", "struct CUx { int a; struct { int n; char text[]; } in; };", "2:1: CUx_in.text: a member without a size"},
		{"variadic callback", "typedef int (*CUprint)(const char *format, ...);", "2:1: CUprint: it takes a variable number of arguments"},
		{"pointer to a function as a parameter without a name", "int cuCall(void (*)(int));", ""},
		{"variadic pointer to a function as a parameter", "int cuCall(void (*fn)(int, ...));", "2:1: cuCall_fn: it takes a variable number of arguments"},
		{"pointer to a function as a result", "void (*cuGet(int x))(int);", ""},
		{"pointer to variadic functions as a member", "struct CUx { int a; void (*fn)(int, ...); };", "2:1: CUx_fn: it takes a variable number of arguments"},
		{"flexible array", "struct CUx { int n; char text[]; };", "2:1: CUx.text: a member without a size"},
		{"member without a name", "struct CUx { int a; int; };", "2:1: struct CUx: it has a member without a name: int"},
		{"semicolon among members", "struct CUx { int a; ; };", "2:1: struct CUx: it has a member without a name: int"},
		{"wide enum", "enum CUx { CU_BIG = 0x100000000 };", ""},
		{"enum that is never defined", "enum CUx;", ""},
		{"enum inside a record", "struct CUx { enum { CU_A } a; };", ""},
		{"pointer to an unknown record", "int cuTake(struct CUx *x);", "2:1: cuTake: its parameter x: nothing declares struct CUx"},
		{"function type", "typedef int CUx(int);", ""},
		{"number that Go lacks", "int cuTake(long double x);", "2:1: cuTake: its parameter x: no type of Go is like long double"},
		{"record in a parameter", "int cuTake(union { int a; } *x);", ""},
		{"pragma with a name", "#pragma pack(push, mine, 1)\nstruct CUx { char a; int b; };", "3:1: struct CUx: cuda.h:2:1: unhandled pragma pack(push,mine,1)"},
		{"layout of another compiler", "struct __attribute__((ms_struct)) CUx { char a; int b : 3; };", "2:1: struct CUx: the generator does not know what the attribute ms_struct makes of it"},
		{"bit field of an aligned type", "typedef int CUi __attribute__((aligned(8))); struct CUx { CUi a : 3; };", "2:46: struct CUx: its bit field a is of a type that is aligned to 8"},
		{"record that a typedef aligns", "typedef struct { int a; } CUx __attribute__((aligned(16)));", "2:1: CUx: a typedef gives it an alignment of 16, of which its size is no multiple"},
		{"number of another size", "typedef int CUx __attribute__((mode(DI)));", "2:1: CUx: the generator does not know what the attribute mode makes of it"},
		{"member of no size", "struct CUx { int a; struct {} b; };", "2:1: CUx.b: a member without a size"},
		{"aligned pointer", "struct CUx { int *__attribute__((aligned(16))) p; };", "2:1: struct CUx: an attribute of a layout inside of *__attribute__((aligned(16))) p"},
		{"length by a layout that systems have in two ways", "struct CUx { char a; int b : 3; };\nstruct CUy { char pad[64 - sizeof(struct CUx)]; };", "3:1: struct CUy: it depends on the layout of CUx, which is another one on some system"},
		{"value by a layout that the front end has otherwise", "typedef struct { char a; int b; } __attribute__((packed)) CUx;\ntypedef CUx CUz;\nenum { CU_A = sizeof(CUz) };", "4:1: CU_A: it depends on the layout of CUz, which is another one on some system"},
		{"plain name of nothing", "#ifndef __CUDA_API_VERSION_INTERNAL\n#define cuTake cuTake_v2\nint cuTake(void);\n#endif", "4:5: cuTake: it means cuTake_v2, which the internal parse does not declare\n: cuTake_v2: it is declared publicly but not by the internal parse"},
		{"public alone", "#ifndef __CUDA_API_VERSION_INTERNAL\nint cuTake(void);\n#endif", ": cuTake: it is declared publicly but not by the internal parse"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := parsed(t, tt.declarations+"\nint cuLast(int x);")
			var left []string
			for _, u := range a.Unbound {
				left = append(left, strings.TrimPrefix(u.At, "cuda.h:")+": "+u.C+": "+u.Why)
			}
			assert.Equal(t, tt.want, strings.Join(left, "\n"))
		})
	}
}

// TestStaticFunctions: no library exports them, also where a declaration comes first.
func TestStaticFunctions(t *testing.T) {
	a := parsed(t, "static int cuTwice(int x); int cuTake(int x); static inline int cuTwice(int x) { return 2 * x; }\ninline int cuHalf(int x); inline int cuHalf(int x) { return x / 2; }\nstatic int cuNone(int x);")
	assert.Len(t, a.Funcs, 1)
	assert.Len(t, a.Inlines, 2)
}

// TestConstructs: what Go can hold is bound, in whatever way C spells it.
func TestConstructs(t *testing.T) {
	for _, tt := range []struct {
		name, declarations string
		want               string // the prototypes and types
	}{
		{"typedef before the definition", "typedef struct CUx_st *CUx; struct CUx_st { int a; }; int cuTake(CUx x);", "struct struct CUx_st 4, second CUx, int cuTake(CUx x)"},
		{"use before the definition", "int cuTake(struct CUx *x); struct CUx { int a; };", "struct struct CUx 4, int cuTake(struct CUx *x)"},
		{"enum of eight bytes", "enum CUx { CU_BIG = 0x100000000 }; int cuTake(enum CUx x);", "enum enum CUx 8 uint64, int cuTake(enum CUx x)"},
		{"enum of eight bytes, all of them", "enum CUx { CU_ALL = 0xffffffffffffffff }; int cuTake(enum CUx x);", "enum enum CUx 8 uint64, int cuTake(enum CUx x)"},
		{"enum of eight bytes with a sign", "enum CUx { CU_BIG = 0x100000000, CU_LOW = -1 }; int cuTake(enum CUx x);", "enum enum CUx 8 int64, int cuTake(enum CUx x)"},
		{"enum of one byte", "enum CUx : signed char { CU_A = -1 }; int cuTake(enum CUx x);", "enum enum CUx 1 int8, int cuTake(enum CUx x)"},
		{"enum of two bytes", "enum CUx : unsigned short { CU_A }; struct CUy { char a; enum CUx x; };", "enum enum CUx 2 uint16, struct struct CUy 4"},
		{"enum in place", "struct CUx { enum { CU_A, CU_B } a; };", "struct struct CUx 4"},
		{"flexible array", "struct CUx { int n; char text[]; }; int cuTake(struct CUx *x);", "struct struct CUx 4, int cuTake(struct CUx *x)"},
		{"half precision by pointer", "struct CUx { _Float16 a[3]; }; int cuTake(const _Float16 *x, struct CUx *y);", "struct struct CUx 6, int cuTake(const __float16 *x, struct CUx *y)"},
		{"half precision by value", "typedef _Float16 CUh; typedef struct { CUh a; } CUx; int cuTake(_Float16 x); int cuGive(CUh x); int cuHave(CUx x);", "scalar CUh 2 uint16, struct CUx 2"},
		{"number that Go lacks, by pointer", "int cuTake(long double *x, __int128 *y);", "int cuTake(void *x, void *y)"},
		{"C23", "[[nodiscard]] int cuTake(int x);\n[[deprecated(\"old\")]] int cuGive(void);\nconstexpr int CU_FIVE = 5;", "int cuTake(int x), int cuGive(void)"},
		{"pointers to functions", "void (*cuGet(int x))(int); int cuCall(void (*)(int), int (*table[2])(void), void (**at)(void));", "void *cuGet(int x), int cuCall(void (*)(int), void **table, void **at)"},
		{"pointers to functions as members", "struct CUx { void (*one)(int); void (*many[2])(int); };", "struct struct CUx 24, callback CUx_one 8"},
		{"Windows", "__declspec(dllimport) int cuTake(int x);", "int cuTake(int x)"},
		{"two names of an enum without a tag", "typedef enum { CU_A } CUx, *CUp, CUy; int cuTake(CUx x, CUy y, CUp p);", "enum CUx 4 uint32, second CUp, int cuTake(CUx x, CUy y, CUp p)"},
		{"a pointer to an enum without a tag, first", "typedef enum { CU_A } *CUp, CUx; int cuTake(CUx x, CUp p);", "enum CUx 4 uint32, second CUp, int cuTake(CUx x, CUp p)"},
		{"a pointer to an enum without a tag, alone", "typedef enum { CU_A } *CUp; int cuTake(CUp p);", "second CUp, int cuTake(CUp p)"},
		{"two names of a record without a tag", "typedef struct { int a; } CUx, *CUp, CUy[2], CUz; int cuTake(CUx *x, CUp p, CUz *z); extern CUy cuRow;", "struct CUx 4, second CUp, second CUy, int cuTake(CUx *x, CUp p, CUz *z), CUy cuRow"},
		{"a variable of a record without a tag", "typedef struct { int a; } CUx; typedef CUx CUy; extern CUy cuOne, *cuOther;", "struct CUx 4, CUy cuOne, CUy *cuOther"},
		{"function type", "typedef int CUfn(int x); int cuTake(CUfn *fn);", "int cuTake(CUfn *fn)"},
		{"alignment to the most", "typedef struct CUx { char a; struct { char b __attribute__((aligned)); } c; } __attribute__((aligned)) CUx;", "struct CUx 32, struct CUx_c 16"},
		{"nothing by name", "typedef void CUx; int cuTake(CUx *x);", "int cuTake(CUx *x)"},
		{"packed enums", "typedef enum { A = -1, B = 127 } __attribute__((packed)) CUa; typedef enum { C = -1, D = 128 } __attribute__((packed)) CUb; enum __attribute__((__packed__)) CUc { E = 255 }; enum CUd { F = 0xffffffff } __attribute__((packed)); typedef enum __attribute__((packed)) { G = 0x100000000 } CUe;", "enum CUa 1 int8, enum CUb 2 int16, enum enum CUc 1 uint8, enum enum CUd 4 uint32, enum CUe 8 uint64"},
		{"attributes that pack no enum", "__attribute__((packed)) enum CUa { A }; typedef __attribute__((packed)) enum { B } CUb; __attribute__((packed)) typedef enum { C } CUc; typedef enum { D } CUd __attribute__((packed));", "enum enum CUa 4 uint32, enum CUb 4 uint32, enum CUc 4 uint32, enum CUd 4 uint32"},
		{"packed enums in a record", "struct CUx { enum { A } __attribute__((packed)) a; char b; enum { B } c __attribute__((packed)); __attribute__((packed)) enum { C } d; enum __attribute__((packed)) CUe { D } e; };", "struct struct CUx 11, enum enum CUe 1 uint8"},
		{"packed enum that is used later", "enum CUx { A } __attribute__((packed)); typedef enum CUx CUy; struct CUz { enum CUx a[2]; CUy b; }; enum CUx cuTake(CUy x);", "enum enum CUx 1 uint8, struct struct CUz 3, enum CUx cuTake(CUy x)"},
		{"attributes of enums", "typedef enum __attribute__((deprecated, aligned(4))) { CU_A } CUx;\nenum [[deprecated]] CUy { CU_B }; struct CUz { enum CUy e __attribute__((packed)); };", "enum CUx 4 uint32, enum enum CUy 4 uint32, struct struct CUz 4"},
		{"attributes", "__attribute__((visibility(\"default\"), nonnull, warn_unused_result)) int cuTake(int *restrict x) __attribute__((format_arg(1)));", "int cuTake(int *x)"},
		{"data", "extern const int cuCount; extern struct CUx { int a; } cuOne; extern const char *const cuNames[4];", "struct struct CUx 4, int cuCount, struct CUx cuOne, const char *const cuNames[4]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := parsed(t, tt.declarations)
			var got []string
			for _, d := range a.Decls {
				text := d.Kind.String() + " " + d.C
				if d.Size > 0 && d.Kind != model.Second {
					text += fmt.Sprint(" ", d.Size)
				}
				if d.Underlying != nil && d.Kind != model.Second {
					text += " " + d.Underlying.Go
				}
				got = append(got, text)
			}
			for _, f := range a.Funcs {
				got = append(got, f.Prototype())
			}
			for _, v := range a.Vars {
				got = append(got, v.Type.CDecl(v.C))
			}
			assert.Equal(t, tt.want, strings.Join(got, ", "))
		})
	}
}

// TestConstantVariables: variables whose value the header tells are constants.
func TestConstantVariables(t *testing.T) {
	a := parsed(t, `
typedef unsigned long CUsize;
typedef struct { int a; } CUx;
static const int CU_MINUS = -1;
static const CUsize CU_ALL = (CUsize)-1;
static const unsigned short CU_SHORT = (unsigned short)-2;
static const double CU_HALF = 0.5;
static const double CU_TWO = 2;
static const _Bool CU_YES = 1;
static const unsigned char CU_BYTE = 300;
static const signed char CU_SIGNED = 200;
static const int CU_CUT = 2.5;
constexpr unsigned CU_FIVE = 5;
static const CUx CU_RECORD = {1};
extern const char cuText[];`)
	got := map[string]string{}
	for _, c := range a.Consts {
		got[c.C] = c.Value
	}
	assert.Equal(t, map[string]string{"CUDA_VERSION": "13050", "CU_MINUS": "-1", "CU_ALL": "18446744073709551615", "CU_SHORT": "65534", "CU_HALF": "0.5", "CU_TWO": "2", "CU_BYTE": "44", "CU_SIGNED": "-56", "CU_YES": "true", "CU_FIVE": "5"}, got)
	assert.Equal(t, []string{"CU_CUT, CU_RECORD: a variable that the header defines", "cuText: it is an array without a length"}, a.Reasons())
}

// TestDeprecatedByC23: an attribute of C23 says so, too.
func TestDeprecatedByC23(t *testing.T) {
	a := parsed(t, "[[deprecated(\"old\")]] int cuOld(void);\n[[nodiscard]] int cuNew(void);")
	assert.Equal(t, []bool{true, false}, []bool{a.Funcs[0].Deprecated, a.Funcs[1].Deprecated})
}

// TestDeclaredByMacros: a macro that declares functions is no other name of theirs, whether it
// lasts or not.
func TestDeclaredByMacros(t *testing.T) {
	a := parsed(t, "#define CU_DECLARE(name) int name(int x);\nCU_DECLARE(cuTake)\nCU_DECLARE(cuGive)\n#undef CU_DECLARE\n#define CU_EXPORT(type, name, args) extern type name args\nCU_EXPORT(int, cuHold, (int x));")
	assert.Len(t, a.Funcs, 3)
	assert.Empty(t, a.Aliases)
}
