package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/internal/command"
)

// smallRow is a row for a library of one header, small.h.
const smallRow = `{"api": "small", "headers": ["small.h"], "prefix": "small", "library": {"names": ["libsmall.so.1"]}}`

// TestHardHeaders: what once became code that does not compile. The package builds with and
// without cgo, and the C side with all warnings.
func TestHardHeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	for _, tt := range []struct{ name, header, want, notice string }{
		{"no status, and a struct without a tag", "typedef struct { int n; } smallThing;\nint smallTake(smallThing *t);", "func SmallTake(", ""},
		{"_Bool bit field", "struct smallFlags { _Bool on : 1; _Bool off : 1; };\nint smallTake(struct smallFlags f);", "func (u *SmallFlags) SetOn(v bool)", ""},
		{"alignment above a word by value", "typedef struct __attribute__((aligned(128))) { int n; } smallWide;\nint smallTake(smallWide w);\nint smallPoint(smallWide *w);", "func SmallPoint(",
			"gen: left out: smallTake: it passes smallWide by value: it is aligned to 128 bytes, and arguments to 8\n"},
		{"packed by value", "typedef struct { char c; int n; } __attribute__((packed)) smallTight;\nsmallTight smallTake(void);\nint smallPoint(smallTight *w);", "func (u *SmallTight) SetN(v int32)",
			"gen: left out: smallTake: it passes smallTight by value: it is packed, or its members are aligned\n"},
		{"two layouts", "struct smallBits { char c; int n : 3; };\nint smallTake(struct smallBits *b);", "func (u *SmallBits) SetN(v int32)", ""},
		{"long", "#include <stdint.h>\n#include <stddef.h>\ntypedef unsigned long smallLong;\nstruct smallRow { char c; smallLong at[2]; };\nstruct smallTable { struct smallRow rows[2]; };\nstruct smallPlain { struct smallRow *row; long long n; };\nint smallTake(long *n);\nsmallLong smallGive(void);\nint smallText(const wchar_t *text);\ntypedef size_t smallSize;\nsmallSize smallFixed(uint64_t n, smallSize s);\nint smallPoint(struct smallRow *r);", "func SmallGive(",
			"gen: otherwise in C on Windows, where long has 32 bits and wchar_t 16: smallGive, smallTake, smallText, struct smallRow, struct smallTable\n"},
		{"nothing but macros", "#define SMALL_A 5", "SMALL_A = 5", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headers := folder(t, map[string]string{"small.h": tt.header, "small.json": smallRow})
			module := folder(t, map[string]string{"go.mod": "module example.com/user\n\ngo 1.24\n"})
			out := filepath.Join(module, "small")
			var notice bytes.Buffer
			require.NoError(t, run([]string{"-row", filepath.Join(headers, "small.json"), "-headers", headers, "-out", out, "-package", "small"}, &notice))
			assert.Contains(t, notice.String(), tt.notice)
			all := ""
			for _, text := range contents(t, out) {
				all += string(text)
			}
			assert.Contains(t, all, tt.want)
			for _, env := range [][]string{{"GOARCH=amd64"}, {"GOARCH=arm64"}, {"GOOS=windows", "GOARCH=amd64"}} {
				goTool(t, module, append(env, "CGO_ENABLED=0"), "vet", "./...")
			}
			if _, err := os.Stat(filepath.Join(out, "zcall.c")); err != nil {
				return
			}
			cc := command.CC("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "zcall.c")
			if cc.Err != nil {
				t.Skip("no C compiler: ", cc.Err)
			}
			cc.Dir = out
			text, err := cc.CombinedOutput()
			assert.NoError(t, err, string(text))
		})
	}
}

