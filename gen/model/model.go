// Package model holds what a CUDA header declares, as plain data: the parser
// fills it, names and quirks complete it, and the emitter prints it.
package model

import (
	"math"
	"slices"
	"strings"
)

// API is everything one header of one CUDA version declares.
type API struct {
	Row     *Row
	Header  string // "cuda.h"
	Also    []Also // further headers of the row that the include folder has
	Version string // "13.5"

	Funcs   []*Func
	Aliases []*Alias // plain function names, and names of a type by another
	Decls   []*Decl
	Consts  []*Const            // object-like macros and unnamed enumerators
	Vars    []*Var              // exported variables
	Dropped []string            // macros that are no constants, which have no place in Go
	Unbound []Unbound           // what the package cannot have, and why
	Beside  map[string][]string // functions with the library's prefix in headers that are not its own, by header
	Inlines []Inline            // functions that the header defines and the library does not export
	Skipped []string            // what quirks leave out

	renamed map[string]string // the Go names that quirks give, by C name

	Notice string  // the comment the header begins with
	Groups []Group // the headers' chapters, in their order
	PFNs   []*PFN  // what cudaTypedefs.h and its like say of the functions
}

// Of says what the header is of, as in "CUDA 13.5", "" if that is not known.
func (a *API) Of() string {
	switch {
	case a.Row.OfCUDA():
		return "CUDA " + a.Version
	case a.Version != "":
		return "version " + a.Version
	}
	return ""
}

// HeaderNames are the headers that declare a.
func (a *API) HeaderNames() []string {
	names := slices.DeleteFunc(slices.Clone(a.Row.Headers), func(h string) bool { return h == a.Row.Typedefs })
	for _, also := range a.Also {
		names = append(names, also.Header)
	}
	return names
}

// Status returns the API's status type, nil if the header lacks it.
func (a *API) Status() *Decl {
	for _, d := range a.Decls {
		if (d.Kind == Enum || d.Kind == Struct) && a.Row.IsStatus(d) {
			return d
		}
	}
	return nil
}

// Group is a chapter of the header.
type Group struct {
	Name   string // "CUDA_STREAM"
	Title  string
	Header string // that it stands in
	Line   int    // where it begins
	End    int    // where it ends
}

// Func is one exported symbol.
type Func struct {
	Symbol  string
	Go      string
	Group   string
	Params  []*Param
	Result  *Type
	Comment string // as in the header, with its markers

	Deprecated bool
	Since      string // the CUDA version that introduced it, "" when not known
	Number     int    // its place in the table both sides of cgo share

	Callbacks []*Decl // the function-pointer types its parameters take
	Doc       []string
}

// Inline is a function that the header itself defines.
type Inline struct {
	C     string
	Calls []string // the functions of the API that it calls, by C name
}

// Param is a parameter of a function or of a callback type.
type Param struct {
	C        string // "" where the header leaves it out
	Go       string
	Type     *Type
	Function string // a pointer to a function without a name: what the prototype says, such as "void (*)(void *)"
}

// Var is a variable that the library exports.
type Var struct {
	C    string
	Go   string
	Type *Type
}

// Alias is a second name: of a function (the plain name of a versioned one) or
// of a type.
type Alias struct {
	C      string
	Go     string
	Target string // C name
	GoRef  string // Go name of the target
	Func   bool
	Group  string
	Since  string
	Doc    []string

	// Newer is what the header itself maps the name to, where the name was
	// frozen at another target.
	Newer string
}

// DeclKind is the kind of a type declaration.
type DeclKind int

// The kinds of type declarations.
const (
	Enum       DeclKind = iota + 1
	Struct              // a record whose members lie side by side
	Union               // a record whose members overlap
	Handle              // a pointer to something only CUDA knows
	Scalar              // a number with a name
	Callback            // a pointer to a function CUDA calls
	Second              // a second name of a pointer, an array, or a type of another package
	Incomplete          // a record that no header defines: there are only pointers to it
)

var declKinds = [...]string{"", "enum", "struct", "union", "handle", "scalar", "callback", "second", "incomplete"}

func (k DeclKind) String() string { return declKinds[k] }

// Decl is a named type. A record inside a record is a Decl of its own, named
// after the path to it.
type Decl struct {
	Kind    DeclKind
	C       string // how C spells it: "CUstream", "struct cudaDeviceProp", "" for a nested record without name
	Go      string
	Tag     string // struct, union or enum tag; "" where there is none
	Comment string
	Doc     []string

	Size, Align int64    // on Linux on amd64
	Elsewhere   []Layout // Struct, Union: of systems with another layout
	ByPointer   string   // Struct, Union: why no function takes or returns one by value, "" where they do
	Signed      bool     // Enum: has negative values
	Enumerators []*Const // Enum
	Fields      []*Field // Struct, Union
	Underlying  *Type    // Scalar, Enum, Second
	Params      []*Param // Callback
	Result      *Type    // Callback
	Thread      string   // Callback: on which thread CUDA calls it
	GoAllowed   bool     // Callback: an exported Go function may be passed
	Inline      bool     // Callback: C has no name for it, a parameter spells it in place
	Error       bool     // Enum: the status type of the API
	Package     string   // the published package that has the type, "" for this one
	LeftOut     string   // why the package cannot have it, "" where it has
	Foreign     bool     // of a header that is not the row's own
	Nested      bool     // lies inside another record and has no C name of its own
	CPath       string   // Nested: a C expression of its type, or of the record it lies in unnamed; for proofs
}

