package parse

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// withOpenGL is an include folder with a header for OpenGL. The functions' chapters begin on
// the same line of both headers.
func withOpenGL() fstest.MapFS {
	headers := include("/** \\defgroup CUDA_DEVICE Devices @{ */\ntypedef struct res_st *CUres;\nint cuDevice(void);")
	headers["cudaGL.h"] = &fstest.MapFile{Data: []byte(`#include <cuda.h>
/** \defgroup CUDA_GL OpenGL @{ */
#include <GL/gl.h>
int cuGraphicsGL(CUres *resource, GLuint buffer);
int cuGraphicsTag(struct res_st **resource);
/** @} */
`)}
	headers["cudaEGL.h"] = &fstest.MapFile{Data: []byte("#include <cuda.h>\n#include <EGL/eglext.h>\n/** \\defgroup CUDA_EGL EGL @{ */\nint cuEGL(const EGLImageKHR image);\n")}
	headers["cudaVDPAU.h"] = &fstest.MapFile{Data: []byte("/** \\defgroup CUDA_VDPAU VDPAU @{ */\nint cuVDPAU(VdpDevice device, VdpGetProcAddress *get);\n")}
	headers["cudaGLTypedefs.h"] = &fstest.MapFile{Data: []byte("#include <cudaGL.h>\ntypedef int (*PFN_cuGraphicsGL_v3000)(CUres *resource, GLuint buffer);\n")}
	return headers
}

func TestAlso(t *testing.T) {
	a, err := Parse(withOpenGL(), "driver")
	require.NoError(t, err)
	assert.Equal(t, []string{"cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"}, a.HeaderNames())
	got := map[string]string{}
	for _, f := range a.Funcs {
		got[f.Prototype()] = f.Group
	}
	assert.Equal(t, map[string]string{
		"int cuDevice(void)": "CUDA_DEVICE",
		"int cuGraphicsGL(CUres *resource, GLuint buffer)":      "CUDA_GL",
		"int cuGraphicsTag(CUres *resource)":                    "CUDA_GL",
		"int cuEGL(EGLImageKHR image)":                          "CUDA_EGL",
		"int cuVDPAU(VdpDevice device, VdpGetProcAddress *get)": "CUDA_VDPAU",
	}, got)
	require.Len(t, a.PFNs, 1)
	assert.Equal(t, 3000, a.PFNs[0].Version)
}

// Handles of other systems and their functions are no Go pointers.
func TestForeignHandles(t *testing.T) {
	a, err := Parse(withOpenGL(), "driver")
	require.NoError(t, err)
	for symbol, parameter := range map[string]int{"cuEGL": 0, "cuVDPAU": 1} {
		p := find(a.Funcs, symbol).Params[parameter]
		assert.Equal(t, model.Pointer, p.Type.Kind, symbol)
		assert.Equal(t, "uintptr", p.Type.Go, symbol)
	}
}

// An include folder may lack any of the further headers, and also what these need.
func TestAlsoMissing(t *testing.T) {
	for name := range withOpenGL() {
		if name == "cuda.h" || name == "cudaTypedefs.h" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			headers := withOpenGL()
			delete(headers, name)
			a, err := Parse(headers, "driver")
			require.NoError(t, err)
			assert.NotContains(t, a.HeaderNames(), name)
			assert.NotNil(t, find(a.Funcs, "cuDevice"))
		})
	}
}
