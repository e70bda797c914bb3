package parse

import (
	"fmt"
	"math"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLimits: constants that a header makes of C's limits have their values under LP64.
func TestLimits(t *testing.T) {
	for macro, want := range map[string]any{
		"CHAR_BIT": 8, "SCHAR_MIN": math.MinInt8, "SCHAR_MAX": math.MaxInt8, "UCHAR_MAX": math.MaxUint8,
		"SHRT_MIN": math.MinInt16, "SHRT_MAX": math.MaxInt16, "USHRT_MAX": math.MaxUint16,
		"INT_MIN": math.MinInt32, "INT_MAX": math.MaxInt32, "UINT_MAX": math.MaxUint32,
		"LONG_MIN": math.MinInt64, "LONG_MAX": math.MaxInt64, "ULONG_MAX": uint64(math.MaxUint64),
		"LLONG_MIN": math.MinInt64, "LLONG_MAX": math.MaxInt64, "ULLONG_MAX": uint64(math.MaxUint64),
		"INT8_MIN": math.MinInt8, "INT8_MAX": math.MaxInt8, "UINT8_MAX": math.MaxUint8,
		"INT16_MIN": math.MinInt16, "INT16_MAX": math.MaxInt16, "UINT16_MAX": math.MaxUint16,
		"INT32_MIN": math.MinInt32, "INT32_MAX": math.MaxInt32, "UINT32_MAX": math.MaxUint32,
		"INT64_MIN": math.MinInt64, "INT64_MAX": math.MaxInt64, "UINT64_MAX": uint64(math.MaxUint64),
		"SIZE_MAX": uint64(math.MaxUint64), "PTRDIFF_MIN": math.MinInt64, "INTPTR_MAX": math.MaxInt64,
		"UINTPTR_MAX": uint64(math.MaxUint64), "INTMAX_MIN": math.MinInt64, "UINTMAX_MAX": uint64(math.MaxUint64),
		"UINT32_C(7)": 7, "INT64_C(-7)": -7, "UINT64_C(0xffffffffffffffff)": uint64(math.MaxUint64),
	} {
		t.Run(macro, func(t *testing.T) {
			a := parsed(t, "#include <limits.h>\n#include <stdint.h>\n#define CU_LIMIT "+macro)
			assert.Equal(t, fmt.Sprint(want), value(t, a, "CU_LIMIT"))
		})
	}
}

// TestCompilerMacros: headers ask the compiler for the system that they are compiled for.
func TestCompilerMacros(t *testing.T) {
	for expression, want := range map[string]any{
		"__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__": 1, "__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__": 0,
		"__SIZEOF_POINTER__": 8, "__SIZEOF_LONG__": 8, "__SIZEOF_INT__": 4, "__SIZEOF_WCHAR_T__": 4, "__SIZEOF_INT128__": 16,
		"__INT_MAX__": math.MaxInt32, "__LONG_MAX__": math.MaxInt64, "__UINT64_MAX__": uint64(math.MaxUint64),
		"10000 * __GNUC__ + 100 * __GNUC_MINOR__ + __GNUC_PATCHLEVEL__": 120200,
		"__unix__ + __gnu_linux__ + __amd64__ + __ELF__":                4,
		"sizeof(__INT64_TYPE__) + sizeof(__UINT16_TYPE__)":              10,
		"__builtin_offsetof(struct CUx, b)":                             8,
		"__builtin_types_compatible_p(int, struct CUx)":                 0,
	} {
		t.Run(expression, func(t *testing.T) {
			a := parsed(t, "struct CUx { int a; long b; };\n#define CU_ANSWER ("+expression+")")
			assert.Equal(t, fmt.Sprint(want), value(t, a, "CU_ANSWER"))
		})
	}
	t.Run("#if", func(t *testing.T) {
		a := parsed(t, "#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__\n#define CU_ANSWER 1\n#else\n#define CU_ANSWER 2\n#endif")
		assert.Equal(t, "2", value(t, a, "CU_ANSWER"))
	})
}

// TestErrorNumbers: those that a library lends C where the system lacks them are the system's.
func TestErrorNumbers(t *testing.T) {
	a := parsed(t, "#include <errno.h>\n#ifndef ENOTSUP\n#define ENOTSUP 156384713\n#endif\n#define CU_FAILED (-ENOTSUP)\n#define CU_AGAIN EWOULDBLOCK")
	assert.Equal(t, []string{"-95", "11"}, []string{value(t, a, "CU_FAILED"), value(t, a, "CU_AGAIN")})
	assert.Len(t, a.Consts, 3)
}

// TestStandardHeaders: a header may include C's own and POSIX's.
func TestStandardHeaders(t *testing.T) {
	for header, declaration := range map[string]string{
		"stdarg.h":    "typedef struct CUx_st { int a; } CUx; static inline void none(int n, ...) { va_list list, copy; va_start(list, n); va_copy(copy, list); CUx x = va_arg(copy, CUx); (void)x; va_end(list); }",
		"stdio.h":     "typedef struct CUx_st { FILE *a; size_t b; off_t c; } CUx; enum { CU_BEGIN = SEEK_SET, CU_END = SEEK_END }; static int (*done)(FILE *) = fclose; static inline void none(va_list list) { fprintf(stderr, \"%d\", BUFSIZ); (void)list; }",
		"sys/types.h": "typedef struct CUx_st { pid_t a; uid_t b; gid_t c; mode_t d; time_t e; size_t f; } CUx;",
		"stddef.h":    "typedef struct CUx_st { int a; char b[offsetof(struct { int a; long b; }, b)]; max_align_t *c; } CUx;",
		"stdlib.h":    "typedef struct CUx_st { void *(*a)(size_t); } CUx; static CUx none = { malloc }; static inline void stop(void) { exit(EXIT_FAILURE); }",
		"string.h":    "typedef struct CUx_st { int a; } CUx; static inline int none(CUx *a, CUx *b) { int (*same)(const void *, const void *, size_t) = memcmp; return same(a, b, sizeof(CUx)); }",
		"stdatomic.h": "typedef struct CUx_st { atomic_int a; _Atomic(long) *b; } CUx; static inline int none(CUx *x) { return atomic_load_explicit(&x->a, memory_order_acquire); }",
		"float.h":     "typedef struct CUx_st { char a[FLT_DIG]; } CUx;",
		"errno.h":     "typedef struct CUx_st { int a; } CUx;",
		"wchar.h":     "typedef struct CUx_st { wchar_t a; wint_t b; } CUx;",
		"unistd.h":    "typedef struct CUx_st { ssize_t a; off_t b; } CUx;",
		"assert.h":    "typedef struct CUx_st { int a; } CUx; static_assert(sizeof(CUx) == 4, \"CUx\");",
		"time.h":      "typedef struct CUx_st { time_t a; clock_t b; } CUx; static inline void none(struct timespec *t, struct tm *u) { (void)t; (void)u; }",
	} {
		t.Run(header, func(t *testing.T) {
			decl(t, parsed(t, "#include <"+header+">\n"+declaration), "CUx")
		})
	}
}

// TestHeadersOfASystem: where the include folder has the headers of a system, those of sys are
// its own, which fit the others there.
func TestHeadersOfASystem(t *testing.T) {
	headers := include("#include <sys/types.h>\ntypedef struct CUx_st { off_t a; } CUx;")
	headers["sys/types.h"] = &fstest.MapFile{Data: []byte("typedef short off_t;\n")}
	a, err := Parse(headers, "driver")
	require.NoError(t, err)
	assert.EqualValues(t, 2, decl(t, a, "CUx").Size)
}
