// Package read reads the kernels of a cubin, its variables and their types, from the debug
// information that NVRTC writes with its option -G.
package read

import (
	"cmp"
	"strings"
)

// A File is what a source of CUDA C++ declares.
type File struct {
	Kernels   []*Kernel
	Variables []*Variable
}

// A Kernel is a __global__ function, or an instance of a template of one.
type Kernel struct {
	Symbol     string // in the cubin
	Name       string // in the source, with namespaces and template arguments: "geo::scale<float,4>"
	At         Position
	Parameters []Parameter
	MaxThreads int    // of a block, by __launch_bounds__; 0 without
	Cluster    [3]int // blocks, by __cluster_dims__; 0 without
	Long       bool   // the symbol tells of C++'s long, or of size_t, and is another one on Windows
	LongName   bool   // so does the name
}

// A Parameter is one of a kernel's. Its name may be "".
type Parameter struct {
	Name string
	Type *Type
}

// A Variable is a __device__, __constant__ or __managed__ variable at file scope.
type Variable struct {
	Symbol string
	Name   string // in the source, with namespaces
	Space  Space
	At     Position
	Type   *Type
}

// A Space is where a variable is.
type Space int

const (
	Device Space = iota
	Constant
	Managed
)

func (s Space) String() string { return [...]string{"__device__", "__constant__", "__managed__"}[s] }

// A Position is where something is declared; Line is 0 if the compiler does not tell.
type Position struct {
	File string
	Line int
}

func (p Position) compare(q Position) int {
	return cmp.Or(strings.Compare(p.File, q.File), p.Line-q.Line)
}

// A Kind is a kind of types of C++.
type Kind int

const (
	Number   Kind = iota // also bool and characters
	Enum                 // with Values
	Struct               // also classes, with Fields
	Union                // with Fields
	Pointer              // to Elem, which is Void for void *
	Array                // of Len values of Elem
	Function             // what a pointer to a function points to
	Void
	Other // such as pointers to members: Name says what
)

// A Handle is what a number of CUDA's stands for.
type Handle string

const (
	Texture   Handle = "Texture"
	Surface   Handle = "Surface"
	Condition Handle = "Condition"
)

// A Type is a type of C++.
type Type struct {
	Kind    Kind
	Name    string // without namespaces, which NVRTC 13 does not tell; "" without one
	Typedef string // by which it was declared: one of CUDA's handles or size_t, or else the program's
	Handle  Handle // of numbers; "" if it is none
	Size    int64  // in bytes; 0 if it is declared and not defined

	Float, Signed, Bool bool // of numbers; Signed also of enums
	Const               bool
	Reference           bool // of pointers
	Virtual             bool // has virtual functions or bases
	Elem                *Type
	Len                 int64
	Fields              []Field
	Values              []Value
	At                  Position
}

// A Field is a member or a base of a struct or union.
type Field struct {
	Name      string // "" of unnamed members and bases
	Type      *Type
	Offset    int64 // in bytes
	Base      bool
	Bit, Bits int64 // of bit-fields: the first bit from Offset on, and their number
}

// A Value is an enumerator.
type Value struct {
	Name  string
	Value int64
}

// Relocate gives each position the file that name returns for it.
func (f *File) Relocate(name func(file string) string) {
	seen := map[*Type]bool{}
	var visit func(t *Type)
	visit = func(t *Type) {
		if t == nil || seen[t] {
			return
		}
		seen[t] = true
		t.At.File = name(t.At.File)
		visit(t.Elem)
		for _, m := range t.Fields {
			visit(m.Type)
		}
	}
	for _, k := range f.Kernels {
		k.At.File = name(k.At.File)
		for _, p := range k.Parameters {
			visit(p.Type)
		}
	}
	for _, v := range f.Variables {
		v.At.File = name(v.At.File)
		visit(v.Type)
	}
}
