package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// builds are the builds of a package that have files of their own.
var builds = []gobuild.Context{
	{GOOS: "linux", GOARCH: "amd64", Compiler: "gc", CgoEnabled: true},
	{GOOS: "linux", GOARCH: "arm64", Compiler: "gc", BuildTags: []string{"cudabind_nocgo"}},
	{GOOS: "windows", GOARCH: "amd64", Compiler: "gc"},
	{GOOS: "darwin", GOARCH: "arm64", Compiler: "gc"},
}

// check type-checks a package before it is written. Its error names the declarations that make
// it one that does not compile. Packages of the standard library are taken on trust, and so
// are others that cannot be found from dir.
func check(a *model.API, dir string, files map[string][]byte) error {
	c := checker{dir: dir, found: map[string]*types.Package{}}
	seen := map[string]bool{}
	var errs []error
	for _, b := range builds {
		for _, err := range c.files(b, files) {
			text := fmt.Sprintf("%s: the code for %s would not compile: %s", a.Header, cOf(a, err.declaration), err.Msg)
			if !seen[text] && len(errs) < 5 {
				errs = append(errs, errors.New(text))
			}
			seen[text] = true
		}
	}
	return errors.Join(errs...)
}

// cOf is the C name of what a declaration in Go is made of.
func cOf(a *model.API, declaration string) string {
	for _, f := range a.Funcs {
		if f.Go == declaration {
			return f.Symbol
		}
	}
	for _, d := range a.Decls {
		if d.Go == declaration {
			return cmp.Or(d.C, declaration)
		}
	}
	for _, c := range a.Consts {
		if c.Go == declaration {
			return c.C
		}
	}
	return declaration
}

type checker struct {
	dir   string
	found map[string]*types.Package // packages outside of the standard library, nil for missing ones
}

// A compileError lies in a declaration: a function, a type with its methods, a constant.
type compileError struct {
	types.Error
	declaration string
}

// files type-checks the files of one build.
func (c *checker) files(b gobuild.Context, files map[string][]byte) (errs []compileError) {
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !built(b, name, files[name]) {
			continue
		}
		file, err := parser.ParseFile(fset, name, files[name], parser.SkipObjectResolution)
		if err != nil {
			return []compileError{{types.Error{Msg: err.Error()}, name}}
		}
		parsed = append(parsed, file)
	}
	config := types.Config{Importer: c, Sizes: types.SizesFor("gc", b.GOARCH), FakeImportC: true, Error: func(err error) {
		e, ok := err.(types.Error)
		if !ok || strings.HasPrefix(e.Msg, "could not import ") || strings.HasPrefix(e.Msg, "\t") {
			return // or it goes on about the one before
		}
		if sameForAll(fset.Position(e.Pos).Filename) && !strings.Contains(e.Msg, "redeclared") {
			return
		}
		errs = append(errs, compileError{e, declarationAt(parsed, e.Pos)})
	}}
	config.Check("p", fset, parsed, nil) // it has told of errors
	return errs
}

// sameForAll tells whether a file's code is the same for all headers. It leans on the standard
// library, and only its names can clash with those of a header.
func sameForAll(name string) bool {
	return name == "zload.go" || strings.HasPrefix(name, "zload_") || strings.HasPrefix(name, "zcall_")
}

// built tells whether a file of Go belongs to a build.
func built(b gobuild.Context, name string, text []byte) bool {
	b.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	match, err := b.MatchFile("", name)
	return match && err == nil && strings.HasSuffix(name, ".go")
}

// declarationAt is the declaration around a place.
func declarationAt(files []*ast.File, pos token.Pos) string {
	for _, file := range files {
		for _, d := range file.Decls {
			if pos < d.Pos() || d.End() <= pos {
				continue
			}
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					return strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
				}
				return d.Name.Name
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if spec.Pos() <= pos && pos < spec.End() {
						return specName(spec)
					}
				}
			}
		}
	}
	return "the package"
}

func specName(spec ast.Spec) string {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return s.Name.Name
	case *ast.ValueSpec:
		return s.Names[0].Name
	}
	return "an import"
}

// Import reads the declarations of a package that is not of the standard library.
func (c *checker) Import(path string) (*types.Package, error) {
	p, known := c.found[path]
	if first, _, _ := strings.Cut(path, "/"); !known && strings.Contains(first, ".") {
		p = c.load(path)
		c.found[path] = p
	}
	if p == nil {
		return nil, errors.New("taken on trust")
	}
	return p, nil
}

// load returns nil where the package cannot be read.
func (c *checker) load(path string) *types.Package {
	finder := gobuild.Default
	finder.Dir = existing(c.dir)
	in, err := finder.Import(path, finder.Dir, gobuild.FindOnly)
	if err != nil {
		return nil
	}
	names, _ := filepath.Glob(filepath.Join(in.Dir, "*.go"))
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || strings.HasSuffix(name, "_test.go") || !built(builds[0], filepath.Base(name), text) {
			continue
		}
		if file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution); err == nil {
			parsed = append(parsed, file)
		}
	}
	if len(parsed) == 0 {
		return nil
	}
	config := types.Config{Importer: c, FakeImportC: true, IgnoreFuncBodies: true, Error: func(error) {}}
	p, _ := config.Check(path, fset, parsed, nil) // its own errors are not of this package
	return p
}

// existing is the innermost folder on the way to dir that is there.
func existing(dir string) string {
	abs, err := filepath.Abs(dir)
	for err == nil {
		if info, err := os.Stat(abs); err == nil && info.IsDir() || abs == filepath.Dir(abs) {
			return abs
		}
		abs = filepath.Dir(abs)
	}
	return dir
}
