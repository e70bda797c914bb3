package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/tools/kernels/read"
)

// Import paths of the packages that generated code uses.
const (
	Safe    = "github.com/cudabind/cudabind/cuda/safe"
	Dtype   = "github.com/cudabind/cudabind/cuda/safe/dtype"
	Driver  = "github.com/cudabind/cudabind/cuda/generated/driver"
	Vectors = "github.com/cudabind/cudabind/cuda/vector"
)

// known are CUDA's types that have a Go type already.
var known = knownTypes()

func knownTypes() map[string]Go {
	all := map[string]Go{
		"__half": {Name: "Float16", Package: Dtype, Size: 2, Align: 2}, "__nv_bfloat16": {Name: "BFloat16", Package: Dtype, Size: 2, Align: 2},
		"__nv_fp8_e4m3": {Name: "Float8E4M3", Package: Dtype, Size: 1, Align: 1}, "__nv_fp8_e5m2": {Name: "Float8E5M2", Package: Dtype, Size: 1, Align: 1},
		"CUtensorMap_st": {Name: "CUtensorMap", Package: Driver, Size: 128, Align: 8},
		"dim3":           {Name: "Dim3", Package: Vectors, Size: 12, Align: 4},
	}
	for _, two := range []string{"__half", "__nv_bfloat16"} {
		elem := all[two]
		all[two+"2"] = Go{Elem: &elem, Len: 2, Size: 4, Align: 2}
	}
	for _, name := range []string{"cuFloatComplex", "cuComplex", "complex<float>"} {
		all[name] = Go{Name: "complex64", Size: 8, Align: 4}
	}
	for _, name := range []string{"cuDoubleComplex", "complex<double>"} {
		all[name] = Go{Name: "complex128", Size: 16, Align: 8}
	}
	for name, size := range map[string]int64{"Char": 1, "UChar": 1, "Short": 2, "UShort": 2, "Int": 4, "UInt": 4, "LongLong": 8, "ULongLong": 8, "Float": 4, "Double": 8} {
		for n := int64(1); n <= 4; n++ {
			all[fmt.Sprint(strings.ToLower(name), n)] = Go{Name: fmt.Sprint(name, n), Package: Vectors, Size: size * n, Align: size}
		}
	}
	return all
}

// object tells numbers for which a launch takes a pointer to an object of package safe, which it retains.
func object(t *read.Type) bool { return t.Handle == read.Texture || t.Handle == read.Surface }

func (p *Package) knownAs(t *read.Type) (Go, bool) {
	for _, name := range []string{t.Typedef, t.Name} {
		if g, ok := known[name]; ok && g.Size == t.Size && p.sources[t.At.File] == nil {
			return g, true
		}
	}
	return Go{}, false
}

// goType returns the Go type of values of t in memory.
func (p *Package) goType(t *read.Type) (*Go, error) {
	if g, ok := p.knownAs(t); ok {
		return &g, nil
	}
	switch t.Kind {
	case read.Number:
		return p.number(t)
	case read.Enum, read.Struct, read.Union:
		if t.Size == 0 {
			return nil, fmt.Errorf("%s is declared and not defined: take a pointer to it", t.Name)
		}
		if t.Virtual {
			return nil, fmt.Errorf("%s has virtual functions or bases, whose tables exist on the device alone: take a pointer to it", t.Name)
		}
		n, err := p.named(t)
		return &Go{Name: n.Go, Size: t.Size, Align: n.Align}, err
	case read.Pointer:
		if t.Elem.Kind == read.Function {
			return &Go{Name: "uint64", Size: 8, Align: 8}, nil
		}
		elem := &Go{Name: "byte"}
		if !opaque(t.Elem) {
			in, err := p.goType(t.Elem)
			if err != nil {
				return nil, err
			}
			elem = in
		}
		return &Go{Name: "Address", Package: Safe, Elem: elem, Size: 8, Align: 8}, nil
	case read.Array:
		elem, err := p.goType(t.Elem)
		if err != nil {
			return nil, err
		}
		return &Go{Elem: elem, Len: t.Len, Size: elem.Size * t.Len, Align: elem.Align}, nil
	}
	return nil, fmt.Errorf("Go has no type for %s", CName(t))
}

// opaque tells types that a pointer's user cannot look into.
func opaque(t *read.Type) bool {
	return slices.Contains([]read.Kind{read.Void, read.Function, read.Other}, t.Kind) || t.Size == 0 || t.Virtual
}

// number returns the type of a number. A bool in memory is a uint8: the device may have written
// what is no bool of Go.
func (p *Package) number(t *read.Type) (*Go, error) {
	if t.Name == "long" || t.Name == "unsigned long" && t.Typedef != "size_t" || t.Name == "long int" || t.Name == "long unsigned int" && t.Typedef != "size_t" {
		p.unit.Long = true
	}
	g := &Go{Size: t.Size, Align: t.Size}
	switch {
	case t.Size == 16 && !t.Float:
		return &Go{Elem: &Go{Name: "uint64", Size: 8, Align: 8}, Len: 2, Size: 16, Align: 8}, nil
	case t.Size == 16: // the debug information calls it double
		return nil, fmt.Errorf("Go has no number for long double, of 16 bytes")
	case !slices.Contains([]int64{1, 2, 4, 8}, t.Size) || t.Float && t.Size < 4:
		return nil, fmt.Errorf("Go has no number of %d bytes for %s", t.Size, CName(t))
	case t.Float:
		g.Name = fmt.Sprint("float", t.Size*8)
	case t.Signed && t.Name != "char":
		g.Name = fmt.Sprint("int", t.Size*8)
	default:
		g.Name = fmt.Sprint("uint", t.Size*8)
	}
	return g, nil
}

// pointers tells whether values of t hold addresses or objects that a launch has to know.
func (p *Package) pointers(t *read.Type) bool {
	if _, ok := p.knownAs(t); ok {
		return false
	}
	switch t.Kind {
	case read.Pointer:
		return t.Elem.Kind != read.Function
	case read.Number:
		return object(t)
	case read.Struct:
		return slices.ContainsFunc(t.Fields, func(f read.Field) bool { return p.pointers(f.Type) })
	}
	return false
}

// CName is a type as C++ writes it, as far as the debug information tells.
func CName(t *read.Type) string {
	c := ""
	if t.Const {
		c = "const "
	}
	switch {
	case t.Typedef != "":
		return c + t.Typedef
	case t.Kind == read.Pointer && t.Elem.Kind == read.Function:
		return "(*)()"
	case t.Kind == read.Pointer:
		s := " *"
		if t.Reference {
			s = " &"
		} else if t.Elem.Kind == read.Pointer && t.Elem.Elem.Kind != read.Function && t.Elem.Typedef == "" {
			s = "*"
		}
		if s = CName(t.Elem) + s; t.Const {
			s += "const"
		}
		return s
	case t.Kind == read.Void:
		return c + "void"
	case t.Kind == read.Array:
		return fmt.Sprintf("%s[%d]", CName(t.Elem), t.Len)
	}
	return c + t.Name
}
