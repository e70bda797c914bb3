package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// readme is the first text, and coverage the one that holds tables.
const (
	readme   = "README.md"
	coverage = "docs/coverage.md"
)

// textFiles are the files that may hold Go, and whose names, commands and links the tests check, below root, which is
// the checkout.
func textFiles(root string) ([]string, error) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	all := []string{readme, "CONTRIBUTING.md", "SECURITY.md", "headers/README.md"}
	for _, page := range pages {
		all = append(all, "docs/"+filepath.Base(page))
	}
	return all, nil
}

// snippets are the places of Go in a text: each names a file and the declarations
// to show, or none to show the whole file. Tests run the programs that they come
// from.
var snippets = regexp.MustCompile(`(?s)<!-- go (\S+)((?: [\w.]+)*) -->\n.*?<!-- end -->`)

// replaceSnippets puts Go in its places in a text.
func replaceSnippets(text, root string) (string, error) {
	var failed error
	out := snippets.ReplaceAllStringFunc(text, func(old string) string {
		m := snippets.FindStringSubmatch(old)
		code, err := snippet(filepath.Join(root, m[1]), strings.Fields(m[2]))
		if err != nil {
			failed = err
			return old
		}
		line, _, _ := strings.Cut(old, "\n")
		return line + "\n```go\n" + code + "```\n<!-- end -->"
	})
	return out, failed
}

// snippet is the text of declarations of a file, of an Example its body alone.
// Without names it is the whole file.
func snippet(file string, names []string) (string, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return string(source), nil
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
			if functionName(d) != name {
				continue
			}
			if strings.HasPrefix(name, "Example") {
				return d.Body.Lbrace + 1, d.Body.Rbrace
			}
			return start(d, d.Doc), d.End()
		case *ast.GenDecl:
			if len(d.Specs) > 0 && isOf(d.Specs[0], name) {
				return start(d, d.Doc), d.End()
			}
		}
	}
	return token.NoPos, token.NoPos
}

// isOf tells whether a declaration is that of a variable or type of this name, or
// for "C" what stands above import "C".
func isOf(s ast.Spec, name string) bool {
	switch s := s.(type) {
	case *ast.ValueSpec:
		return s.Names[0].Name == name
	case *ast.TypeSpec:
		return s.Name.Name == name
	case *ast.ImportSpec:
		return s.Path.Value == `"C"` && name == "C"
	}
	return false
}

func start(n ast.Node, doc *ast.CommentGroup) token.Pos {
	if doc != nil {
		return doc.Pos()
	}
	return n.Pos()
}

// functionName is the name of a function, and of a method with its type's, as in
// "Stream.Wait".
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	return receiver(d.Recv.List[0].Type) + "." + d.Name.Name
}

// receiver is the name of a method's type, without a pointer or parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