// TestConstantOfAnotherPackage: a macro that names one has its value, and the type of that package.
func TestConstantOfAnotherPackage(t *testing.T) {
	headers := folder(t, map[string]string{
		"cuda.h":          "#define CUDA_VERSION 13050\n",
		"library_types.h": "typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_C_16F = 6 } cudaDataType;\n",
		"small.h":         "#include \"library_types.h\"\n#define SMALL_C_16F CUDA_C_16F\nint smallTake(cudaDataType t);\n",
		"small.json":      `{"api": "small", "headers": ["small.h"], "prefix": "small", "uses": ["library_types"], "library": {"names": ["libsmall.so.1"]}}`,
	})
	out := filepath.Join(headers, "out")
	require.NoError(t, run([]string{"-row", filepath.Join(headers, "small.json"), "-headers", headers, "-out", out, "-package", "small", "-import", "example.com/small"}, io.Discard))
	assert.Contains(t, string(contents(t, out)["zconsts.go"]), "SMALL_C_16F librarytypes.CudaDataType = 6")
}

// TestCheck: code that does not compile is an error that names the declaration.
func TestCheck(t *testing.T) {
	a := &model.API{
		Header: "small.h", Funcs: []*model.Func{{Symbol: "smallTake", Go: "SmallTake"}},
		Decls:  []*model.Decl{{C: "struct small_st", Go: "Small_st"}},
		Consts: []*model.Const{{C: "smallC", Go: "SmallC"}},
	}
	used := folder(t, map[string]string{"go.mod": "module example.com/used\n\ngo 1.24\n", "used.go": "package used\n\ntype There int32\n"})
	for _, tt := range []struct{ name, file, code, want string }{
		{"function", "zthing.go", "func SmallTake() int { return missing }", "small.h: the code for smallTake would not compile: undefined: missing"},
		{"type", "zstructs.go", "type Small_st struct { X Missing }", "small.h: the code for struct small_st would not compile: undefined: Missing"},
		{"method", "zstatus.go", "type Small_st struct { N int }\nfunc (v Small_st) Error() string { return v.N.String() }", "the code for struct small_st would not compile: v.N.String undefined"},
		{"constant", "zconsts.go", "const (\n\tA = 1\n\tSmallC uint8 = 256\n)", "the code for smallC would not compile: "},
		{"two of a name", "zconsts.go", "const SmallC = 1\nconst SmallC = 2", "the code for smallC would not compile: SmallC redeclared"},
		{"a name of the loader", "zload.go", "var SmallC, SmallC int", "the code for smallC would not compile: SmallC redeclared"},
		{"on Windows alone", "zstructs_windows.go", "type Small_st struct { X Missing }", "the code for struct small_st would not compile"},
		{"type of another package", "zconsts.go", "import \"example.com/used\"\nconst SmallC used.Here = 1", "the code for smallC would not compile: undefined: used.Here"},
		{"no Go", "zthing.go", "func {", "the code for zthing.go would not compile: "},
		{"good", "zconsts.go", "import \"example.com/used\"\nconst SmallC used.There = 1", ""},
		{"packages on trust", "zconsts.go", "import (\n\"strconv\"\n\"example.com/nowhere\"\n)\nvar _ = strconv.Itoa(5)\nconst SmallC nowhere.There = 1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := check(a, used, map[string][]byte{tt.file: []byte("package small\n\n" + tt.code + "\n"), "zcall.c": []byte("int x;")})
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// TestCheckWritesNothing: a header whose package would not compile leaves the old one as it is.
func TestCheckWritesNothing(t *testing.T) {
	headers := folder(t, map[string]string{
		"small.h":    "typedef struct small_st { double n; } smallStatus;\nsmallStatus smallTake(void);",
		"small.json": `{"api": "small", "headers": ["small.h"], "prefix": "small", "status": "smallStatus", "library": {"names": ["libsmall.so.1"]}}`,
	})
	out := folder(t, map[string]string{"za.go": marked})
	err := run([]string{"-row", filepath.Join(headers, "small.json"), "-headers", headers, "-out", out, "-package", "small", "-import", "example.com/small"}, io.Discard)
	assert.ErrorContains(t, err, "small.h: the code for smallStatus would not compile: v.N.String undefined")
	assert.Equal(t, map[string]string{"za.go": marked}, listing(t, out))
}
