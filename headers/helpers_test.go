package headers

import (
	"archive/zip"
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/internal/pip/piptest"
)

// tree is an include folder in memory. The headers are our own.
type tree map[string]string

func (t tree) has(name string) bool { _, ok := t[name]; return ok }

func (t tree) read(name string) ([]byte, error) {
	if !t.has(name) {
		return nil, os.ErrNotExist
	}
	return []byte(t[name]), nil
}

// with is t with one header changed.
func (t tree) with(name, text string) tree {
	t = maps.Clone(t)
	t[name] = text
	return t
}

func (t tree) without(name string) tree {
	t = maps.Clone(t)
	delete(t, name)
	return t
}

// write makes the folder dir of t.
func (t tree) write(tb testing.TB, dir string) {
	for name, text := range t {
		require.NoError(tb, writeHeader(filepath.Join(dir, filepath.FromSlash(name)), []byte(text)))
	}
}

// sample is an include folder of CUDA 12.9; unused.h is not pinned.
var sample = tree{
	"cuda.h":             "#include <stdlib.h>\n#define CUDA_VERSION 12090\nint sampleInit(void);\n",
	"cuda_runtime_api.h": "#include \"crt/host.h\"\n#include \"sub/types.h\"\n",
	"cudaTypedefs.h":     "#if 0\n #  include <cuda.h>\n#endif\n",
	"library_types.h":    "/* none */\n",
	"sub/types.h":        "#include \"more.h\"\n",
	"sub/more.h":         "#include <cuda.h>\n",
	"unused.h":           "#include <cuda.h>\n",
}

var samplePaths = []string{"cuda.h", "cudaTypedefs.h", "cuda_runtime_api.h", "library_types.h", "sub/more.h", "sub/types.h"}

const sampleWheel = "sample_pkg-12.9.79-py3-none-manylinux1_x86_64.manylinux2014_x86_64.whl"

// sampleRelease pins the sample as wheelFile packs it.
func sampleRelease(tb testing.TB) Release {
	files, err := pinned(sample, runtimePart.roots)
	require.NoError(tb, err)
	return Release{
		Version: "12.9",
		Package: Package{
			Wheel: "sample-pkg", WheelVersion: "12.9.79", Platform: "manylinux1_x86_64",
			SHA256: sum(packed(tb, inWheel(sample))), Headers: files,
		},
	}
}

// inWheel gives the names that headers have in a wheel.
func inWheel(t tree) tree {
	in := tree{"nvidia/sample/lib/libsample.so": "binary", "sample_pkg.dist-info/RECORD": ""}
	for name, text := range t {
		in["nvidia/sample/include/"+name] = text
	}
	return in
}

// held is a wheel in memory.
func held(name string, data []byte) wheel {
	return wheel{name, sum(data), true, int64(len(data)), bytes.NewReader(data)}
}

// packed makes an archive.
func packed(tb testing.TB, t tree) []byte {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		if strings.HasSuffix(name, ".so") {
			h.Method = zip.Store // large ones take long to pack
		}
		f, err := w.CreateHeader(h)
		require.NoError(tb, err)
		_, err = f.Write([]byte(t[name]))
		require.NoError(tb, err)
	}
	require.NoError(tb, w.Close())
	return buf.Bytes()
}

// place gives the test header and temporary folders of its own, and tells it
// afterwards what was left there.
func place(t *testing.T) (base string) {
	base = filepath.Join(t.TempDir(), "headers")
	t.Setenv(EnvDir, base)
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TMP", os.Getenv("TMPDIR")) // for Windows
	return base
}

// names lists a folder, which may be missing.
func names(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// fakePip is an old pip that reports nothing. It downloads one wheel, and finds
// none of the libraries.
func fakePip(t *testing.T, name string, data []byte) {
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, data, 0o644))
	piptest.Python(t, `case $args in *nvrtc* | *nvjitlink* | *nccl* | *nvml* | *profiler* | *cuda-toolkit*) echo "ERROR: No matching distribution found" >&2; exit 1 ;; esac
cp "`+file+`" "$dest"`)
}
