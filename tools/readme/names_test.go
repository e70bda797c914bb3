package main

import (
	"go/ast"
	"go/parser"
	"go/token"
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
	goName = regexp.MustCompile(`^(driver\.|sim\.|cudart1[23]\.)?[A-Z]\w*(\.[A-Z]\w*)?$`)
)

// guide is the text with the table of what there is.
const guide = "docs/streams.md"

// shouted are names of CUDA's and of the environment, such as CUDA_VISIBLE_DEVICES.
var shouted = regexp.MustCompile(`^[A-Z0-9_]+$`)

// TestNames: what the texts name is in package safe or in the package that is
// named with it, or is one of the tests.
func TestNames(t *testing.T) {
	in := declarations(t, "cuda/safe", "examples/samples", "examples/tour", "cuda/generated")
	for prefix, p := range map[string]string{
		"driver.": "cuda/generated/driver", "cudart12.": "cuda/generated/cudart12", "cudart13.": "cuda/generated/cudart13", "sim.": "tools/simdriver/sim",
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

// TestTable: each row of the guide's table names functions, and tests that use
// them.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, guide))
	require.NoError(t, err)
	in := declarations(t, "cuda/safe", "examples/samples")
	prose := fences.ReplaceAllString(string(text), "")
	assert.Greater(t, len(names(prose)), 100)

	rows := 0
	for line := range strings.Lines(prose) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || len(names(line)) == 0 {
			continue
		}
		rows++
		functions, tests := names(cells[2]), names(cells[3])
		assert.NotEmpty(t, functions, line)
		assert.NotEmpty(t, tests, line)
		sources := "" // of the tests, with what stands beside them
		for _, name := range tests {
			assert.Regexp(t, "^(Test|Example)", name, line)
			sources += in[name]
		}
		for _, name := range functions {
			used := `\b` + name[strings.Index(name, ".")+1:] + `\b`
			assert.Truef(t, regexp.MustCompile(used).MatchString(sources), "no test of its row uses %s", name)
		}
	}
	assert.Greater(t, rows, 15)
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
