//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

package compile

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// usesStandard has something of each header of C that kernels include.
const usesStandard = `#include <cstdint>
#include <cmath>
#include <cstdio>
#include <cassert>
#include <cstddef>
#include <climits>
#include <cfloat>
#include <cstring>
#include <cstdlib>
#include <stdbool.h>
#include "stdint.h"
#include <cudabind/conditions.h>
#include <cuda_runtime.h>
#include "device_launch_parameters.h"
struct S { char c; double d; };
extern "C" __global__ void f(std::uint32_t *a, int64_t n, float x, cudaGraphConditionalHandle h) {
	assert(n > 0);
	void *p = malloc(16);
	memcpy(a, p, 4);
	printf("%d %d\n", INT_MAX, (int)offsetof(S, d));
	*a = std::sqrt(x) + M_PI + FLT_MAX + INFINITY + NAN + (a == NULL) + CHAR_BIT + UINT8_MAX + std::isnan(x);
	std::size_t size = sizeof n;
	cudaGraphSetConditional(h, size);
}`

// TestStandardHeaders includes headers of C, of which NVRTC has no files.
func TestStandardHeaders(t *testing.T) {
	versions(t, func(t *testing.T, _ string) {
		o := own(t)
		_, err := Compile(context.Background(), usesStandard, o)
		assert.NoError(t, err)
	})
}

// TestStandardBesideCUDA includes them beside CUDA's own.
func TestStandardBesideCUDA(t *testing.T) {
	versions(t, func(t *testing.T, version string) {
		if version != "13.5" {
			t.Skip("it has no headers of CUDA in it")
		}
		_, err := Compile(context.Background(), "#include <cuda/std/cstdint>\n#include <cuda/std/cmath>\n#include <cuda_fp16.h>\n#include <cooperative_groups.h>\n"+usesStandard, own(t))
		assert.NoError(t, err)
	})
}

// TestStandardOfTheUser: a header of the user's of the same name is taken.
func TestStandardOfTheUser(t *testing.T) {
	needsNVRTC(t, "")
	const header, source = "#define MINE 1\n", "#include <stdint.h>\n#if !MINE\n#error another\n#endif\n__global__ void f() {}"
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stdint.h"), []byte(header), 0o644))
	o := own(t)
	_, err := Compile(context.Background(), source, o)
	assert.ErrorContains(t, err, "another")
	o.IncludePaths = []string{dir}
	_, err = Compile(context.Background(), source, o)
	assert.NoError(t, err)
	o.IncludePaths, o.Headers = nil, []fs.FS{fstest.MapFS{"stdint.h": {Data: []byte(header)}}}
	_, err = Compile(context.Background(), source, o)
	assert.NoError(t, err)
}
