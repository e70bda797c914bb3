package model

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func basic(c string) *Type           { return &Type{Kind: Basic, C: c} }
func fixed(t Type) *Type             { t.Const = true; return &t }
func pointer(to *Type) *Type         { return &Type{Kind: Pointer, Elem: to} }
func array(n int64, of *Type) *Type  { return &Type{Kind: Array, Elem: of, Len: n} }
func nothing() *Type                 { return &Type{Kind: Void} }
func namedType(c string) *Type       { return &Type{Kind: Named, C: c, Decl: &Decl{C: c}} }
func param(c string, t *Type) *Param { return &Param{C: c, Type: t} }

func TestCDecl(t *testing.T) {
	for _, tt := range []struct {
		typ          *Type
		named, alone string
	}{
		{basic("int"), "int x", "int"},
		{fixed(*basic("int")), "const int x", "const int"},
		{namedType("struct cudaPos"), "struct cudaPos x", "struct cudaPos"},
		{pointer(nothing()), "void *x", "void *"},
		{pointer(fixed(*nothing())), "const void *x", "const void *"},
		{fixed(*pointer(nothing())), "void *const x", "void *const"},
		{pointer(pointer(basic("char"))), "char **x", "char **"},
		{pointer(fixed(*pointer(basic("char")))), "char *const *x", "char *const *"},
		{pointer(fixed(*pointer(fixed(*basic("char"))))), "const char *const *x", "const char *const *"},
		{fixed(*pointer(pointer(basic("char")))), "char **const x", "char **const"},
		{array(4, basic("int")), "int x[4]", "int [4]"},
		{array(2, array(3, basic("int"))), "int x[2][3]", "int [2][3]"},
		{array(4, pointer(fixed(*basic("char")))), "const char *x[4]", "const char *[4]"},
		{pointer(array(4, basic("int"))), "int (*x)[4]", "int (*)[4]"},
		{pointer(array(2, array(3, basic("int")))), "int (*x)[2][3]", "int (*)[2][3]"},
	} {
		assert.Equal(t, tt.named, tt.typ.CDecl("x"))
		assert.Equal(t, tt.alone, tt.typ.CDecl(""))
	}
}

func TestPrototype(t *testing.T) {
	f := &Func{Symbol: "cuTake", Result: basic("int"), Params: []*Param{param("x", pointer(fixed(*basic("char")))), param("", basic("long"))}}
	assert.Equal(t, "int cuTake(const char *x, long)", f.Prototype())
	assert.Equal(t, "int (*fn)(const char *, long)", f.PointerTo("fn"))

	f = &Func{Symbol: "cuText", Result: pointer(fixed(*basic("char")))}
	assert.Equal(t, "const char *cuText(void)", f.Prototype())
	assert.Equal(t, "const char *(*fn)(void)", f.PointerTo("fn"))

	d := &Decl{Kind: Callback, C: "CUhostFn", Result: nothing(), Params: []*Param{param("userData", pointer(nothing()))}}
	assert.Equal(t, "void (*CUhostFn)(void *userData)", d.Prototype())
}
