package main

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// usesFiles are a library that takes a handle and a status from cuSPARSE's header.
var usesFiles = map[string]string{
	"cuda.h":          "#define CUDA_VERSION 13050\n",
	"library_types.h": "typedef enum libraryPropertyType_t { MAJOR_VERSION } libraryPropertyType;\n",
	"cusparse.h": `typedef struct cusparseMatDescr *cusparseMatDescr_t;
typedef enum { CUSPARSE_STATUS_SUCCESS, CUSPARSE_STATUS_NOT_SUPPORTED = 10 } cusparseStatus_t;
typedef struct cusparsePart { int kind; union { int i; float f; } value; } cusparsePart_t;
cusparseStatus_t cusparseCreateMatDescr(cusparseMatDescr_t *descr);
cusparseStatus_t cusparseTake(const cusparsePart_t *part);
`,
	"mylib.h": `#include "cuda.h"
#include "cusparse.h"
typedef struct mylibHandle *mylibHandle_t;
cusparseStatus_t mylibSolve(mylibHandle_t handle, const cusparseMatDescr_t descr);
cusparseStatus_t mylibTake(const cusparsePart_t *part);
`,
	"row.json": `{"api": "mylib", "headers": ["mylib.h"], "uses": ["cusparse"], "prefix": "mylib", "status": "cusparseStatus_t",
	"example": "CUSPARSE_STATUS_NOT_SUPPORTED", "library": {"names": ["libmylib.so.1"]}}`,
	"cusparse.json": `{"api": "sparse", "headers": ["cusparse.h"], "prefix": "cusparse", "status": "cusparseStatus_t",
	"library": {"names": ["libcusparse.so.12"]}}`,
}

// TestUses: the types of a library on request come from the package that -uses names, and
// without it the package has them itself.
func TestUses(t *testing.T) {
	const program = `package main

import (
	"fmt"

	"example.com/user/mylib"
	"example.com/user/my_sparse"
)

func main() {
	var d sparse.CusparseMatDescr_t
	fmt.Println(mylib.MylibTake(&sparse.CusparsePart_t{Kind: 1}))
	fmt.Println(mylib.MylibSolve(0, d) == sparse.CUSPARSE_STATUS_NOT_SUPPORTED)
}
`
	in := folder(t, usesFiles)
	dir := userModule(t, map[string]string{"main.go": program})
	gen := func(out, pkg string, more ...string) map[string][]byte {
		args := append(more, "-headers", in, "-out", filepath.Join(dir, out), "-package", pkg)
		require.NoError(t, run(args, io.Discard))
		return contents(t, filepath.Join(dir, out))
	}
	row := filepath.Join(in, "row.json")
	own := gen("own", "own", "-row", row)
	assert.Contains(t, string(own["ztypes.go"]), "type CusparseMatDescr_t uintptr")
	assert.Contains(t, string(own["zdoc.go"]), "errors.Is(err, CUSPARSE_STATUS_NOT_SUPPORTED)")

	gen("my_sparse", "sparse", "-row", filepath.Join(in, "cusparse.json"))
	shared := gen("mylib", "mylib", "-row", row, "-uses", "cusparse=example.com/user/my_sparse")
	assert.NotContains(t, string(shared["ztypes.go"]), "CusparseMatDescr_t")
	assert.NotContains(t, string(shared["zstructs.go"]), "CusparsePart", "nor its members")
	assert.Contains(t, string(shared["zdoc.go"]), "errors.Is(err, my_sparse.CUSPARSE_STATUS_NOT_SUPPORTED)")
	goTool(t, dir, []string{"CGO_ENABLED=0"}, "vet", "./...")
}

func TestUsesErrors(t *testing.T) {
	in := folder(t, usesFiles)
	for _, tt := range []struct{ uses, want string }{
		{"cusparse", "give the import path of the package with the types, as API=PATH"},
		{"cusparse=", "give the import path of the package with the types, as API=PATH"},
		{"cudnn=example.com/user/cudnn", "-uses cudnn: mylib takes types from cusparse alone"},
	} {
		t.Run(tt.uses, func(t *testing.T) {
			err := run([]string{"-row", filepath.Join(in, "row.json"), "-headers", in, "-out", userModule(t, nil), "-package", "x", "-uses", tt.uses}, io.Discard)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// TestRequestedUses: the rows on request name libraries that there are.
func TestRequestedUses(t *testing.T) {
	for _, row := range model.Requested() {
		for _, api := range row.Uses {
			assert.NotNil(t, model.RowOf(api), "%s uses %s", row.API, api)
		}
	}
}
