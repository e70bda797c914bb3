package emit

import (
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
		if d.Align > 8 {
			aligned(f, d)
		}
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
		natural = max(natural, m.Type.Align)
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
	for _, m := range d.Fields {
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

// place is the address at bytes behind the receiver's.
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
				def.Id(c.Type.Go)
			}
			defs = append(defs, def.Op("=").Id(c.Value))
		}
		if len(defs) > 0 {
			f.Const().Defs(defs...)
		}
	}
	return e.save("zconsts.go", f)
}

// status prints the status type's text and the errors made of it.
func (e *emitter) status() error {
	f := e.file()
	for _, d := range e.api.Decls {
		if d.Kind == model.Enum && d.Error {
			e.statusType(f, d)
		}
	}
	return e.save("zstatus.go", f)
}

func (e *emitter) statusType(f *jen.File, d *model.Decl) {
	f.Comment("// Error is the C name of the code and what it means.")
	f.Func().Params(jen.Id("v").Id(d.Go)).Id("Error").Params().String().Block(
		jen.If(jen.Id("text").Op(":=").Id("statusText").Call(jen.Id("v")), jen.Id("text").Op("!=").Lit("")).Block(
			jen.Return(jen.Id("v").Dot("String").Call().Op("+").Lit(": ").Op("+").Id("text")),
		),
		jen.Return(jen.Id("v").Dot("String").Call()),
	)
	var unsupported []jen.Code
	var text, boxed []*model.Const
	seen := map[string]bool{}
	for _, c := range d.Enumerators {
		if seen[c.Value] {
			continue
		}
		seen[c.Value] = true
		if c.Unsupported {
			unsupported = append(unsupported, jen.Id(c.Go))
		}
		if c.Text != "" {
			text = append(text, c)
		}
		if c.Value != "0" {
			boxed = append(boxed, c)
		}
	}
	if len(unsupported) > 0 {
		f.Comment("// Is makes the codes that say that something is not supported match [errors.ErrUnsupported].")
		f.Func().Params(jen.Id("v").Id(d.Go)).Id("Is").Params(jen.Id("target").Error()).Bool().Block(
			jen.If(jen.Id("target").Op("!=").Qual("errors", "ErrUnsupported")).Block(jen.Return(jen.False())),
			jen.Switch(jen.Id("v")).Block(
				jen.Case(unsupported...).Block(jen.Return(jen.True())),
			),
			jen.Return(jen.False()),
		)
	}
	f.Func().Id("statusText").Params(jen.Id("v").Id(d.Go)).String().Block(
		jen.Switch(jen.Id("v")).BlockFunc(func(g *jen.Group) {
			for _, c := range text {
				g.Case(jen.Id(c.Go)).Block(jen.Return(jen.Lit(c.Text)))
			}
		}),
		jen.Return(jen.Lit("")),
	)
	f.Comment("// boxed holds each code as an error, so that returning one allocates nothing.")
	f.Var().Id("boxed").Op("=").Index(jen.Op("...")).Error().ValuesFunc(func(g *jen.Group) {
		for _, c := range boxed {
			g.Line().Id(c.Go).Op(":").Id(c.Go)
		}
		g.Line()
	})
	f.Comment("// status is a code as an error: nil for success.")
	f.Func().Id("status").Params(jen.Id("v").Id(d.Go)).Error().Block(
		jen.If(jen.Id("v").Op("==").Lit(0)).Block(jen.Return(jen.Nil())),
		jen.If(jen.Uint64().Call(jen.Id("v")).Op("<").Uint64().Call(jen.Len(jen.Id("boxed"))).Op("&&").Id("boxed").Index(jen.Id("v")).Op("!=").Nil()).Block(
			jen.Return(jen.Id("boxed").Index(jen.Id("v"))),
		),
		jen.Return(jen.Id("v")),
	)
}

// table prints the numbers of the functions and what is known of each.
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
