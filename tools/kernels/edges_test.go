package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMark: headers of a source that begins with a byte order mark are embedded, too.
func TestMark(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": "\ufeff#include \"x.h\"\n" + add, "x.h": ""})
	out, err := f.run("x.cu")
	require.NoError(t, err, out)
	assert.Contains(t, f.read("x_cu.go"), "//go:embed x.cu x.h\n")
}

// TestNoHeaders: what a source seems to include is read if it is a file, and once, whatever it is called.
func TestNoHeaders(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": "#if 0\n#include \"pipe.h\"\n#include \"all/zero.h\"\n#include \"a/x.cu\"\n#include \"b/x.cu\"\n#endif\n// Doc.\n" + add, "all/x": ""})
	require.NoError(t, exec.Command("mkfifo", filepath.Join(f.dir, "pipe.h")).Run())
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(f.dir, "all", "zero.h")))
	for _, name := range []string{"a", "b"} { // paths as long as there may be links in one
		require.NoError(t, os.Symlink(".", filepath.Join(f.dir, name)))
	}
	out, err := f.run("-image", "sm_90", "x.cu")
	require.NoError(t, err, out)
	assert.Contains(t, f.read("x_cu.go"), "// Doc.\n")
	out, err = f.run("x.cu")
	assert.Error(t, err)
	assert.Contains(t, out, "is a link, which Go cannot embed")
	out, err = f.run("pipe.h")
	assert.Error(t, err)
	assert.Equal(t, "kernels: pipe.h is no file\n", out)
}

// TestNamesOfGo: names need not be ASCII, and what Go does not have as a name is refused.
func TestNamesOfGo(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": "// Do\ufeffc.\n" + add})
	out, err := f.run("-rename", "x.cu=Über", "x.cu")
	require.NoError(t, err, out)
	assert.Contains(t, f.read("x_cu.go"), "var überFiles embed.FS")
	assert.Contains(t, f.read("x_cu.go"), "// Doc.\n")
	out, err = f.run("-package", "_", "x.cu")
	assert.Error(t, err)
	assert.Equal(t, "kernels: -package: \"_\" is no name of a Go package: set it\n", out)
}

// TestFileThatIsNamed: a file that is only mentioned in what the command has written is the user's.
func TestFileThatIsNamed(t *testing.T) {
	f := newFolder(t, map[string]string{"ax.cu": "// like x_sm_90.cubin\n" + add, "x.cu": add})
	out, err := f.run("-image", "sm_90", "ax.cu")
	require.NoError(t, err, out)
	f.write("x_sm_90.cubin", "mine")
	out, err = f.run("-image", "sm_90", "x.cu")
	assert.Error(t, err)
	assert.Contains(t, out, "x_sm_90.cubin exists, and this command has not written it")
	assert.Equal(t, "mine", f.read("x_sm_90.cubin"))
	require.NoError(t, os.Remove(filepath.Join(f.dir, "x_sm_90.cubin")))
	for range 2 { // its own it replaces
		out, err = f.run("-image", "sm_90", "x.cu")
		require.NoError(t, err, out)
		f.write("x.cu", strings.Replace(add, "if (n)", "if (n > 1)", 1))
	}
}

// TestRenamedEnumerator: what the message about two enumerators of one name advises works.
func TestRenamedEnumerator(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": "enum E { x, X };\n__global__ void f(E e) {}"})
	out, err := f.run("x.cu")
	assert.Error(t, err)
	assert.Contains(t, out, "rename it by -rename 'X@1=NAME'")
	out, err = f.run("-rename", "X@1=EOther", "x.cu")
	require.NoError(t, err, out)
	assert.Contains(t, f.read("x_cu.go"), "EOther")
}

// TestThreeVariables: variables whose names are one in Go have three methods.
func TestThreeVariables(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": "__device__ int a_b, aB, AB;\n__global__ void f() { a_b = aB = AB = 1; }"})
	out, err := f.run("x.cu")
	require.NoError(t, err, out)
	for _, name := range []string{"AB()", "ABVariable()", "ABVariableVariable()"} {
		assert.Contains(t, f.read("x_cu.go"), " "+name)
	}
}

// TestOtherNames: a program's own name for a handle or for size_t hides neither.
func TestOtherNames(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": "typedef cudaTextureObject_t Tex; typedef size_t usize;\n__global__ void f(Tex t, usize n) {}"})
	out, err := f.run("x.cu")
	require.NoError(t, err, out)
	text := f.read("x_cu.go")
	assert.Contains(t, text, "t *safe.Texture")
	assert.NotContains(t, text, "go:build")
}

// TestLongBesideOthers: a file that needs what one for Linux alone declares is for Linux alone, too.
func TestLongBesideOthers(t *testing.T) {
	f := newFolder(t, map[string]string{
		"shared.h": "#pragma once\nstruct Pair { int a; float b; };\nstruct Bits { int a : 3; };\n",
		"a.cu":     "#include \"shared.h\"\n__global__ void f(Pair p, Bits b, long n) {}",
		"b.cu":     "#include \"shared.h\"\n__global__ void g(Pair p) {}",
		"c.cu":     "struct More { int c : 5; };\n__global__ void h(More m) {}",
		"d.cu":     "__global__ void i(int n) {}",
	})
	out, err := f.run("a.cu", "b.cu", "c.cu", "d.cu")
	require.NoError(t, err, out)
	for name, linux := range map[string]bool{"a": true, "b": true, "c": true, "d": false} {
		assert.Equal(t, linux, strings.Contains(f.read(name+"_cu.go"), "//go:build !windows"), name)
	}
}

// TestLinkedFolder: Go embeds no file of a folder that is a link, so the command refuses it.
func TestLinkedFolder(t *testing.T) {
	f := newFolder(t, map[string]string{"x.cu": "#include \"sub/in/x.h\"\n" + add, "real/in/x.h": ""})
	require.NoError(t, os.Symlink("real", filepath.Join(f.dir, "sub")))
	out, err := f.run("x.cu")
	assert.Error(t, err)
	assert.Contains(t, out, "sub is a link, which Go cannot embed")
	assert.NoFileExists(t, filepath.Join(f.dir, "x_cu.go"))
	out, err = f.run("-image", "sm_90", "x.cu")
	require.NoError(t, err, out)

	around := newFolder(t, map[string]string{"real/x.cu": add})
	require.NoError(t, os.Symlink("real", filepath.Join(around.dir, "link")))
	out, err = around.run("link/x.cu")
	require.NoError(t, err, out)
	assert.Contains(t, around.read("real/x_cu.go"), "//go:embed x.cu\n", "the folder of the Go file may be a link")
}
