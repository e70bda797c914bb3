package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// snippets are the pieces of Go in the README, each with the declarations that
// it shows: the programs they are from are built, and run by tests.
var snippets = []struct {
	name, file string
	show       []string
}{
	{"vectoradd", "examples/vectoradd/main.go", []string{"kernels", "add"}},
	{"devices", "cuda/generated/driver/example_test.go", []string{"Example"}},
}

// replaceSnippets puts all snippets in their places; root is the checkout.
func replaceSnippets(text, root string) (string, error) {
	for _, s := range snippets {
		code, err := snippet(filepath.Join(root, s.file), s.show)
		if err != nil {
			return "", err
		}
		if text, err = replace(text, s.name, "```go\n"+code+"```\n"); err != nil {
			return "", err
		}
	}
	return text, nil
}

// snippet is the text of declarations of a file, of an Example its body alone.
func snippet(file string, names []string) (string, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, file, source, parser.ParseComments)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, name := range names {
		from, to := place(f, name)
		if !from.IsValid() {
			return "", fmt.Errorf("%s declares no %s", file, name)
		}
		part := string(source[files.Position(from).Offset:files.Position(to).Offset])
		if strings.HasPrefix(name, "Example") {
			part = strings.ReplaceAll(part, "\n\t", "\n")
		}
		parts = append(parts, strings.Trim(part, "\n")+"\n")
	}
	return strings.Join(parts, "\n"), nil
}

// place is where a file declares a name.
func place(f *ast.File, name string) (from, to token.Pos) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name != name || d.Recv != nil {
				continue
			}
			if strings.HasPrefix(name, "Example") {
				return d.Body.Lbrace + 1, d.Body.Rbrace
			}
			return start(d, d.Doc), d.End()
		case *ast.GenDecl:
			if v, ok := d.Specs[0].(*ast.ValueSpec); ok && v.Names[0].Name == name {
				return start(d, d.Doc), d.End()
			}
		}
	}
	return token.NoPos, token.NoPos
}

func start(n ast.Node, doc *ast.CommentGroup) token.Pos {
	if doc != nil {
		return doc.Pos()
	}
	return n.Pos()
}
