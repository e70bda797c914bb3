package parse

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// include is an include folder of CUDA 13.5 with declarations in its cuda.h,
// on the second line and below.
func include(declarations string) fstest.MapFS {
	return fstest.MapFS{
		"cuda.h":         {Data: []byte("#define CUDA_VERSION 13050\n" + declarations + "\n")},
		"cudaTypedefs.h": {Data: []byte("#include \"cuda.h\"\n")},
	}
}

// parsed is what the parser makes of declarations.
func parsed(tb testing.TB, declarations string) *model.API {
	tb.Helper()
	a, err := Parse(include(declarations), "driver")
	require.NoError(tb, err)
	return a
}

// ofLibrary is what the parser makes of the header of a library that is not CUDA's.
func ofLibrary(tb testing.TB, declarations string) *model.API {
	tb.Helper()
	a, err := Row(fstest.MapFS{"thing.h": {Data: []byte(declarations)}}, &model.Row{API: "thing", Headers: []string{"thing.h"}, Own: []string{"thing.h"}, Prefix: "thing"})
	require.NoError(tb, err)
	return a
}

// decl is the declaration named c.
func decl(tb testing.TB, a *model.API, c string) *model.Decl {
	tb.Helper()
	for _, d := range a.Decls {
		if d.C == c {
			return d
		}
	}
	require.Fail(tb, "nothing declares "+c)
	return nil
}

// value returns what the constant named c is, or "" if a quirk must say why it is left out.
func value(tb testing.TB, a *model.API, c string) string {
	tb.Helper()
	for _, k := range a.Consts {
		if k.C == c {
			return k.Value
		}
	}
	require.Fail(tb, "nothing defines "+c)
	return ""
}
