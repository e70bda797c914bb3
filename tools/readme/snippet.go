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

// The texts that hold Go.
const (
	readme = "README.md"
	guide  = "docs/streams.md"
)

// snippets are the pieces of Go in the texts, each with the declarations that it
// shows: the programs they are from are built, and run by tests.
var snippets = []struct {
	in, name, file string
	show           []string
}{
	{readme, "vectoradd", "examples/vectoradd/main.go", []string{"kernels", "add"}},
	{readme, "devices", "cuda/generated/driver/example_test.go", []string{"Example"}},
	{guide, "enqueue", "examples/samples/simplestreams.go", []string{"double"}},
	{guide, "wait", "examples/samples/guide_test.go", []string{"result"}},
	{guide, "beside", "examples/samples/asyncapi.go", []string{"workBeside"}},
	{guide, "future", "examples/samples/concurrentkernels.go", []string{"sumBehind"}},
	{guide, "scope", "examples/samples/streamorderedallocation.go", []string{"addOn"}},
	{guide, "callback", "examples/samples/simplecallback.go", []string{"begin"}},
	{guide, "capture", "examples/samples/simplecudagraphs.go", []string{"capture"}},
	{guide, "attributes", "examples/samples/guide_test.go", []string{"keepInCache"}},
	{guide, "values", "examples/samples/guide_test.go", []string{"inTurn"}},
	{guide, "devices", "examples/samples/guide_test.go", []string{"passOn"}},
	{guide, "raw", "examples/samples/guide_test.go", []string{"clearRaw"}},
}

// replaceSnippets puts the snippets of a text in their places; root is the
// checkout.
func replaceSnippets(text, in, root string) (string, error) {
	for _, s := range snippets {
		if s.in != in {
			continue
		}
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
