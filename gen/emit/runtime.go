package emit

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"go/format"
	"strings"
	"text/template"
)

//go:embed templates
var templateFS embed.FS

var templates = template.Must(template.New("").Delims("<<", ">>").ParseFS(templateFS, "templates/*.tmpl"))

// library says where an API's library is found and how it is told from
// others.
type library struct {
	What    string   // for messages
	Names   []string // what the loader is asked for, in this order
	Subdirs []string // where it lies below a folder that a program names
	Version string   // the function that tells its version
	Major   int      // the only major version the package is for, 0 for any
	Missing string   // what to do where there is none
}

func (e *emitter) library() library {
	if e.api.Name == "driver" {
		return library{
			What:    "the CUDA driver",
			Names:   []string{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"},
			Version: "cuDriverGetVersion",
			Missing: "install NVIDIA's driver (a container must be started with access to the GPUs), or set LD_LIBRARY_PATH to the folder of the file",
		}
	}
	major, _, _ := strings.Cut(e.api.Version, ".")
	soname := "libcudart.so." + major
	if major == "11" {
		soname = "libcudart.so.11.0"
	}
	var n int
	fmt.Sscan(major, &n)
	return library{
		What:    "the CUDA runtime " + major,
		Names:   []string{soname},
		Subdirs: []string{"nvidia/cu" + major + "/lib", "nvidia/cuda_runtime/lib", "lib64", "lib"},
		Version: "cudaRuntimeGetVersion",
		Major:   n,
		Missing: "install the CUDA runtime " + major + ", or set LD_LIBRARY_PATH to the folder of its file",
	}
}

// runtime prints what the calls stand on: the loader and the entry into C.
func (e *emitter) runtime() error {
	data := map[string]any{
		"FirstLine": e.firstLine(), "Package": e.pkg.Name, "Prefix": e.prefix(), "Library": e.library(), "Strings": e.hasStrings(),
	}
	for file, tmpl := range map[string]string{
		"zload.go": "load.go.tmpl", "zcall_cgo.go": "call_cgo.go.tmpl", "zcall_other.go": "call_other.go.tmpl",
	} {
		src, err := format.Source([]byte(e.render(tmpl, data)))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := e.add(file, src); err != nil {
			return err
		}
	}
	return nil
}

func (e *emitter) hasStrings() bool {
	for _, fn := range e.api.Funcs {
		if isCString(fn.Result) {
			return true
		}
	}
	return false
}

// prefix keeps the package's C symbols apart from those of every other
// generated package in the same program.
func (e *emitter) prefix() string {
	sum := sha256.Sum256([]byte(e.pkg.Import))
	return "cudabind_" + hex.EncodeToString(sum[:6]) + "_"
}

func (e *emitter) render(name string, data any) string {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // the templates are part of this package
	}
	return b.String()
}
