package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cudabind/cudabind/gen/model"
)

// calls builds, vets and tests the package: what Go makes of its layout, and
// every function against a library that echoes its arguments.
func (p *proof) calls(t *testing.T) {
	expected := p.writeTests(t)
	out := p.goTest(t, ".")
	for _, line := range expected {
		assert.Contains(t, out, line, "CUDA %s: what the tests in the package covered", p.api.Version)
	}
	t.Log(strings.Join(expected, "; "))
}

// writeTests writes the tests that run inside the package, and returns what
// they print when they have covered everything.
func (p *proof) writeTests(t *testing.T) (expected []string) {
	calls := echoCalls(p.api)
	status := ""
	if d := p.api.Status(); d != nil {
		status = d.Go
	}
	p.echoLibrary(t)
	p.render(t, filepath.Join(p.pkg, "echo_test.go"), "echo_test.go.tmpl", map[string]any{
		"Calls": calls, "Loaded": p.loaded(), "StatusType": status, "Codes": codes(p.api), "Boxed": boxed(p.api),
	})
	arguments, allocating := 0, 0
	for _, c := range calls {
		arguments += len(c.Params)
		if c.Result == "string" {
			allocating++
		}
	}
	return []string{
		fmt.Sprintf("%d numbers compared", p.writeLayoutTest(t)),
		fmt.Sprintf("%d functions called, %d arguments compared", len(calls), arguments),
		fmt.Sprintf("%d functions measured", len(calls)-allocating),
	}
}

// echoLibrary compiles a library that exports every symbol and records how it
// is called.
func (p *proof) echoLibrary(t *testing.T) {
	type function struct {
		Symbol, Definition, Result string
		Params                     []string
	}
	var funcs []function
	for _, fn := range p.api.Funcs {
		f := function{Symbol: fn.Symbol}
		named := *fn
		named.Params = nil
		for i, param := range fn.Params {
			name := fmt.Sprint("p", i)
			f.Params = append(f.Params, name)
			named.Params = append(named.Params, &model.Param{C: name, Type: param.Type})
		}
		f.Definition = named.Prototype()
		if fn.Result.Kind != model.Void {
			f.Result = fn.Result.CDecl("")
		}
		funcs = append(funcs, f)
	}
	data := map[string]any{"Funcs": funcs, "Library": p.api.Row.Library, "Inline": p.api.Row.Inline, "VersionNumber": p.versionNumber(), "Status": p.api.Row.Status}
	if version := p.api.Row.Library.Version; !slices.Contains(symbolsOf(p.api), version) {
		data["Elsewhere"] = version
	}
	p.c(t, filepath.Join(p.pkg, "echo.so"), "echo.c.tmpl", data, "-shared", "-fPIC", "-Wno-deprecated-declarations")
}

// echoCall is a function of the Go package, for the test of all.
type echoCall struct {
	Go     string // its name
	Symbol string // what it must call
	Target string // the function whose number it uses
	Params []string
	Bare   []string // arguments that lie on the stack
	Result string   // "" for a status
	Void   bool
}

// echoCalls are all functions of the package, plain names too.
func echoCalls(a *model.API) []echoCall {
	bySymbol := map[string]*model.Func{}
	var calls []echoCall
	for _, fn := range a.Funcs {
		bySymbol[fn.Symbol] = fn
		calls = append(calls, newEchoCall(fn.Go, fn))
	}
	for _, al := range a.Aliases {
		if al.Func {
			calls = append(calls, newEchoCall(al.Go, bySymbol[al.Target]))
		}
	}
	return calls
}

func newEchoCall(name string, fn *model.Func) echoCall {
	c := echoCall{Go: name, Symbol: fn.Symbol, Target: fn.Go}
	for _, param := range fn.Params {
		field := goSpelling(param.Type)
		if t := param.Type; t.Enum != nil && t.Size == 8 {
			field += " `c:\"uint64\"`"
		}
		c.Params = append(c.Params, field)
		c.Bare = append(c.Bare, onStack(param.Type))
	}
	switch r := fn.Result; {
	case r.Kind == model.Void:
		c.Void = true
	case r.Kind == model.Pointer && r.Elem.C == "char":
		c.Result = "string"
	case r.Kind != model.Named || !r.Decl.Error:
		c.Result = goSpelling(r)
	}
	return c
}

func goSpelling(t *model.Type) string {
	switch {
	case t.Enum != nil:
		return t.Enum.Go
	case t.Go != "":
		return t.Go
	case t.Kind == model.Pointer && t.Elem.Kind == model.Void:
		return "unsafe.Pointer"
	case t.Kind == model.Pointer:
		return "*" + goSpelling(t.Elem)
	}
	return fmt.Sprintf("[%d]%s", t.Len, goSpelling(t.Elem))
}

// onStack is an argument of type t that needs no allocation, unless the
// function makes it escape.
func onStack(t *model.Type) string {
	switch {
	case t.Kind == model.Pointer && t.Go != "":
		return "0"
	case t.Kind == model.Pointer && t.Elem.Kind == model.Void:
		return "unsafe.Pointer(new(byte))"
	case t.Kind == model.Pointer && t.Elem.Size > 1<<15:
		return "nil" // Go keeps so much off the stack
	case t.Kind == model.Pointer:
		return "new(" + goSpelling(t.Elem) + ")"
	case t.Is(model.Struct), t.Is(model.Union):
		return t.Go + "{}"
	case t.Go == "bool":
		return "false"
	case t.Is(model.Second):
		return zero(t.Go)
	}
	return "0"
}

// codes are statuses as Go spells them, success first.
func codes(a *model.API) []string {
	d := a.Status()
	if d != nil && d.Kind == model.Struct {
		code := d.Go + "{" + d.Fields[0].Go + ": "
		return []string{d.Go + "{}", code + "1}", code + "123456}"}
	}
	return append(boxed(a), "1", "123456")
}

// boxed are those whose return must not allocate: success, and a code that programs test for.
func boxed(a *model.API) []string {
	d := a.Status()
	if d == nil {
		return []string{"0"}
	}
	if d.Kind == model.Struct {
		return []string{d.Go + "{}"}
	}
	return []string{"0", d.Enumerators[len(d.Enumerators)/2].Value}
}
