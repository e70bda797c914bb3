package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/doc"
	"github.com/cudabind/cudabind/gen/emit"
	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
)

// Whatever a header holds, the generator says what it cannot read or prints a
// package that compiles.
func FuzzHeader(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join("testdata", "golden", "*", "cuda.h"))
	require.NoError(f, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(string(text), "")
	}
	for _, text := range []string{
		"int cuTake(int byte, int, char p1);",
		"typedef struct CUx_st CUx; struct CUx_st { CUx *x; union { int A; }; };",
		"enum { CU_A = -1 }; typedef union {} CUx; struct CUy {};",
		"#define CU_A ((CUx)-1)\n#define Open CU_A\ntypedef unsigned char CUx;",
		"struct CUx { int a : 3; char b[]; }; ; int x; int f(...);",
		"typedef struct CUa *CUb; struct CUa { CUb next; long double x; }; struct CUc { struct CUa a; enum { CU_D } d; }; int cuTake(struct CUc c, CUb *b);",
		"enum CUe : short { CU_F = -2 }; int (*cuGet(enum CUe e))(int); typedef _Float16 CUh; CUh cuHalf(const CUh *h); extern struct CUc { CUh h[2]; } cuC;",
	} {
		f.Add(text, "typedef int (*PFN_cuTake_v1)(int);")
	}
	f.Fuzz(func(t *testing.T, declarations, typedefs string) {
		if len(declarations)+len(typedefs) > 4000 {
			t.Skip("too long to be quick")
		}
		const end = "\n\n" // the front end never ends where a backslash joins the last line to nothing
		headers := fstest.MapFS{
			"cuda.h":         {Data: []byte("#define CUDA_VERSION 13050\n/** \\defgroup CUDA_THING @{ */\n" + declarations + end)},
			"cudaTypedefs.h": {Data: []byte("#include \"cuda.h\"\n" + typedefs + end)},
		}
		generates(t, headers, model.RowOf("driver"))
		generates(t, headers, &model.Row{API: "small", Headers: []string{"cuda.h"}, Own: []string{"cuda.h"}, Callback: "any thread", Library: model.Library{Names: []string{"libsmall.so"}}})
	})
}

// generates compiles the package of headers, if there is one.
func generates(t *testing.T, headers fs.FS, row *model.Row) {
	t.Helper()
	api, err := parse.Row(headers, row)
	if err != nil {
		return
	}
	if model.Complete(api, model.Options{Partial: true}) != nil {
		return
	}
	require.NoError(t, doc.Fill(api, nil))
	files, err := emit.Files(api, emit.Package{Name: "small", Import: "example.com/small", Doc: doc.Package(api, "small")})
	if err == nil {
		compiles(t, files)
	}
}

// compiles checks the Go side of a package, as a build without cgo sees it.
func compiles(tb testing.TB, files map[string][]byte) {
	tb.Helper()
	fset := token.NewFileSet()
	var parsed []*ast.File
	for name, text := range files {
		if !strings.HasSuffix(name, ".go") || !builtWithoutCgo(tb, name, text) {
			continue
		}
		file, err := parser.ParseFile(fset, name, text, 0)
		require.NoError(tb, err)
		parsed = append(parsed, file)
	}
	_, err := (&types.Config{Importer: &std, Sizes: goSizes}).Check("small", fset, parsed, nil)
	require.NoError(tb, err)
}
