package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A loader type-checks packages as a build for linux/amd64 with cgo sees them,
// whatever the machine is and has: no C compiler runs, and function bodies are
// left out.
type loader struct {
	root, module string // the folder of the module and its path
	build        build.Context
	fset         *token.FileSet
	packages     map[string]*types.Package
}

func newLoader(root, module string) (*loader, error) {
	c := build.Default
	c.GOOS, c.GOARCH, c.CgoEnabled = "linux", "amd64", true
	goroot, err := exec.Command("go", "env", "GOROOT").Output() // a build with -trimpath does not know
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	c.GOROOT = strings.TrimSpace(string(goroot))
	return &loader{root, module, c, token.NewFileSet(), map[string]*types.Package{"unsafe": types.Unsafe}}, nil
}

// Import implements [types.Importer].
func (l *loader) Import(path string) (*types.Package, error) {
	if p := l.packages[path]; p != nil {
		return p, nil
	}
	found, err := l.find(path)
	if errors.Is(err, errOther) { // only functions' bodies, which are not checked, may use it
		p := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
		p.MarkComplete()
		l.packages[path] = p
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range append(found.GoFiles, found.CgoFiles...) {
		f, err := parser.ParseFile(l.fset, filepath.Join(found.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	check := types.Config{Importer: l, FakeImportC: true, IgnoreFuncBodies: true, Sizes: types.SizesFor("gc", "amd64")}
	p, err := check.Check(path, l.fset, files, nil)
	if err != nil {
		return nil, err
	}
	l.packages[path] = p
	return p, nil
}

// errOther is about packages of other modules.
var errOther = errors.New("neither in this module nor in the standard library")

// find finds a package of the module or of the standard library. The API of
// ours needs no other.
func (l *loader) find(path string) (*build.Package, error) {
	std := filepath.Join(l.build.GOROOT, "src")
	dirs := []string{filepath.Join(std, path), filepath.Join(std, "vendor", path)}
	if rel, ours := strings.CutPrefix(path, l.module+"/"); ours {
		dirs = []string{filepath.Join(l.root, rel)}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			return l.build.ImportDir(dir, 0)
		}
	}
	return nil, fmt.Errorf("%s is %w", path, errOther)
}
