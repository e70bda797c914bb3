package main

import (
	"bytes"
	"os"
	"path/filepath"
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
		assert.Contains(t, text, want)
	}
}
