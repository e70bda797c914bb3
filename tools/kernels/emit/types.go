package emit

import (
	"fmt"
	"strings"

	"github.com/cudabind/cudabind/tools/kernels/model"
	"github.com/dave/jennifer/jen"
)

// goType writes a type.
func goType(g *model.Go) *jen.Statement {
	if g.Name == "" {
		return jen.Index(jen.Lit(int(g.Len))).Add(goType(g.Elem))
	}
	s := jen.Id(g.Name)
	if g.Package != "" {
		s = jen.Qual(g.Package, g.Name)
	}
	if g.Elem != nil {
		s = s.Types(goType(g.Elem))
	}
	if g.Object {
		s = jen.Op("*").Add(s)
	}
	return s
}

// comment writes a doc comment: its own sentences, then those of the source. A line that gofmt would take for a
// build constraint, and move to the head of the file, gets a backslash.
func comment(f *jen.File, own string, source ...string) {
	text := own
	if len(source) > 0 && source[0] != "" {
		text += "\n\n" + strings.Join(source, "\n")
	}
	for _, line := range strings.Split(text, "\n") {
		line = strings.ReplaceAll(strings.ToValidUTF8(line, "\ufffd"), "\ufeff", "") // Go takes a byte order mark at its begin alone
		if strings.HasPrefix(strings.TrimSpace(line), "+build") {
			line = `\` + strings.TrimSpace(line)
		}
		f.Comment(strings.TrimRight("// "+line, " "))
	}
}

// declare writes a struct, a union or an enum.
func declare(f *jen.File, t *model.Type) {
	what := "the " + t.Kind + " " + t.C
	if t.C == "" {
		what = article(t.Kind) + " " + t.Kind + " without a name"
	}
	comment(f, fmt.Sprintf("%s is %s at %s.", t.Go, what, t.At), t.Doc...)
	if t.Enum != nil {
		f.Type().Id(t.Go).Add(goType(t.Enum))
		f.Line()
		if len(t.Values) > 0 {
			f.Const().DefsFunc(func(g *jen.Group) {
				for _, v := range t.Values {
					g.Id(v.Go).Id(t.Go).Op("=").Id(v.Value)
				}
			})
		}
		f.Line()
		return
	}
	f.Type().Id(t.Go).StructFunc(func(g *jen.Group) {
		at := int64(0)
		for _, s := range t.Slots {
			pad(g, s.Offset-at)
			field := goType(s.Type)
			if !s.Embed {
				field = jen.Id(s.Name).Add(field)
			}
			if s.Comment != "" {
				field = field.Comment("// " + s.Comment)
			}
			g.Add(field)
			at = s.Offset + s.Type.Size
		}
		pad(g, t.Size-at)
	})
	f.Line()
	prove(f, t)
	members(f, t.Go, t)
	if t.View {
		view(f, t)
	}
}

func pad(g *jen.Group, n int64) {
	if n > 0 {
		g.Id("_").Index(jen.Lit(int(n))).Byte()
	}
}

// prove writes constants that do not compile unless Go lays the struct out as C++ does.
func prove(f *jen.File, t *model.Type) {
	zero := func() *jen.Statement { return jen.Id(t.Go).Values() }
	check := func(what string, of *jen.Statement, want int64) *jen.Statement {
		return jen.Id("_").Op("=").Op("-").Parens(jen.Qual("unsafe", what).Call(of).Op("^").Lit(int(want)))
	}
	f.Const().DefsFunc(func(g *jen.Group) {
		g.Add(check("Sizeof", zero(), t.Size))
		for _, s := range t.Slots {
			if s.Offset > 0 { // Go begins with what is at 0, and staticcheck reports ^ 0
				g.Add(check("Offsetof", zero().Dot(s.Name), s.Offset))
			}
		}
	})
	f.Line()
}

// members writes the methods of a type, which is t or its form for the host.
func members(f *jen.File, receiver string, t *model.Type) {
	for _, s := range t.Slots {
		for _, m := range s.Members {
			member(f, receiver, s, m)
		}
	}
}

// member writes methods that get and set a value inside of storage.
func member(f *jen.File, receiver string, s model.Slot, m model.Member) {
	from := jen.Id("v").Dot(s.Name).Index(jen.Lit(int(m.Offset)), jen.Empty())
	get, set := "kernelsGet", "kernelsSet"
	f.Comment(fmt.Sprintf("// %s is %s.", m.Name, m.Kind))
	f.Func().Params(jen.Id("v").Op("*").Id(receiver)).Id(m.Name).Params().Params(goType(m.Type)).BlockFunc(func(g *jen.Group) {
		switch {
		case m.Bits == 0:
			g.Return(jen.Id(get).Types(goType(m.Type)).Call(from))
		case m.Signed:
			shift := int(64 - m.Bits)
			g.Return(goType(m.Type).Call(jen.Int64().Call(jen.Id("kernelsBits").Call(from, jen.Lit(int(m.Bit)), jen.Lit(int(m.Bits))).Op("<<").Lit(shift)).Op(">>").Lit(shift)))
		default:
			g.Return(goType(m.Type).Call(jen.Id("kernelsBits").Call(from, jen.Lit(int(m.Bit)), jen.Lit(int(m.Bits)))))
		}
	})
	f.Line()
	f.Comment(fmt.Sprintf("// Set%s sets %s.", m.Name, m.Name))
	f.Func().Params(jen.Id("v").Op("*").Id(receiver)).Id("Set" + m.Name).Params(jen.Id("x").Add(goType(m.Type))).BlockFunc(func(g *jen.Group) {
		if m.Bits == 0 {
			g.Id(set).Call(from, jen.Id("x"))
			return
		}
		g.Id("kernelsSetBits").Call(from, jen.Lit(int(m.Bit)), jen.Lit(int(m.Bits)), jen.Uint64().Call(jen.Id("x")))
	})
	f.Line()
}

// helpers writes the functions that members call, into the first file of the package that needs them.
func helpers(f *jen.File, u *model.Unit) {
	if u.Copies {
		f.Comment("// kernelsGet returns the value at the beginning of b.")
		f.Func().Id("kernelsGet").Types(jen.Id("T").Any()).Params(jen.Id("b").Index().Byte()).Params(jen.Id("x").Id("T")).Block(
			jen.Copy(bytesOf(), jen.Id("b")), jen.Return(jen.Id("x")))
		f.Line()
		f.Comment("// kernelsSet sets it.")
		f.Func().Id("kernelsSet").Types(jen.Id("T").Any()).Params(jen.Id("b").Index().Byte(), jen.Id("x").Id("T")).Block(
			jen.Copy(jen.Id("b"), bytesOf()))
		f.Line()
	}
	if u.Bits {
		byteAt := func() *jen.Statement {
			return jen.Id("b").Index(jen.Parens(jen.Id("at").Op("+").Id("i")).Op("/").Lit(8))
		}
		bitAt := func() *jen.Statement { return jen.Parens(jen.Parens(jen.Id("at").Op("+").Id("i")).Op("%").Lit(8)) }
		f.Comment("// kernelsBits returns n bits of b, from the bit at on.")
		f.Func().Id("kernelsBits").Params(jen.Id("b").Index().Byte(), jen.List(jen.Id("at"), jen.Id("n")).Int()).Params(jen.Id("x").Uint64()).Block(
			jen.For(jen.Id("i").Op(":=").Range().Id("n")).Block(
				jen.Id("x").Op("|=").Uint64().Call(byteAt().Op(">>").Add(bitAt()).Op("&").Lit(1)).Op("<<").Id("i")),
			jen.Return(jen.Id("x")))
		f.Line()
		f.Comment("// kernelsSetBits sets them.")
		f.Func().Id("kernelsSetBits").Params(jen.Id("b").Index().Byte(), jen.List(jen.Id("at"), jen.Id("n")).Int(), jen.Id("x").Uint64()).Block(
			jen.For(jen.Id("i").Op(":=").Range().Id("n")).Block(
				byteAt().Op("=").Add(byteAt()).Op("&^").Parens(jen.Lit(1).Op("<<").Add(bitAt())).Op("|").Byte().Call(jen.Id("x").Op(">>").Id("i").Op("&").Lit(1)).Op("<<").Add(bitAt())))
		f.Line()
	}
}

// bytesOf is the memory of x.
func bytesOf() *jen.Statement {
	return jen.Qual("unsafe", "Slice").Call(jen.Parens(jen.Op("*").Byte()).Parens(jen.Qual("unsafe", "Pointer").Call(jen.Op("&").Id("x"))), jen.Qual("unsafe", "Sizeof").Call(jen.Id("x")))
}

// view writes the form for the host of a struct with pointers, whose pointers are memory.
func view(f *jen.File, t *model.Type) {
	comment(f, fmt.Sprintf("%sArg is %s as an argument: its pointers are memory, which a launch retains.", t.Go, t.Go))
	f.Type().Id(t.Go + "Arg").StructFunc(func(g *jen.Group) {
		for _, s := range t.Slots {
			name := jen.Id(s.Name)
			if s.Embed && s.Pass != model.View {
				name = jen.Empty()
			}
			g.Add(name).Add(viewType(s))
		}
	})
	f.Line()
	members(f, t.Go+"Arg", t)
	f.Comment("// device returns the struct for the device, and uses with the memory in it.")
	f.Func().Params(jen.Id("a").Op("*").Id(t.Go+"Arg")).Id("device").Params(jen.Id("uses").Index().Qual(model.Safe, "Arg")).
		Params(jen.Id("d").Id(t.Go), jen.Id("_").Index().Qual(model.Safe, "Arg")).BlockFunc(func(g *jen.Group) {
		for _, s := range t.Slots {
			from, to := jen.Id("a").Dot(s.Name), jen.Id("d").Dot(s.Name)
			switch s.Pass {
			case model.Pointer:
				g.List(to, jen.Id("uses")).Op("=").Qual(model.Safe, "PointerAddress").Call(from, jen.Id("uses"))
			case model.VoidPointer:
				g.List(to, jen.Id("uses")).Op("=").Qual(model.Safe, "VoidPointerAddress").Call(from, jen.Id("uses"))
			case model.View:
				g.List(to, jen.Id("uses")).Op("=").Add(from).Dot("device").Call(jen.Id("uses"))
			case model.Object:
				g.List(to, jen.Id("uses")).Op("=").List(jen.Uint64().Call(from.Clone().Dot("Raw").Call()), jen.Append(jen.Id("uses"), from.Clone().Dot("Arg").Call()))
			default:
				g.Add(to).Op("=").Add(from)
			}
		}
		g.Return(jen.Id("d"), jen.Id("uses"))
	})
	f.Line()
}

func viewType(s model.Slot) *jen.Statement {
	switch s.Pass {
	case model.Pointer:
		return jen.Qual(model.Safe, "Pointer").Types(goType(s.Elem))
	case model.VoidPointer:
		return jen.Qual(model.Safe, "VoidPointer")
	case model.View:
		return jen.Id(s.Type.Name + "Arg")
	case model.Object:
		return goType(s.Elem)
	}
	return goType(s.Type)
}

func article(s string) string {
	if strings.ContainsAny(s[:1], "AEIOUe") {
		return "an"
	}
	return "a"
}
