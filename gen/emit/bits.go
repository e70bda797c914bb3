package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/cudabind/cudabind/gen/model"
)

// storage prints the bytes of the members that fields begins with and that are apart. It
// returns where they end. They have a name, since Go need not copy fields without one.
func storage(g *jen.Group, d *model.Decl, fields []*model.Field) (end int64) {
	for _, m := range fields {
		if !d.Apart(m) {
			break
		}
		end = max(end, m.Past())
	}
	g.Id(fmt.Sprint("bits", fields[0].Offset)).Index(jen.Lit(int(end - fields[0].Offset))).Byte()
	return end
}

// bitField prints how to read and write a bit field of d:
//
//	func (u *CUptiThing) Valid() uint32 { return uint32(bits(unsafe.Pointer(u), 64, 1)) }
//
//	func (u *CUptiThing) SetValid(v uint32) { setBits(unsafe.Pointer(u), 64, 1, uint64(v)) }
func bitField(f *jen.File, d *model.Decl, m *model.Field) {
	where := []jen.Code{jen.Qual("unsafe", "Pointer").Call(jen.Id("u")), jen.Lit(int(8*m.Offset + m.Bit)), jen.Lit(int(m.Bits))}
	read, written := jen.Id("bits").Call(where...), jen.Uint64().Call(jen.Id("v"))
	switch {
	case isBool(m.Type):
		read, written = read.Op("!=").Lit(0), jen.Id("bit").Call(jen.Bool().Call(jen.Id("v")))
	case signed(m.Type):
		read = jen.Int64().Call(read.Op("<<").Lit(int(64 - m.Bits))).Op(">>").Lit(int(64 - m.Bits))
	}
	value := goType(m.Type).Call(read)
	f.Commentf("// %s is the bit field %s, of %d bits.", m.Go, m.C, m.Bits)
	moreDocs(f, m)
	f.Func().Params(jen.Id("u").Op("*").Id(d.Go)).Id(m.Go).Params().Add(goType(m.Type)).Block(jen.Return(value))
	f.Commentf("// Set%s sets the bit field %s.", m.Go, m.C)
	f.Func().Params(jen.Id("u").Op("*").Id(d.Go)).Id("Set" + m.Go).Params(jen.Id("v").Add(goType(m.Type))).Block(
		jen.Id("setBits").Call(append(where, written)...),
	)
}

func signed(t *model.Type) bool { return number(t)[0] == 'i' }

func isBool(t *model.Type) bool { return number(t) == "bool" }

// number is the type of Go's own that a bit field is of.
func number(t *model.Type) string {
	for t.Kind == model.Named && t.Decl.Underlying != nil {
		t = t.Decl.Underlying
	}
	return t.Go
}
