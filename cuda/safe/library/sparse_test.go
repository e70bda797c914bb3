//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package library_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cudabind/cudabind/headers"
	"github.com/stretchr/testify/require"
)

var sparse = flag.String("sparse", "", "keep the test of the binding of cuSPARSE in this `file`, for a machine with a GPU")

// TestSparse builds the binding of cuSPARSE that docs/mixing.md shows, in a module of its own with a package that
// the generator writes, as a user does. Its test needs a GPU.
func TestSparse(t *testing.T) {
	if testing.Short() && *sparse == "" {
		t.Skip("it generates a package")
	}
	repository, err := filepath.Abs("../../..")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(repository, "go.mod")); err != nil {
		t.Skip("it needs the sources, which are not here")
	}
	releases, err := headers.RequestedReleases()
	require.NoError(t, err)
	newest := releases[len(releases)-1]
	if _, err := newest.Find(); err != nil {
		require.Empty(t, *sparse, "no test to keep: %v", err)
		t.Skip("it needs headers that make on-request fetches: ", err)
	}
	module := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(module, name), []byte(text), 0o666))
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = module, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	const path = "github.com/cudabind/cudabind"
	write("go.mod", fmt.Sprintf("module example.com/user/sparse\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", path, path, repository))
	write("go.sum", read(filepath.Join(repository, "go.sum")))
	write("sparse.go", read("testdata/sparse/sparse.go"))
	write("sparse_test.go", read("testdata/sparse/sparse_test.go"))
	run("run", path+"/gen", "-api", "cusparse", "-cuda", newest.Version, "-out", "cusparse", "-package", "cusparse")
	run("vet", ".")
	kept := *sparse
	if kept == "" {
		kept = os.DevNull
	}
	run("test", "-c", "-o", kept, ".")
}
