package emit

import (
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/cudabind/cudabind/gen/model"
)

// types prints handles, numbers and callbacks, and second names of types.
func (e *emitter) types() error {
	f := e.file()
	for _, d := range e.api.Decls {
		switch d.Kind {
		case model.Handle, model.Callback:
			docs(f, d.Doc)
			f.Type().Id(d.Go).Uintptr()
		case model.Scalar:
			docs(f, d.Doc)
			f.Type().Id(d.Go).Id(d.Underlying.Go)
		case model.Second:
			docs(f, d.Doc)
			f.Type().Id(d.Go).Op("=").Add(goType(d.Underlying))
		}
	}
	for _, al := range e.api.Aliases {
		if !al.Func {
			docs(f, al.Doc)
			f.Type().Id(al.Go).Op("=").Id(al.GoRef)
		}
	}
	return e.save("ztypes.go", f)
}

// enums prints enumerations, their values and their names.
func (e *emitter) enums() error {
	f := e.file()
	for _, d := range e.api.Decls {
		if d.Kind != model.Enum {
			continue
		}
		docs(f, d.Doc)
		f.Type().Id(d.Go).Id(d.Underlying.Go)
		if len(d.Enumerators) == 0 {
			continue
		}
		f.Const().DefsFunc(func(g *jen.Group) {
			for _, c := range d.Enumerators {
				groupDocs(g, c.Doc)
				g.Id(c.Go).Id(d.Go).Op("=").Id(c.Value)
			}
		})
		stringer(f, d)
	}
	return e.save("zenums.go", f)
}

// stringer prints the String method of an enumeration. Of values with several
// names the first is its name.
func stringer(f *jen.File, d *model.Decl) {
	f.Commentf("// String is the C name of the value, or its number.")
	f.Func().Params(jen.Id("v").Id(d.Go)).Id("String").Params().String().Block(
		jen.Switch(jen.Id("v")).BlockFunc(func(g *jen.Group) {
			seen := map[string]bool{}
			for _, c := range d.Enumerators {
				if !seen[c.Value] {
					seen[c.Value] = true
					g.Case(jen.Id(c.Go)).Block(jen.Return(jen.Lit(c.C)))
				}
			}
		}),
		jen.Return(jen.Lit(d.Go+"(").Op("+").Qual("strconv", "FormatInt").Call(jen.Int64().Call(jen.Id("v")), jen.Lit(10)).Op("+").Lit(")")),
	)
}

// records prints structs and unions.
func (e *emitter) records() error {
	f := e.file()
	hasBits := false
	for _, d := range e.api.Decls {
		switch d.Kind {
		case model.Struct:
			docs(f, d.Doc)
			f.Type().Id(d.Go).StructFunc(func(g *jen.Group) { structFields(g, d) })
		case model.Union:
			docs(f, d.Doc)
			f.Type().Id(d.Go).Struct(
				jen.Id("_").Qual("structs", "HostLayout"),
				jen.Id("data").Add(blob(d)),
			)
		default:
			continue
		}
		accessors(f, d, d, 0, d.Kind == model.Union)
		hasBits = hasBits || slices.ContainsFunc(d.Fields, func(m *model.Field) bool { return m.Bits > 0 })
		if d.Align > 8 {
			aligned(f, d)
		}
	}
	if hasBits {
		bitHelpers(f)
	}
	return e.save("zstructs.go", f)
}

// structFields prints members at their offsets, with the gaps written out. A
// record that is aligned more strictly than its members begins with an empty
// array that is aligned so too.
func structFields(g *jen.Group, d *model.Decl) {
	g.Id("_").Qual("structs", "HostLayout")
	natural := int64(1)
	for _, m := range d.Fields {
		if m.Bits == 0 {
			natural = max(natural, m.Type.Align)
		}
	}
	if min(natural, 8) < min(d.Align, 8) {
		g.Id("_").Index(jen.Lit(0)).Add(word(d.Align))
	}
	pad := func(n int64) {
		if n > 0 {
			g.Id("_").Index(jen.Lit(int(n))).Byte()
		}
	}
	var at int64
	for i, m := range d.Fields {
		if m.Bits > 0 {
			if i == 0 || d.Fields[i-1].Bits == 0 {
				pad(m.First() - at)
				at = bitStorage(g, d.Fields[i:])
			}
			continue
		}
		pad(m.Offset - at)
		groupDocs(g, m.Doc)
		g.Id(m.Go).Add(goType(m.Type))
		at = m.Offset + m.Type.Size
	}
	pad(d.Size - at)
}

// blob is memory of a union's size and alignment.
func blob(d *model.Decl) *jen.Statement {
	return jen.Index(jen.Lit(int(d.Size / min(d.Align, 8)))).Add(word(d.Align))
}

