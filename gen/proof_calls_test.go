package main

import (
	"bytes"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// signatures compiles a file that assigns each real function to a variable of
// the type by which the binding calls it.
func (p *proof) signatures(t *testing.T) {
	require.NotEmpty(t, p.api.Funcs)
	p.c(t, os.DevNull, "signatures.c.tmpl", map[string]any{"Funcs": p.api.Funcs},
		"-c", "-I"+p.pkg, "-Wall", "-Werror", "-Wno-deprecated-declarations")
	t.Logf("%d signatures compared", len(p.api.Funcs))
}

// argument is a member of an argument struct: "p0", "p1", ... or "ret".
type argument struct{ Symbol, Name string }

func arguments(a *model.API) []argument {
	var out []argument
	for _, fn := range a.Funcs {
		for i := range fn.Params {
			out = append(out, argument{fn.Symbol, fmt.Sprint("p", i)})
		}
		if fn.Result.Kind != model.Void {
			out = append(out, argument{fn.Symbol, "ret"})
		}
	}
	return out
}

// arguments compares the offsets of all arguments: in C with the binding's own
// types, in C with NVIDIA's, and in the Go functions.
func (p *proof) arguments(t *testing.T) {
	args := arguments(p.api)
	data := map[string]any{"Arguments": args}
	own := p.program(t, "arguments.c.tmpl", data, "-I"+p.pkg)
	nvidia := p.program(t, "arguments.c.tmpl", data, "-I"+p.pkg, "-DREAL")
	inGo := p.goArguments(t)
	require.Len(t, own, len(args))
	require.Len(t, nvidia, len(args))
	require.Len(t, inGo, len(args))
	require.Len(t, inGo, len(args))
	for i := range args {
		at, err := strconv.Atoi(inGo[i][strings.LastIndexByte(inGo[i], ' ')+1:])
		require.NoError(t, err)
		assert.Zero(t, at%model.Slot, "CUDA %s: %s is in the middle of a slot", p.api.Version, inGo[i])
		assert.True(t, at >= model.Slot*model.Slots || !strings.Contains(inGo[i], ".ret "), "CUDA %s: %s is in the place of an argument", p.api.Version, inGo[i])
		assert.Equal(t, nvidia[i], own[i], "CUDA %s: the offset with NVIDIA's types, and with the binding's", p.api.Version)
		assert.Equal(t, own[i], inGo[i], "CUDA %s: the offset in C, and in Go", p.api.Version)
	}
	assert.Equal(t, symbolsOf(p.api), p.thunks(t), "CUDA %s: the list of thunks in C", p.api.Version)
	t.Logf("%d offsets compared", len(args))
}

func symbolsOf(a *model.API) []string {
	var out []string
	for _, fn := range a.Funcs {
		out = append(out, fn.Symbol)
	}
	return out
}

// thunks are the functions that C calls by number, in the order of the numbers.
func (p *proof) thunks(t *testing.T) []string {
	src, err := os.ReadFile(filepath.Join(p.pkg, "zcall.c"))
	require.NoError(t, err)
	_, list, ok := strings.Cut(string(src), "thunks[")
	require.True(t, ok)
	list, _, _ = strings.Cut(list, "};")
	var out []string
	for _, m := range regexp.MustCompile(`\b\w+, /\* (\w+) \*/`).FindAllStringSubmatch(list, -1) {
		out = append(out, m[1])
	}
	return out
}

// goArguments reads from the emitted Go functions where each argument lies, in
// the order of the model's functions.
func (p *proof) goArguments(t *testing.T) []string {
	pkg, files, info := p.typeCheck(t)
	p.onlyTheModel(t, pkg)
	bodies := map[string]*ast.BlockStmt{}
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				bodies[fn.Name.Name] = fn.Body
			}
		}
	}
	var out []string
	for _, fn := range p.api.Funcs {
		require.NotNil(t, bodies[fn.Go], "CUDA %s: no function %s in Go", p.api.Version, fn.Go)
		layout, number := callOf(info, bodies[fn.Go])
		require.NotNil(t, layout, "CUDA %s: %s has no argument struct", p.api.Version, fn.Go)
		assert.Equal(t, fn.Number, number, "CUDA %s: the number that %s calls", p.api.Version, fn.Go)
		named := int64(0)
		for f := range layout.Fields() {
			named += goSizes.Sizeof(f.Type())
			assert.NotEqual(t, "_", f.Name(), "CUDA %s: Go compiles a function that compares the arguments of %s", p.api.Version, fn.Go)
		}
		assert.Equal(t, goSizes.Sizeof(layout), named, "CUDA %s: Go compiles a function that compares the arguments of %s", p.api.Version, fn.Go)
		out = append(out, offsets(fn, layout)...)
	}
	return out
}

