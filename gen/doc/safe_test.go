package doc

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

const packages = "../../cuda/"

// withoutCounterpart are the functions that package safe calls and that nothing
// in it stands for.
var withoutCounterpart = map[string]string{
	"cuInit":                      "the first call of anything does it",
	"cuDriverGetVersion":          "asked for what differs between drivers",
	"cuMemGetAddressRange":        "a check of borrowed memory",
	"cuStreamGetCtx":              "a check of borrowed streams",
	"cuCtxGetId":                  "a look for resets by other code",
	"cuCtxGetStreamPriorityRange": "a check of StreamOptions.Priority",
	"cuDevicePrimaryCtxGetState":  "a check of contexts",
	"cuFuncIsLoaded":              "a part of loading",
	"cuMemPoolGetAccess":          "a check of imported pools",
	"cuPointerGetAttributes":      "a check of borrowed memory",
	"cuLibraryGetModule":          "a part of loading",
	"cuLogsDumpToMemory":          "the reason of a refused launch",
}

// TestSafeTable: what the table names is there, in the raw packages and in
// package safe.
func TestSafeTable(t *testing.T) {
	all, err := texts()
	require.NoError(t, err)
	raw := rawFunctions(t)
	safe := safeDeclared(t)
	seen := map[string]bool{}
	for i, line := range strings.Split(safeTable, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, names, found := strings.Cut(line, " ")
		require.Truef(t, found, "safe.txt:%d: want a C name, a space and names of package safe", i+1)
		assert.Falsef(t, seen[key], "safe.txt:%d: %s is there twice", i+1, key)
		seen[key] = true
		assert.Truef(t, raw[model.GoName(key)], "safe.txt:%d: %s is no raw function", i+1, key)
		if e := all[key]; assert.NotNilf(t, e, "safe.txt:%d: %s has no entry in text/", i+1, key) {
			for _, twin := range e.keys {
				assert.Falsef(t, twin != key && seen[twin], "safe.txt:%d: %s is there as %s", i+1, key, twin)
			}
		}
		for name := range strings.SplitSeq(names, ", ") {
			assert.Truef(t, safe[name], "safe.txt:%d: package safe has no %s", i+1, name)
		}
	}
	require.Len(t, safeNames(), len(seen))
	t.Logf("%d entries", len(seen))
}

// TestSafeCalls: each raw function that package safe calls, in Go or in C, is in
// the table.
func TestSafeCalls(t *testing.T) {
	called := goCalls(t)
	maps.Copy(called, cCalls(t))
	for symbol := range called {
		base, _, _ := model.Base(symbol)
		inTable := safeNames()[symbol] != nil || safeNames()[base] != nil
		if why := withoutCounterpart[base]; why != "" {
			assert.Falsef(t, inTable, "%s is in safe.txt and said to have no counterpart", symbol)
		} else {
			assert.Truef(t, inTable, "package safe calls %s: say in safe.txt what it has for it", symbol)
		}
	}
	for name := range withoutCounterpart {
		assert.Truef(t, called[name], "package safe does not call %s any more", name)
	}
	t.Logf("%d functions", len(called))
}

// TestSafeSentence: a function and its twin have the same counterparts.
func TestSafeSentence(t *testing.T) {
	for _, c := range []struct {
		name, key string
		want      []string
	}{
		{"one", "cudaStreamQuery", []string{
			"Safe counterpart: [safe.Stream.Query].", "",
			"[safe.Stream.Query]: " + safeURL + "#Stream.Query"}},
		{"two", "cudaStreamWaitEvent", []string{
			"Safe counterpart: [safe.Stream.WaitEvent], [safe.Stream.WaitEventExternal].", "",
			"[safe.Stream.WaitEvent]: " + safeURL + "#Stream.WaitEvent",
			"[safe.Stream.WaitEventExternal]: " + safeURL + "#Stream.WaitEventExternal"}},
		{"three", "cudaMemcpy", []string{
			"Safe counterpart: [safe.Buffer.CopyFromHost], [safe.Buffer.CopyToHost], [safe.Buffer.CopyFrom].", "",
			"[safe.Buffer.CopyFrom]: " + safeURL + "#Buffer.CopyFrom",
			"[safe.Buffer.CopyFromHost]: " + safeURL + "#Buffer.CopyFromHost",
			"[safe.Buffer.CopyToHost]: " + safeURL + "#Buffer.CopyToHost"}},
		{"none", "cuCoredumpGetAttribute", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := texts()
			require.NoError(t, err)
			require.NotNil(t, all[c.key])
			text := &comment{api: "driver"}
			text.safe(all[c.key])
			assert.Equal(t, c.want, text.done())
		})
	}
}

// rawFunctions are the functions of the published packages, by Go name.
func rawFunctions(t *testing.T) map[string]bool {
	t.Helper()
	m := map[string]bool{}
	for _, name := range []string{"driver", "cudart12", "cudart13"} {
		for _, f := range parsed(t, token.NewFileSet(), packages+"generated/"+name+"/z*.go") {
			for _, d := range f.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					m[f.Name.Name] = true
				}
			}
		}
	}
	return m
}

// safeDeclared are the functions of package safe, and its methods as
// Type.Method.
func safeDeclared(t *testing.T) map[string]bool {
	t.Helper()
	fset := token.NewFileSet()
	p, err := doc.NewFromFiles(fset, parsed(t, fset, packages+"safe/*.go"), "github.com/cudabind/cudabind/cuda/safe")
	require.NoError(t, err)
	m := map[string]bool{}
	for _, f := range p.Funcs {
		m[f.Name] = true
	}
	for _, ty := range p.Types {
		for _, f := range ty.Funcs {
			m[f.Name] = true
		}
		for _, f := range ty.Methods {
			m[ty.Name+"."+f.Name] = true
		}
	}
	return m
}

// goCalls are the raw functions that package safe and its helper package use,
// as C spells their names.
func goCalls(t *testing.T) map[string]bool {
	t.Helper()
	raw := rawFunctions(t)
	m := map[string]bool{}
	for _, pattern := range []string{"safe/*.go", "internal/rt/*.go"} {
		for _, f := range parsed(t, token.NewFileSet(), packages+pattern) {
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if p, ok := s.X.(*ast.Ident); ok && p.Name == "driver" && raw[s.Sel.Name] && strings.HasPrefix(s.Sel.Name, "Cu") {
					m["cu"+s.Sel.Name[2:]] = true
				}
				return true
			})
		}
	}
	require.NotEmpty(t, m)
	return m
}

var cCall = regexp.MustCompile(`\brt_cu\.(cu[A-Z]\w+)`)

// cCalls are the symbols that the C of package safe calls.
func cCalls(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(packages + "internal/rt/*.c")
	require.NoError(t, err)
	m := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, call := range cCall.FindAllStringSubmatch(string(text), -1) {
			m[call[1]] = true
		}
	}
	require.NotEmpty(t, m)
	return m
}

// parsed are the files of a pattern, tests aside.
func parsed(t *testing.T, fset *token.FileSet, pattern string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(pattern)
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	require.NotEmpty(t, names, pattern)
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		files = append(files, f)
	}
	return files
}