// word is a number of an alignment, as far as Go has one.
func word(align int64) *jen.Statement {
	switch align {
	case 1:
		return jen.Byte()
	case 2:
		return jen.Uint16()
	case 4:
		return jen.Uint32()
	}
	return jen.Uint64()
}

// accessors prints a method for each member that Go has no field for: those of
// a union, and those of an unnamed record inside d.
//
//	func (u *CUstreamBatchMemOpParams) WaitValue() *CUstreamMemOpWaitValueParams {
//		return (*CUstreamMemOpWaitValueParams)(unsafe.Add(unsafe.Pointer(u), 0))
//	}
func accessors(f *jen.File, d, in *model.Decl, base int64, overlaid bool) {
	for _, m := range in.Fields {
		at := base + m.Offset
		if m.C == "" {
			accessors(f, d, m.Type.Decl, at, true)
			continue
		}
		if m.Bits > 0 {
			bitField(f, d, m, 8*at+m.Bit)
			continue
		}
		if !overlaid {
			continue
		}
		f.Commentf("// %s is the member %s of the union, where it lies in u.", m.Go, m.C)
		if len(m.Doc) > 0 {
			f.Comment("//")
			docs(f, m.Doc)
		}
		f.Func().Params(jen.Id("u").Op("*").Id(d.Go)).Id(m.Go).Params().Op("*").Add(goType(m.Type)).Block(
			jen.Return(jen.Parens(jen.Op("*").Add(goType(m.Type))).Call(place(at))),
		)
	}
}

// place is the address at bytes after the receiver's.
func place(at int64) *jen.Statement {
	start := jen.Qual("unsafe", "Pointer").Call(jen.Id("u"))
	if at == 0 {
		return start
	}
	return jen.Qual("unsafe", "Add").Call(start, jen.Lit(int(at)))
}

// aligned prints an allocator for a type whose alignment Go cannot express:
//
//	func NewCUtensorMap() *CUtensorMap {
//		mem := make([]byte, 128+127)
//		return (*CUtensorMap)(unsafe.Pointer(&mem[-uintptr(unsafe.Pointer(&mem[0]))%128]))
//	}
func aligned(f *jen.File, d *model.Decl) {
	align := jen.Lit(int(d.Align))
	f.Commentf("// New%s allocates a zero %s at a multiple of %d bytes, as C requires and Go does not by itself.", d.Go, d.Go, d.Align)
	f.Func().Id("New"+d.Go).Params().Op("*").Id(d.Go).Block(
		jen.Id("mem").Op(":=").Make(jen.Index().Byte(), jen.Lit(int(d.Size+d.Align-1))),
		jen.Id("gap").Op(":=").Op("-").Uintptr().Call(jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id("mem").Index(jen.Lit(0)))).Op("%").Add(align),
		jen.Return(jen.Parens(jen.Op("*").Id(d.Go)).Call(jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id("mem").Index(jen.Id("gap"))))),
	)
}

// consts prints the constants that belong to no enumeration: those without a
// type first, since a group mixes the two badly.
func (e *emitter) consts() error {
	f := e.file()
	for _, typed := range []bool{false, true} {
		var defs []jen.Code
		for _, c := range e.api.Consts {
			if (c.Type != nil) != typed {
				continue
			}
			for _, line := range c.Doc {
				defs = append(defs, jen.Comment(comment(line)))
			}
			def := jen.Id(c.Go)
			if typed {
				def.Add(goType(c.Type))
			}
			defs = append(defs, def.Op("=").Id(c.Value))
		}
		if len(defs) > 0 {
			f.Const().Defs(defs...)
		}
	}
	return e.save("zconsts.go", f)
}

// table prints the numbers of the functions, and the symbol and the first version of each.
func (e *emitter) table() error {
	f := e.file()
	f.Comment("// The functions' numbers: both sides of the calls count the same way.")
	f.Const().DefsFunc(func(g *jen.Group) {
		for i, fn := range e.api.Funcs {
			s := g.Id("sym" + fn.Go)
			if i == 0 {
				s.Uint32().Op("=").Iota()
			}
		}
	})
	f.Comment("// symbols holds what the library exports each function as, and the CUDA version that introduced it.")
	f.Var().Id("symbols").Op("=").Index(jen.Op("...")).Struct(jen.List(jen.Id("name"), jen.Id("since")).String()).ValuesFunc(func(g *jen.Group) {
		for _, fn := range e.api.Funcs {
			g.Line().Id("sym"+fn.Go).Op(":").Values(jen.Lit(fn.Symbol), jen.Lit(strings.TrimPrefix(fn.Since, "<=")))
		}
		g.Line()
	})
	f.Comment("// Functions is how many functions of the library this package binds.")
	f.Const().Id("Functions").Op("=").Lit(len(e.api.Funcs))
	return e.save("ztable.go", f)
}

func groupDocs(g *jen.Group, lines []string) {
	for _, line := range lines {
		g.Comment(comment(line))
	}
}
