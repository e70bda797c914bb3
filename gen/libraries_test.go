package main

import (
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/internal/command"
)

// runtimeLibrary is a real library of the CUDA runtime that make libraries got.
func runtimeLibrary(t *testing.T, version string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository(t), ".cache", "libcudart", version, "libcudart.so.*"))
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skipf("no libcudart of CUDA %s: make libraries gets it", version)
	}
	return files[0]
}

// TestLibrariesExport: every function that we read from a header is exported by
// NVIDIA's library of the same version.
func TestLibrariesExport(t *testing.T) {
	for _, version := range []string{"11.8", "12.4", "12.9", "13.0", "13.5"} {
		t.Run(version, func(t *testing.T) {
			file := runtimeLibrary(t, version)
			a, err := parse.Parse(os.DirFS(fetched(t, version)), "runtime")
			require.NoError(t, err)
			lib, err := elf.Open(file)
			require.NoError(t, err)
			defer lib.Close()
			symbols, err := lib.DynamicSymbols()
			require.NoError(t, err)
			exported := map[string]bool{}
			for _, s := range symbols {
				exported[s.Name] = s.Section != elf.SHN_UNDEF
			}
			for _, f := range a.Funcs {
				assert.Truef(t, exported[f.Symbol], "%s does not export %s", filepath.Base(file), f.Symbol)
			}
			t.Logf("%d functions", len(a.Funcs))
		})
	}
}

// TestRuntime118 uses a package of the oldest runtime, which we do not publish,
// with its real library.
func TestRuntime118(t *testing.T) {
	library := runtimeLibrary(t, "11.8")
	fetched(t, "11.8")
	dir := userModule(t, map[string]string{
		"main.go": `package main

import (
	"fmt"
	"os"

	"example.com/user/cudart"
)

func main() {
	if err := cudart.Open(os.Args[1]); err != nil {
		fmt.Println(err)
		return
	}
	missing, err := cudart.Missing()
	var n int32
	fmt.Println(len(missing), err, cudart.CudaGetDeviceCount(&n))
}
`,
	})
	require.NoError(t, run([]string{"-cuda", "11.8", "-api", "runtime", "-out", filepath.Join(dir, "cudart"), "-package", "cudart"}, io.Discard))
	program := filepath.Join(t.TempDir(), "program")
	goTool(t, dir, nil, "build", "-o", program, ".")
	out, err := command.Built(program, library).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Regexp(t, `^0 <nil> (<nil>|cudaErrorNoDevice: .*|cudaErrorInsufficientDriver: .*)\n$`, string(out))
}
