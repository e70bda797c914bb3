package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/headers"
	"github.com/cudabind/cudabind/internal/command"
)

// folder makes a folder of files, by their slash-separated names.
func folder(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(tb, os.WriteFile(path, []byte(text), 0o666))
	}
	return dir
}

// include makes an include folder of our own: a cuda.h of CUDA 13.5 in which
// declarations stand in a chapter, and other headers as given.
func include(tb testing.TB, declarations string, others map[string]string) string {
	tb.Helper()
	files := map[string]string{
		"cuda.h":         "#define CUDA_VERSION 13050\n/** \\defgroup CUDA_THING Things @{ */\n" + declarations + "\n/** @} */\n",
		"cudaTypedefs.h": "#include \"cuda.h\"\n",
	}
	maps.Copy(files, others)
	return folder(tb, files)
}

// smallConfig generates from an include folder of our own.
func smallConfig(include string) config {
	return config{headers: include, api: "driver", pkg: "small", importPath: "example.com/small", docs: "own", cc: "none", partial: true}
}

// fetched is the folder of a pinned version's headers. It skips the test where
// they are not fetched.
func fetched(tb testing.TB, version string) string {
	tb.Helper()
	dir, err := headers.Find(version)
	if err != nil {
		tb.Skipf("%v (make generate fetches them all)", err)
	}
	return dir
}

// newest is the version that the committed driver package is generated from.
var newest = model.RowOf("driver").Versions[0]

// goTool runs the go command in dir, offline and with env on top of the
// environment. It returns what it prints.
func goTool(tb testing.TB, dir string, env []string, args ...string) string {
	tb.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=-mod=mod"), env...)
	out, err := cmd.CombinedOutput()
	require.NoErrorf(tb, err, "go %s\n%s", strings.Join(args, " "), out)
	return string(out)
}

// cLibrary builds a shared library of a C source of the same name. It skips the test where there is no C compiler.
func cLibrary(t *testing.T, source string) string {
	t.Helper()
	if err := command.CC().Err; err != nil {
		t.Skipf("there is no C compiler: %v", err)
	}
	library := filepath.Join(t.TempDir(), "lib"+strings.TrimSuffix(filepath.Base(source), ".c")+".so.1")
	out, err := command.CC("-shared", "-fPIC", "-o", library, source).CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	return library
}

// runs vets and builds the program of a user's module, and returns what it prints.
func runs(t *testing.T, dir string, args ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	goTool(t, dir, nil, "vet", "./...")
	goTool(t, dir, nil, "build", "-o", program, ".")
	out, err := command.Built(program, args...).CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	return string(out)
}

// words is the text of comments without its line breaks.
func words(code string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(code, "\n//", "\n")), " ")
}