// Field is a member of a record.
type Field struct {
	C       string // "" for an unnamed record inside a record
	Go      string
	Type    *Type
	Place         // on Linux on amd64
	Bits    int64 // of a bit field: its length, 0 for other members
	Comment string
	Doc     []string
}

// Past is the end of the bytes that a member lies in, the first of which is at Offset.
func (f *Field) Past() int64 {
	if f.Bits > 0 {
		return f.Offset + (f.Bit+f.Bits+7)/8
	}
	return f.Offset + f.Type.Size
}

// Const is an enumerator or a constant macro.
type Const struct {
	C       string
	Go      string
	Value   string // as a Go literal
	Type    *Type  // nil: untyped
	Comment string
	Doc     []string

	Text        string // of a status code: what it means, in a few words
	Unsupported bool   // a status code that says that something is not supported
}

// TypeKind is the kind of a type as it is used.
type TypeKind int

// The kinds of types.
const (
	Void    TypeKind = iota + 1
	Basic            // a number of C
	Named            // a Decl
	Pointer          // to Elem; to a Void it is a pointer to anything
	Array            // Len times Elem
)

// Type is a type as a parameter, field or result uses it.
type Type struct {
	Kind  TypeKind
	C     string // Basic, Named: as C spells it; Void: a name for it, or a record whose members are not known; Pointer: its name, of a handle of another system
	Go    string // Basic, Named: as Go spells it
	Const bool   // qualified const
	Elem  *Type
	Len   int64
	Size  int64
	Align int64
	Decl  *Decl // Named
	Enum  *Decl // Basic: the enum whose values it holds, where C says a number and Go the enum
	Fixed bool  // Basic: of this size on all systems, whatever C says
}

// Is tells whether t is the Decl kind k.
func (t *Type) Is(k DeclKind) bool { return t.Kind == Named && t.Decl != nil && t.Decl.Kind == k }

// Element is what t has once, or as an array of any depth.
func (t *Type) Element() *Type {
	for t.Kind == Array {
		t = t.Elem
	}
	return t
}

// Innermost is the named type that t is, or that its pointers and arrays lead to; nil if that is none.
func (t *Type) Innermost() *Type {
	for t != nil && t.Kind != Named {
		t = t.Elem
	}
	return t
}

// BareName is the name of a type in C without the keyword in front: "CUx" for "struct CUx".
func BareName(c string) string { return c[strings.LastIndexByte(c, ' ')+1:] }

// CDecl spells a declaration of name with type t in C. An empty name gives the
// type alone.
func (t *Type) CDecl(name string) string {
	c := ""
	if t.Const {
		c = "const "
	}
	switch t.Kind {
	case Void:
		if t.C != "" {
			return join(c+t.C, name)
		}
		return join(c+"void", name)
	case Pointer:
		if t.C != "" {
			return join(c+t.C, name)
		}
		if t.Const {
			return t.Elem.CDecl("*const " + name)
		}
		return t.Elem.CDecl("*" + name)
	case Array:
		if strings.HasPrefix(name, "*") {
			name = "(" + name + ")"
		}
		return t.Elem.CDecl(name + "[" + itoa(t.Len) + "]")
	case Named:
		if t.Decl != nil && t.Decl.Inline {
			return t.Decl.Result.CDecl("(*" + name + ")(" + params(t.Decl.Params, false) + ")")
		}
	}
	return join(c+t.C, name)
}

// Slot is the size of a place for an argument, and Slots the least number of them.
const (
	Slot  = 8
	Slots = 8
)

// Layout returns where the arguments of a call lie in memory, each at a multiple of Slot,
// where they end, and where the result lies, after at least Slots places. It is the same
// with and without cgo, and in a list of calls.
func (f *Func) Layout() (args []int64, end, result int64) {
	for _, p := range f.Params {
		args = append(args, end)
		end += (p.Type.Size + Slot - 1) / Slot * Slot
	}
	return args, end, max(end, Slots*Slot)
}

// tooLarge tells whether a call has more bytes than the tables for calls without cgo hold.
func (f *Func) tooLarge() bool {
	_, _, result := f.Layout()
	return result/Slot > math.MaxUint8 || f.Result.Size > math.MaxUint8
}

// Prototype spells the function's declaration in C.
func (f *Func) Prototype() string {
	return f.Result.CDecl(f.Symbol + "(" + params(f.Params, true) + ")")
}

// PointerTo spells the declaration of name as a pointer to the function.
func (f *Func) PointerTo(name string) string {
	return f.Result.CDecl("(*" + name + ")(" + params(f.Params, false) + ")")
}

// Prototype spells the callback type as C declares it.
func (d *Decl) Prototype() string {
	return d.Result.CDecl("(*" + d.C + ")(" + params(d.Params, true) + ")")
}

// PFN is a function-pointer type of cudaTypedefs.h: what a function looked like
// in the CUDA version that introduced that form.
type PFN struct {
	Func    string // "cuCtxCreate"
	Version int    // 11040
	Params  []*Param
	Result  *Type
}
