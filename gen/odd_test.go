package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// oddRow is a row for a library of one header, odd.h.
const oddRow = `{"api": "odd", "headers": ["odd.h"], "prefix": "odd", "status": "oddStatus", "uses": ["driver"], "callback": "a thread of its own",
	"library": {"names": ["libodd.so.1"], "form": "none"}}`

// generateOdd generates a package from odd.h. It returns all of its text, and what gen says.
func generateOdd(t *testing.T, header string, args ...string) (text, notice string, err error) {
	t.Helper()
	headers := folder(t, map[string]string{
		"odd.h": header, "odd.json": oddRow,
		"cuda.h": "#define CUDA_VERSION 13050\ntypedef struct CUstream_st *CUstream;\n",
	})
	out := filepath.Join(t.TempDir(), "odd")
	var said bytes.Buffer
	err = run(append([]string{"-row", filepath.Join(headers, "odd.json"), "-headers", headers, "-out", out, "-package", "odd", "-import", "example.com/odd", "-cc", "none"}, args...), &said)
	if _, missing := os.Stat(out); missing != nil {
		return "", said.String(), err
	}
	for _, part := range contents(t, out) {
		text += string(part) + "\n"
	}
	return text, said.String(), err
}

// TestOddParameters: a parameter may be called like whatever the function's body names.
func TestOddParameters(t *testing.T) {
	for header, want := range map[string]string{
		"oddStatus oddTake(int callStatus);":                               "func OddTake(callStatus_ int32) error",
		"typedef enum { ODD_A } oddKind;\noddKind oddGive(int OddKind);":   "func OddGive(OddKind_ int32) (OddKind, error)",
		"int oddPad(int _0, short _1);":                                    "func OddPad(_0_ int32, _1_ int16) (int32, error)",
		"int oddNumber(int symOddNumber);":                                 "func OddNumber(symOddNumber_ int32) (int32, error)",
		"#include <cuda.h>\nint oddEnqueue(CUstream driver, int driver_);": "func OddEnqueue(driver_ driver.CUstream, driver__ int32) (int32, error)",
	} {
		text, _, err := generateOdd(t, "typedef enum { ODD_OK } oddStatus;\n"+header)
		require.NoError(t, err)
		assert.True(t, strings.Contains(text, want), want)
	}
}

// TestOddHeaders: what C takes and few headers have.
func TestOddHeaders(t *testing.T) {
	for _, tt := range []struct {
		name, header string
		want         []string
	}{
		{"enum of 64 bits without a sign", "enum oddWide { ODD_ALL = 0xffffffffffffffff };\nint oddTake(enum oddWide w);",
			[]string{`return "OddWide(" + strconv.FormatUint(uint64(v), 10) + ")"`}},
		{"char with a sign", "static const char oddEnd = -1;\ntypedef char oddChar;\n#define ODD_MARK ((oddChar)-2)\nint oddTake(oddChar c);",
			[]string{"const OddEnd byte = 255", "const ODD_MARK OddChar = 254"}},
		{"dollars", "struct odd$Box { int $n; struct { int m; } in$; };\nint odd$Take(struct odd$Box *b$, int $2);\n#define ODD_$ 5",
			[]string{"type Odd_Box struct", "X_n ", "type Odd_Box_in_ struct", "func Odd_Take(b_ *Odd_Box, _2_ int32) (int32, error)", `"odd$Take"`, "ODD__ = 5"}},
		{"a name of void", "typedef void oddVoid;\noddVoid oddTake(oddVoid);\noddVoid *oddGive(void);",
			[]string{"func OddTake() error", "func OddGive() (unsafe.Pointer, error)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, notice, err := generateOdd(t, tt.header)
			require.NoError(t, err)
			assert.NotContains(t, notice, "left out")
			for _, want := range tt.want {
				assert.True(t, strings.Contains(text, want), want)
			}
		})
	}
}

// TestOddEncoding: comments of a header may be in any encoding.
func TestOddEncoding(t *testing.T) {
	text, _, err := generateOdd(t, "/* \xa9 1999 \x00 */\n/** Takes caf\xe9. \xef\xbb\xbf */\nint oddTake(int n);\n", "-docs", "header")
	require.NoError(t, err)
	assert.True(t, strings.Contains(text, "/* \ufffd 1999  */\n"))
	assert.True(t, strings.Contains(text, "// OddTake: takes caf\ufffd."))
}

// TestOddSizes: what a call cannot pass is left out.
func TestOddSizes(t *testing.T) {
	text, notice, err := generateOdd(t, "typedef struct { char name[256]; } oddBig;\ntypedef struct { oddBig all[8]; } oddBigger;\noddBig oddGive(void);\nint oddTake(oddBigger b);\nint oddPass(oddBig b);\n")
	require.NoError(t, err)
	assert.Contains(t, notice, "gen: left out: oddGive, oddTake: its arguments, or its result, take more bytes than a call without cgo can have\n")
	assert.True(t, strings.Contains(text, "func OddPass(b OddBig) (int32, error)"))
}

// TestOddMethods: names of generated methods and functions clash with those of C, too, and a quirk is the way out.
func TestOddMethods(t *testing.T) {
	const header = "struct oddBox { int setBits; unsigned bits : 3; };\ntypedef struct { int n; } __attribute__((aligned(64))) Wide;\ntypedef struct { int n; } NewWide;\nenum { A, B, C };\nint oddTake(struct oddBox *b, Wide *w, NewWide *n);\n"
	_, _, err := generateOdd(t, header)
	require.ErrorContains(t, err, "oddBox.setBits and what sets oddBox.bits both become SetBits in Go: add a rename quirk for one of them")
	require.ErrorContains(t, err, `{"api":"odd","quirk":"rename","name":"oddBox.bits","as":"Bits_"`)
	require.ErrorContains(t, err, "NewWide and what makes a Wide both become NewWide in Go")
	require.ErrorContains(t, err, "the package's own C and C both become C in Go")
	_, rows, _ := strings.Cut(err.Error(), "-quirks:\n")
	text, _, err := generateOdd(t, header, "-quirks", filepath.Join(folder(t, map[string]string{"q.json": rows}), "q.json"))
	require.NoError(t, err)
	assert.True(t, strings.Contains(text, "func (u *OddBox) SetBits_(v uint32)"))
}

// TestOddNames: a header may give something else the name of a number of another library.
func TestOddNames(t *testing.T) {
	text, _, err := generateOdd(t, "typedef unsigned long long GLenum;\ntypedef struct { int q[3]; } GLuint;\ntypedef float EGLint;\nstruct oddBox { int n; GLenum e; };\nint oddTake(struct oddBox b, GLuint u);\nint oddPass(EGLint i);\n")
	require.NoError(t, err)
	for _, want := range []string{"type GLenum uint64", "type GLuint struct", "type EGLint float32", "func OddTake(b OddBox, u GLuint)", "func OddPass(i EGLint)"} {
		assert.True(t, strings.Contains(text, want), want)
	}
}

// TestOddMember: what is a member without a name to some compilers, and none to others, is left out.
func TestOddMember(t *testing.T) {
	_, notice, err := generateOdd(t, "struct oddBox { int a; union oddPart { int h; long long l; }; int b; };\nint oddTake(struct oddBox *b);\n")
	require.NoError(t, err)
	assert.Contains(t, notice, "gen: left out: struct oddBox: it has a member without a name: union oddPart")
}
