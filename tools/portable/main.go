// Command portable type-checks the module's packages and their tests as builds for other
// systems see them, and prints what does not compile there:
//
//	go run ./tools/portable
//
// It reads sources alone, as compiling the standard library for each system takes minutes.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// A system is what a build is for, without cgo.
type system struct{ os, arch, tags string }

func (s system) String() string {
	return strings.TrimSuffix(s.os+"/"+s.arch+" "+s.tags, " ")
}

var systems = []system{
	{"linux", "amd64", ""},
	{"linux", "amd64", "cudabind_nocgo,cudabind_lockorder"},
	{"linux", "arm64", ""},
	{"linux", "arm64", "cudabind_nocgo"},
	{"windows", "amd64", ""},
	{"windows", "arm64", ""},
	{"darwin", "arm64", ""},
}

func main() {
	failed := false
	for _, s := range systems {
		if err := check(s, "."); err != nil {
			fmt.Fprintf(os.Stderr, "portable: %v:\n%v\n", s, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check type-checks the packages in and below a folder, and their tests.
func check(s system, dir string) error {
	all, err := list(s, dir)
	if err != nil {
		return err
	}
	c := &checker{files: token.NewFileSet(), sizes: types.SizesFor("gc", s.arch), checked: map[string]*types.Package{"unsafe": types.Unsafe}}
	for i := range all { // each stands after what it imports
		c.check(&all[i])
	}
	return errors.Join(c.errs...)
}

// A listed is a package as go list describes it, or a variant of one that is compiled for a test.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	SFiles     []string
	ImportMap  map[string]string
	Module     *struct{ Main bool }
}

func list(s system, dir string) (all []listed, err error) {
	cmd := exec.Command("go", "list", "-deps", "-test", "-tags="+s.tags, "-json=ImportPath,Dir,GoFiles,SFiles,ImportMap,Module", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+s.os, "GOARCH="+s.arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

// A checker type-checks packages for one system.
type checker struct {
	files   *token.FileSet
	sizes   types.Sizes
	checked map[string]*types.Package // by ImportPath
	errs    []error
}

func (c *checker) check(p *listed) {
	if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // the latter is the test's main, which go generates
		return
	}
	files, err := c.parse(p)
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	ours := p.Module != nil && p.Module.Main
	config := types.Config{
		Sizes:            c.sizes,
		IgnoreFuncBodies: !ours,
		Importer:         importer{c, p},
		Error: func(err error) {
			if ours {
				c.errs = append(c.errs, err)
			}
		},
	}
	if ours && len(p.SFiles) == 0 {
		c.bodies(files)
	}
	path, _, _ := strings.Cut(p.ImportPath, " ") // without " [q.test]", for which it is compiled
	c.checked[p.ImportPath], _ = config.Check(path, c.files, files, nil)
}

// bodies tells of functions without a body, in a package without assembly that could have it.
func (c *checker) bodies(files []*ast.File) {
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body == nil {
				c.errs = append(c.errs, fmt.Errorf("%v: %s has no body", c.files.Position(fn.Pos()), fn.Name.Name))
			}
		}
	}
}

// parse reads the files of a package, several at once.
func (c *checker) parse(p *listed) ([]*ast.File, error) {
	files, errs := make([]*ast.File, len(p.GoFiles)), make([]error, len(p.GoFiles))
	var wait sync.WaitGroup
	for i, name := range p.GoFiles {
		wait.Go(func() {
			files[i], errs[i] = parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		})
	}
	wait.Wait()
	return files, errors.Join(errs...)
}

// An importer finds what a package imports.
type importer struct {
	*checker
	by *listed
}

// Import implements [types.Importer].
func (i importer) Import(path string) (*types.Package, error) {
	if other := i.by.ImportMap[path]; other != "" {
		path = other
	}
	if p := i.checked[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not there", path)
}
