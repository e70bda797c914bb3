//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Package safe makes no call only to see it fail: debuggers and sanitizers show each call of
// CUDA that fails as an error of the program. tools/gpu runs programs under them.

package safe_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSimKernelAsksForItsParameters(t *testing.T) {
	needsSimulated(t)
	needs(t, "cuFuncGetParamInfo")
	x := open(t, 0)
	before := simulated.Calls("cuFuncGetParamInfo")
	k := kernel(t, x, "many")
	sizes, err := k.Parameters()
	require.NoError(t, err)
	assert.Equal(t, []int{1, 2, 4, 8, 4, 8, 8}, sizes)
	assert.EqualValues(t, before+len(sizes), simulated.Calls("cuFuncGetParamInfo"), "it asks for a parameter that is not there")
}

func TestSimExportPointerOnce(t *testing.T) {
	needsSimulated(t)
	if runtime.GOOS == "windows" {
		t.Skip("pools are shared by file descriptors")
	}
	x := open(t, 0)
	s := stream(t, x)
	b := bufferFrom[int32](t, pool(t, x, shared), s, 1)
	before := simulated.Calls("cuMemPoolExportPointer")
	for range 2 {
		_, err := b.ExportPointer()
		require.NoError(t, err)
	}
	assert.EqualValues(t, before+2, simulated.Calls("cuMemPoolExportPointer"), "CUDA refuses the pointer of a pool that was not exported")
}
