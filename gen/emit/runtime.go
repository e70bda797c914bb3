package emit

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"go/format"
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
	Form    string
	From    map[string]int
	Stub    int
	Beside  []string
	Search  bool   // it is looked for where the system's loader does not look
	Cache   string // its folder in our cache, "" for none
	Major   int    // the only major version the package is for, 0 for any
	Missing string

	Target      bool // toolkits have a folder for each architecture
	OpensBeside bool // it opens files that may lie beside it, on some system
}

func (e *emitter) library() library {
	row := e.api.Row
	l := library{
		What: row.For(e.api.Version, row.Library.What), Names: filled(e.api, row.Library.Names), Subdirs: filled(e.api, row.Library.Subdirs),
		Version: row.Library.Version, Pair: row.Library.Pair, Form: row.Library.Form, From: row.Library.From, Stub: row.Library.Stub, Beside: row.Library.Beside, Missing: row.For(e.api.Version, row.Library.Missing),
	}
	if l.Version == "" { // any function shows that it is the right library
		l.Version, l.Form = e.api.Funcs[0].Symbol, "none"
	}
	l.Search, l.Cache = len(l.Subdirs) > 0, row.Library.Cache
	l.Target, l.OpensBeside = l.Search, len(l.Beside)+len(row.Library.Windows.Beside) > 0
	if row.Library.Majors {
		fmt.Sscan(model.Major(e.api.Version), &l.Major)
	}
	return l
}

// onWindows is the library as Windows has it.
func (l library) onWindows(a *model.API) library {
	fill := func(texts []string) []string { return filled(a, texts) }
	w := a.Row.Library.Windows
	l.Names, l.Subdirs, l.Beside, l.Target = fill(w.Names), fill(w.Subdirs), fill(w.Beside), false
	if len(l.Names) == 0 {
		l.Names = []string{a.Row.API + ".dll"}
	}
	if l.Search && len(l.Subdirs) == 0 {
		l.Subdirs = []string{"bin/x64", "bin"}
	}
	l.Missing = a.Row.For(a.Version, w.Missing)
	if l.Missing == "" {
		l.Missing = "install " + l.What + ", or name its file in {package}.Open"
	}
	return l
}

// filled are texts of a row for the version of the headers.
func filled(a *model.API, texts []string) (out []string) {
	for _, t := range texts {
		out = append(out, a.Row.For(a.Version, t))
	}
	return out
}

// runtime prints what the calls stand on: the loader, and the ways to enter C.
func (e *emitter) runtime() error {
	l := e.library()
	w := l.onWindows(e.api)
	for _, text := range []*string{&l.Missing, &w.Missing} {
		*text = strings.ReplaceAll(*text, "{package}", e.pkg.Name)
	}
	data := map[string]any{
		"FirstLine": e.firstLine(), "Package": e.pkg.Name, "Prefix": e.prefix(), "Library": l, "Windows": w,
		"Strings": e.hasStrings(), "Vars": len(e.api.Vars) > 0, "Beside": l.OpensBeside,
		"Prefixed": e.errorPrefix(), "First": e.api.Funcs[0].Symbol,
	}
	for _, file := range []struct{ name, template string }{
		{"zload.go", "load.go.tmpl"}, {"zload_linux.go", "load_linux.go.tmpl"}, {"zload_elf.go", "load_elf.go.tmpl"}, {"zload_other.go", "load_other.go.tmpl"}, {"zload_windows.go", "load_windows.go.tmpl"},
		{"zcall_cgo.go", "call_cgo.go.tmpl"}, {"zcall_nocgo.go", "call_nocgo.go.tmpl"}, {"zcall_windows_amd64.go", "call_windows.go.tmpl"},
		{"zcall_other.go", "call_other.go.tmpl"}, {"zarrange.go", "arrange.go.tmpl"},
	} {
		if err := e.template(file.name, file.template, data); err != nil {
			return err
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if err := e.add("zcall_nocgo_"+arch+".s", []byte(e.render("call_nocgo_"+arch+".s.tmpl", data))); err != nil {
			return err
		}
	}
	return e.shapes()
}

// errorPrefix begins the errors of the package: what is not CUDA's has its own name there.
func (e *emitter) errorPrefix() string {
	if model.RowOf(e.api.Row.API) == nil {
		return e.api.Row.API
	}
	return "cuda"
}

// template prints a file of Go from a template.
func (e *emitter) template(file, name string, data map[string]any) error {
	src, err := format.Source([]byte(e.render(name, data)))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return e.add(file, src)
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
