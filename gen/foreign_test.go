package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/internal/command"
)

// foreignTypes are the types of other systems that functions of CUDA take, as C knows them.
const foreignTypes = `
#define IS(type, ...) _Static_assert(__builtin_types_compatible_p(type, __VA_ARGS__), #type)
#ifdef OPENGL
#include <GL/gl.h>
IS(GLenum, unsigned int);
IS(GLuint, unsigned int);
#elif defined EGL
#include <EGL/egl.h>
#include <EGL/eglext.h>
IS(EGLint, int);
IS(EGLImageKHR, void *);
IS(EGLStreamKHR, void *);
IS(EGLSyncKHR, void *);
#else
#include <vdpau/vdpau.h>
IS(VdpDevice, unsigned int);
IS(VdpOutputSurface, unsigned int);
IS(VdpVideoSurface, unsigned int);
IS(VdpGetProcAddress, VdpStatus(VdpDevice, unsigned int, void **));
_Static_assert(sizeof(VdpStatus) == sizeof(int), "VdpStatus");
#endif
`

// TestForeignTypes: our stand-ins for the headers of other systems have the types of these
// headers, as far as this machine has them.
func TestForeignTypes(t *testing.T) {
	stubs := t.TempDir()
	require.NoError(t, os.CopyFS(stubs, parse.Stubs()))
	source := filepath.Join(t.TempDir(), "types.c")
	require.NoError(t, os.WriteFile(source, []byte(foreignTypes), 0o666))
	for system, header := range map[string]string{"OPENGL": "GL/gl.h", "EGL": "EGL/eglext.h", "VDPAU": "vdpau/vdpau.h"} {
		t.Run(system, func(t *testing.T) {
			out, err := command.CC("-fsyntax-only", "-D"+system, "-I"+stubs, source).CombinedOutput()
			assert.NoError(t, err, "%s", out)

			if _, err := os.Stat(filepath.Join("/usr/include", header)); err != nil {
				t.Skip("this machine has only our stand-in")
			}
			out, err = command.CC("-fsyntax-only", "-D"+system, source).CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
}
