package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

var (
	fences = regexp.MustCompile("(?s)```.*?```")
	code   = regexp.MustCompile("`([^`\n]+)`")
	goName = regexp.MustCompile(`^(admit\.|ffi\.|driver\.|compile\.|blas\.|profile\.|random\.|sim\.|cudart1[23]\.)?[A-Z]\w*(\.[A-Z]\w*)?$`)
)

// streams is the page with the table of everything that streams can do.
const streams = "docs/streams.md"

// shouted are names of CUDA's and of the environment, such as CUDA_VISIBLE_DEVICES.
var shouted = regexp.MustCompile(`^[A-Z0-9_]+$`)

// TestNames: what the texts name is in package safe or in the package that is
// named with it, or is one of the tests.
func TestNames(t *testing.T) {
	in := declarations(t, "cuda/safe", "cuda/safe/blas", "cuda/safe/collective", "cuda/safe/compile", "cuda/safe/dtype", "cuda/safe/fft", "cuda/safe/library", "cuda/safe/profile", "cuda/safe/random", "cuda/vector", "examples/samples", "examples/tour", "gen", "gen/model", "tools", "tools/kernels", "tools/kernels/hard", "cuda/generated")
	for prefix, p := range map[string]string{
		"admit.": "cuda/internal/admit", "ffi.": "cuda/ffi", "driver.": "cuda/generated/driver", "compile.": "cuda/safe/compile", "dtype.": "cuda/safe/dtype", "profile.": "cuda/safe/profile", "random.": "cuda/safe/random", "vector.": "cuda/vector", "blas.": "cuda/safe/blas", "fft.": "cuda/safe/fft", "library.": "cuda/safe/library", "collective.": "cuda/safe/collective", "cudart12.": "cuda/generated/cudart12", "cudart13.": "cuda/generated/cudart13", "sim.": "tools/simdriver/sim",
	} {
		for name, text := range declarations(t, p) {
			in[prefix+name] = text
		}
	}
	eachText(t, func(t *testing.T, file, text string) {
		for _, name := range names(fences.ReplaceAllString(text, "")) {
			_, ok := in[name]
			assert.Truef(t, ok || shouted.MatchString(name), "%s names %s, which is nowhere", file, name)
		}
	})
}

// goFile is a file of this module, and not one that gen writes.
var goFile = regexp.MustCompile(`^(?:[\w-]+/)*[a-y]\w*\.go$`)

// TestFiles: files of Go that the texts name are there.
func TestFiles(t *testing.T) {
	there := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if name := d.Name(); err == nil && d.IsDir() && len(name) > 2 && name[0] == '.' {
			return fs.SkipDir
		}
		there[filepath.Base(path)] = true
		return err
	}))
	eachText(t, func(t *testing.T, file, text string) {
		for _, m := range code.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
			if goFile.MatchString(m[1]) {
				assert.Truef(t, there[filepath.Base(m[1])], "%s names %s, which is nowhere", file, m[1])
			}
		}
	})
}

// TestStreamsComplete: the page on streams names every method of a Stream.
func TestStreamsComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, streams))
	require.NoError(t, err)
	named := map[string]bool{}
	for _, name := range names(fences.ReplaceAllString(string(text), "")) {
		named[name] = true
	}
	methods := 0
	for name := range declarations(t, "cuda/safe") {
		if method, ok := strings.CutPrefix(name, "Stream."); ok && token.IsExported(method) {
			methods++
			assert.Truef(t, named[name], "%s does not name %s", streams, name)
		}
	}
	assert.Greater(t, methods, 40)
}

// names are the pieces of code in a text that are names of Go.
func names(text string) []string {
	var all []string
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		if goName.MatchString(m[1]) {
			all = append(all, m[1])
		}
	}
	return all
}

// declarations are the names that packages have, for all platforms and also in
// their tests, such as "NewStream", "Stream.Wait" and "StreamOptions.Priority",
// each with the text of its file.
func declarations(t *testing.T, packages ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join(root, p, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range f.Decls {
				for _, name := range declared(d) {
					all[name] = string(text)
				}
			}
		}
	}
	return all
}

// declared are the names of a declaration.
func declared(d ast.Decl) []string {
	var all []string
	switch d := d.(type) {
	case *ast.FuncDecl:
		return []string{functionName(d)}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ImportSpec:
				all = append(all, strings.Trim(s.Path.Value, `"`))
			case *ast.ValueSpec:
				for _, name := range s.Names {
					all = append(all, name.Name)
				}
			case *ast.TypeSpec:
				all = append(all, s.Name.Name)
				if of, ok := s.Type.(*ast.StructType); ok {
					for _, field := range of.Fields.List {
						for _, name := range field.Names {
							all = append(all, s.Name.Name+"."+name.Name)
						}
					}
				}
			}
		}
	}
	return all
}
