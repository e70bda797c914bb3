package emit

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"go/format"
	"path"
	"strings"
	"text/template"

	"github.com/cudabind/cudabind/gen/model"
)

//go:embed templates
var templateFS embed.FS

var templates = template.Must(template.New("").Delims("<<", ">>").ParseFS(templateFS, "templates/*.tmpl"))

// library is the row's, filled in for the version.
type library struct {
	What    string
	Names   []string
	Subdirs []string
	Version string
	Pair    bool
	Stub    int
	Beside  []string
	Several bool // Names are different files
	Major   int  // the only major version the package is for, 0 for any
	Missing string
}

func (e *emitter) library() library {
	row := e.api.Row
	fill := func(texts []string) (out []string) {
		for _, t := range texts {
			out = append(out, row.For(e.api.Version, t))
		}
		return out
	}
	l := library{
		What: row.For(e.api.Version, row.Library.What), Names: fill(row.Library.Names), Subdirs: fill(row.Library.Subdirs),
		Version: row.Library.Version, Pair: row.Library.Pair, Stub: row.Library.Stub, Beside: row.Library.Beside, Missing: row.For(e.api.Version, row.Library.Missing),
	}
	for _, name := range l.Names {
		l.Several = l.Several || path.Base(name) != path.Base(l.Names[0])
	}
	if row.Library.Majors {
		fmt.Sscan(model.Major(e.api.Version), &l.Major)
	}
	return l
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