// callOf finds in a function the struct of its arguments and the number of the
// C function, as it hands them to the call.
func callOf(info *types.Info, body *ast.BlockStmt) (layout *types.Struct, number int) {
	ast.Inspect(body, func(n ast.Node) bool {
		called, ok := n.(*ast.CallExpr)
		if !ok || !slices.Contains([]string{"call", "callStatus"}, types.ExprString(called.Fun)) {
			return true
		}
		if v, exact := constant.Int64Val(info.Types[called.Args[0]].Value); exact {
			number = int(v)
		}
		pointer := called.Args[1].(*ast.CallExpr).Args[0] // unsafe.Pointer(args)
		layout, _ = info.TypeOf(pointer).(*types.Pointer).Elem().(*types.Struct)
		return false
	})
	return layout, number
}

// padding matches the fields of an argument struct that are no arguments.
var padding = regexp.MustCompile(`^_\d+$`)

// offsets spells the fields of an argument struct as the C program does.
func offsets(fn *model.Func, layout *types.Struct) []string {
	var fields []*types.Var
	for f := range layout.Fields() {
		fields = append(fields, f)
	}
	var out []string
	arguments := 0
	for i, offset := range goSizes.Offsetsof(fields) {
		switch name := fields[i].Name(); {
		case padding.MatchString(name):
		case name == "ret":
			out = append(out, fmt.Sprintf("%s.ret %d", fn.Symbol, offset))
		default:
			out = append(out, fmt.Sprintf("%s.p%d %d", fn.Symbol, arguments, offset))
			arguments++
		}
	}
	return out
}

// builtWithoutCgo tells whether a file belongs to a build without cgo.
func builtWithoutCgo(tb testing.TB, name string, text []byte) bool {
	tb.Helper()
	open := func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	built, err := (&gobuild.Context{GOOS: "linux", GOARCH: "amd64", Compiler: "gc", OpenFile: open}).MatchFile("", name)
	require.NoError(tb, err)
	return built
}

var goSizes = types.SizesFor("gc", "amd64")

// typeCheck reads the Go side of the package, as a build without cgo sees it.
func (p *proof) typeCheck(t *testing.T) (*types.Package, []*ast.File, *types.Info) {
	paths, err := filepath.Glob(filepath.Join(p.pkg, "z*.go"))
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if !builtWithoutCgo(t, filepath.Base(path), text) {
			continue
		}
		f, err := parser.ParseFile(fset, path, text, 0)
		require.NoError(t, err)
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: &std, Sizes: goSizes}
	pkg, err := config.Check(p.api.Row.API, fset, files, info)
	require.NoError(t, err)
	return pkg, files, info
}

// std imports the standard library for all proofs, from source.
var std = stdImporter{from: importer.ForCompiler(token.NewFileSet(), "source", nil)}

type stdImporter struct {
	sync.Mutex
	from types.Importer
}

func (s *stdImporter) Import(path string) (*types.Package, error) {
	s.Lock()
	defer s.Unlock()
	return s.from.Import(path)
}

// onlyTheModel checks that the package exports what the model declares, which
// the proofs are about, and the loader, and nothing besides.
func (p *proof) onlyTheModel(t *testing.T, pkg *types.Package) {
	known := map[string]bool{}
	for _, name := range []string{"Open", "Library", "Find", "Missing", "LibraryError", "SymbolError", "Functions"} {
		known[name] = true
	}
	if len(p.api.Row.Library.Subdirs) > 0 {
		known["Folders"] = true
	}
	if d := p.api.Status(); d != nil && d.Kind == model.Enum {
		known["Status"] = true
	}
	for _, fn := range p.api.Funcs {
		known[fn.Go] = true
	}
	for _, al := range p.api.Aliases {
		known[al.Go] = true
	}
	for _, c := range p.api.Consts {
		known[c.Go] = true
	}
	for _, d := range p.api.Decls {
		known[d.Go] = true
		if d.Align > 8 {
			known["New"+d.Go] = true
		}
		for _, e := range d.Enumerators {
			known[e.Go] = true
		}
	}
	for _, name := range pkg.Scope().Names() {
		if token.IsExported(name) {
			assert.True(t, known[name], "CUDA %s: %s is exported and in no proof", p.api.Version, name)
			delete(known, name)
		}
	}
	assert.Empty(t, known, "CUDA %s: in the model and not exported", p.api.Version)
}
