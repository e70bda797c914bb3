// Package model decides which Go a file of CUDA C++ becomes: the names, the types and how each
// parameter of a kernel is passed. It knows nothing of how types are read or code is written.
package model

import "github.com/cudabind/cudabind/tools/kernels/read"

// A Unit is the Go file of one source.
type Unit struct {
	Source    string // the source's name without its folder
	Go        string // the type with the kernels, "Vector" for vector.cu
	Kernels   []*Kernel
	Variables []*Variable
	Types     []*Type // those that no unit before declares
	Long      bool    // a type has another size on Windows, or a symbol another name
	Bits      bool    // this unit declares the functions for bit-fields
	Copies    bool    // this unit declares the functions for unions and packed fields
}

// Expressions are the names by which the compiler must know kernels and variables.
func (u *Unit) Expressions() (all []string) {
	for _, k := range u.Kernels {
		if k.Expression != "" {
			all = append(all, k.Expression)
		}
	}
	for _, v := range u.Variables {
		if v.Expression != "" {
			all = append(all, v.Expression)
		}
	}
	return all
}

// A Kernel is a typed kernel.
type Kernel struct {
	Go         string
	Symbol     string // in machine code
	Expression string // by which package compile finds it in a source; "" to use Symbol
	Signature  string // in C++
	Doc        []string
	Line       int
	Arguments  []Argument
	ReadOnly   []string // names of arguments that are pointers to const
	MaxThreads int
	Cluster    [3]int
}

// A Pass is how an argument is passed to a kernel.
type Pass int

const (
	Value       Pass = iota // Val
	ByRef                   // Ref: values of more than 16 bytes
	Pointer                 // PointerArg
	VoidPointer             // VoidPointerArg
	Object                  // a texture or surface
	View                    // a struct with pointers, of which the caller has the host's form
)

// An Argument is a parameter of a kernel.
type Argument struct {
	Name string
	Size int64
	Type *Go // of the function's parameter; of a View, the struct's in device memory
	Pass Pass
	Elem *Go // what a Pointer points to
}

// A Go is a type of Go.
type Go struct {
	Name string // "float32", or of Package
	// Package is an import path, or "" for built-in types and those of the unit.
	Package string
	Len     int64 // of an array of Elem, if Elem is not nil and Name is ""
	Elem    *Go   // also the argument of a generic type
	Object  bool  // a pointer to Name
	Size    int64
	Align   int64
}

// A Variable is a variable at file scope.
type Variable struct {
	Go         string
	Symbol     string
	Expression string // as of kernels
	Name       string // in C++
	What       string // "__constant__" and so on
	Doc        []string
	Elem       *Go
	Len        int64
}

// A Type is a struct, a union or an enum.
type Type struct {
	Go     string
	Kind   string // "struct", "union" or "enum"
	C      string
	At     string // where it is declared, without its folder
	Doc    []string
	Size   int64
	Align  int64
	Enum   *Go // the underlying type of an enum, else nil
	Values []Constant
	Slots  []Slot
	View   bool // it has a form for the host

	err  error
	done bool
	of   *read.Type
	unit *Unit // which declares it
}

// A Constant is an enumerator.
type Constant struct{ Go, Value string }

// A Slot is a field of the Go struct.
type Slot struct {
	Name    string
	Type    *Go
	Offset  int64
	Embed   bool
	Comment string
	Members []Member // of storage that no Go field can describe
	Pass    Pass     // in the form for the host
	Elem    *Go      // of a pointer
}

// A Member is a value inside of storage.
type Member struct {
	Name      string
	Type      *Go
	Kind      string // "a bit-field", "a member of a union" or "a packed field"
	Offset    int64  // in the storage
	Bit, Bits int64
	Signed    bool
}
