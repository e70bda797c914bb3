package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// compareGo compares the exported API of a package between two versions: each
// the root folder of a checkout, or a revision of the one around us.
func compareGo(ctx context.Context, pkg, from, to string) ([]change, error) {
	old, err := goFacts(ctx, pkg, from)
	if err != nil {
		return nil, err
	}
	now, err := goFacts(ctx, pkg, to)
	if err != nil {
		return nil, err
	}
	return diff("Go", old, now), nil
}

func goFacts(ctx context.Context, pkg, version string) (facts, error) {
	sources, err := readSources(ctx, pkg, version)
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("%s has no Go files in %s", version, pkg)
	}
	f := facts{}
	fset := token.NewFileSet()
	for name, src := range sources {
		file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			f.goDecl(fset, d)
		}
	}
	return f, nil
}

// readSources reads the package's files of a version.
func readSources(ctx context.Context, pkg, version string) (map[string][]byte, error) {
	sources := map[string][]byte{}
	if info, err := os.Stat(version); err == nil && info.IsDir() {
		files, err := filepath.Glob(filepath.Join(version, pkg, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if isSource(file) {
				if sources[file], err = os.ReadFile(file); err != nil {
					return nil, err
				}
			}
		}
		return sources, nil
	}
	out, err := exec.CommandContext(ctx, "git", "archive", "--format=tar", version, "--", pkg).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("%s is no folder, and as a revision: %w", version, err)
	}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return sources, nil
		}
		if err != nil {
			return nil, err
		}
		if path.Dir(h.Name) == path.Clean(filepath.ToSlash(pkg)) && isSource(h.Name) {
			if sources[h.Name], err = io.ReadAll(r); err != nil {
				return nil, err
			}
		}
	}
}

// isSource leaves out tests, and the file that stands in where there is no cgo.
func isSource(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, "_other.go")
}

// goDecl adds the exported names of a declaration.
func (f facts) goDecl(fset *token.FileSet, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			name = strings.TrimPrefix(text(fset, d.Recv.List[0].Type), "*") + "." + name
		}
		if !d.Name.IsExported() || !ast.IsExported(name) {
			return
		}
		f[subject{"function", name}] = text(fset, types(d.Type))
	case *ast.GenDecl:
		for _, s := range d.Specs {
			f.goSpec(fset, d.Tok, s)
		}
	}
}

func (f facts) goSpec(fset *token.FileSet, tok token.Token, s ast.Spec) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		if fields, ok := s.Type.(*ast.StructType); ok {
			f[subject{"struct", s.Name.Name}] = "struct"
			for _, field := range fields.Fields.List {
				for _, n := range field.Names {
					if n.IsExported() {
						f[subject{"field", s.Name.Name + "." + n.Name}] = text(fset, field.Type)
					}
				}
			}
			return
		}
		f[subject{"type name", s.Name.Name}] = text(fset, s.Type)
	case *ast.ValueSpec:
		for i, n := range s.Names {
			if !n.IsExported() {
				continue
			}
			value := ""
			if s.Type != nil {
				value = text(fset, s.Type)
			}
			if tok == token.CONST && i < len(s.Values) {
				value = strings.TrimSpace(value + " = " + text(fset, s.Values[i]))
			}
			f[subject{"constant", n.Name}] = value
		}
	}
}

// types is a signature without the names of its parameters, which callers do
// not see.
func types(t *ast.FuncType) *ast.FuncType {
	bare := func(l *ast.FieldList) *ast.FieldList {
		if l == nil {
			return nil
		}
		out := &ast.FieldList{}
		for _, p := range l.List {
			for range max(1, len(p.Names)) {
				out.List = append(out.List, &ast.Field{Type: p.Type})
			}
		}
		return out
	}
	return &ast.FuncType{TypeParams: t.TypeParams, Params: bare(t.Params), Results: bare(t.Results)}
}

func text(fset *token.FileSet, n any) string {
	var b strings.Builder
	if err := printer.Fprint(&b, fset, n); err != nil {
		return err.Error()
	}
	return b.String()
}
