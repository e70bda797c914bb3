package drivertest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Declarations are those of the package in a folder, without its tests. It skips the test where the
// sources are not, as on a machine that has the built tests alone.
func Declarations(t *testing.T, folder string) (all []ast.Decl) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skip("it reads the sources, which are not here")
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		tree, err := parser.ParseFile(token.NewFileSet(), file, source, 0)
		require.NoError(t, err)
		all = append(all, tree.Decls...)
	}
	return all
}

// ExportedFunctions are the functions of the package in a folder, without methods.
func ExportedFunctions(t *testing.T, folder string) (all []*ast.FuncDecl) {
	t.Helper()
	for _, d := range Declarations(t, folder) {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() {
			all = append(all, f)
		}
	}
	return all
}

// ExportedTypes are the types of the package in a folder.
func ExportedTypes(t *testing.T, folder string) (all []*ast.TypeSpec) {
	t.Helper()
	for _, d := range Declarations(t, folder) {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
				all = append(all, s)
			}
		}
	}
	return all
}

// typesWithMethods are the names of exported types that have exported methods.
func typesWithMethods(t *testing.T, folder string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, d := range Declarations(t, folder) {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil || !f.Name.IsExported() {
			continue
		}
		of := f.Recv.List[0].Type
		if p, ok := of.(*ast.StarExpr); ok {
			of = p.X
		}
		switch i := of.(type) { // a generic type
		case *ast.IndexExpr:
			of = i.X
		case *ast.IndexListExpr:
			of = i.X
		}
		if name := of.(*ast.Ident); name.IsExported() {
			all[name.Name] = true
		}
	}
	return all
}
