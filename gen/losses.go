package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// losses tells on stderr what the package in dir has and files no longer do, the
// functions that take or return other types, and the frozen names that cannot keep
// their meaning.
func losses(dir string, files map[string][]byte, frozen, names map[string]string, stderr io.Writer) error {
	before := map[string]declared{}
	old, err := replaceable(dir, files)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for name := range old {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		exported(name, text, before)
	}
	now := map[string]declared{}
	for name, text := range files {
		exported(name, text, now)
	}
	gone := map[string][]string{}
	var changed []string
	for name, was := range before {
		switch is := now[name]; {
		case is.kind == "":
			gone[was.kind] = append(gone[was.kind], name)
		case was.signature != is.signature:
			changed = append(changed, name)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(gone)) {
		fmt.Fprintf(stderr, "gen: the package in %s loses %s that this header does not declare: %s\n", dir, kind, list(gone[kind]))
	}
	if len(changed) > 0 {
		fmt.Fprintf(stderr, "gen: the package in %s changes functions that this header declares with other types: %s\n", dir, list(changed))
	}
	for _, name := range slices.Sorted(maps.Keys(frozen)) {
		switch target := frozen[name]; names[name] {
		case target:
		case "":
			fmt.Fprintf(stderr, "gen: the frozen name %s means nothing in this header\n", name)
		default:
			fmt.Fprintf(stderr, "gen: the name %s is frozen for %s, which this header does not declare: it means %s now\n", name, target, names[name])
		}
	}
	return nil
}

// declared is what an exported name stands for.
type declared struct {
	kind      string
	signature string // of a function, without the names of its parameters
}

// exported adds the exported names that a Go file declares, with what they
// are. A file that cannot be read as Go has none: it is overwritten in any case.
func exported(name string, text []byte, into map[string]declared) {
	if !strings.HasSuffix(name, ".go") {
		return
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return
	}
	add := func(id *ast.Ident, is declared) {
		if id.IsExported() {
			into[id.Name] = is
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name, declared{"functions", signature(d.Type)})
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Name, declared{kind: "types"})
				case *ast.ValueSpec:
					for _, id := range s.Names {
						add(id, declared{kind: "values"})
					}
				}
			}
		}
	}
}

// signature is the types that a function takes and returns.
func signature(f *ast.FuncType) string {
	var all []string
	for _, fields := range []*ast.FieldList{f.Params, f.Results} {
		if fields == nil {
			continue
		}
		for _, field := range fields.List {
			for range max(1, len(field.Names)) {
				all = append(all, types.ExprString(field.Type))
			}
		}
		all = append(all, ";")
	}
	return strings.Join(all, " ")
}

// list is a sorted list that fits a terminal.
func list(names []string) string {
	const most = 40
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
