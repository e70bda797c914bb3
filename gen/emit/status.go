package emit

import (
	"math/big"
	"slices"
	"strconv"

	"github.com/dave/jennifer/jen"

	"github.com/cudabind/cudabind/gen/model"
)

// status prints the status type's text and the errors made of it.
func (e *emitter) status() error {
	f := e.file()
	own := false
	for _, d := range e.api.Decls {
		switch {
		case !d.Error:
			continue
		case d.Kind == model.Enum:
			e.statusType(f, d)
		default:
			statusRecord(f, d)
		}
		own = true
	}
	t := e.returned()
	if t != nil && !own {
		f.Comment("// status is a code as an error: nil for success.")
		f.Func().Id("status").Params(jen.Id("v").Add(goType(t))).Error().Block(
			jen.If(jen.Id("v").Op("==").Lit(0)).Block(jen.Return(jen.Nil())),
			jen.Return(jen.Id("v")),
		)
	}
	if t != nil {
		f.Comment("// callStatus is call for a function whose result, at ret in the struct, is its status.")
		f.Func().Id("callStatus").Params(
			jen.Id("n").Uint32(), jen.Id("args").Qual("unsafe", "Pointer"), jen.Id("ret").Op("*").Add(goType(t)),
		).Error().Block(
			jen.If(
				jen.Err().Op(":=").Id("call").Call(jen.Id("n"), jen.Id("args")),
				jen.Err().Op("!=").Nil(),
			).Block(jen.Return(jen.Err())),
			jen.Return(jen.Id("status").Call(jen.Op("*").Id("ret"))),
		)
	}
	return e.save("zstatus.go", f)
}

// returned is the status type that functions return, of this package or of another one, nil for none.
func (e *emitter) returned() *model.Type {
	for _, fn := range e.api.Funcs {
		if isStatus(fn.Result) {
			return fn.Result
		}
	}
	return nil
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
	boxes(f, d, boxed)
	f.Comment("// Status returns the code in err, and 0 for nil. An error without a code, such as a [*LibraryError]")
	f.Comment("// or a [*SymbolError], is not known: its code is one that the library never returns.")
	f.Func().Id("Status").Params(jen.Err().Error()).Params(jen.Id("code").Id(d.Go), jen.Id("known").Bool()).Block(
		jen.If(jen.Err().Op("==").Nil()).Block(jen.Return(jen.Lit(0), jen.True())),
		jen.If(
			jen.List(jen.Id("v"), jen.Id("ok")).Op(":=").Err().Assert(jen.Id(d.Go)),
			jen.Id("ok"),
		).Block(jen.Return(jen.Id("v"), jen.True())),
		jen.Var().Id("wrapped").Id(d.Go), // not the result, which As would move to the heap
		jen.If(jen.Qual("errors", "As").Call(jen.Err(), jen.Op("&").Id("wrapped"))).Block(jen.Return(jen.Id("wrapped"), jen.True())),
		jen.Return(jen.Id(noCode(d)), jen.False()),
	)
}

// noCode is a number that is no code of a status type, as Go spells it.
func noCode(d *model.Decl) string {
	v := big.NewInt(1)
	step := int64(-1) // from the largest number down
	if d.Signed {     // from the smallest up
		v.Lsh(v, uint(8*d.Size-1)).Neg(v)
		step = 1
	} else {
		v.Lsh(v, uint(8*d.Size)).Sub(v, big.NewInt(1))
	}
	for slices.ContainsFunc(d.Enumerators, func(c *model.Const) bool { return c.Value == v.String() }) {
		v.Add(v, big.NewInt(step))
	}
	return v.String()
}

// sparse is the code from which an array of all would be mostly empty.
const sparse = 1 << 14

// boxes prints what makes an error of a code without an allocation.
func boxes(f *jen.File, d *model.Decl, codes []*model.Const) {
	array := jen.Index(jen.Op("..."))
	known := jen.Uint64().Call(jen.Id("v")).Op("<").Uint64().Call(jen.Len(jen.Id("boxed"))).Op("&&")
	for _, c := range codes {
		if n, err := strconv.Atoi(c.Value); err != nil || n < 0 || n >= sparse {
			array, known = jen.Map(jen.Id(d.Go)), jen.Null()
		}
	}
	f.Comment("// boxed holds each code as an error, so that returning one allocates nothing.")
	f.Var().Id("boxed").Op("=").Add(array).Error().ValuesFunc(func(g *jen.Group) {
		for _, c := range codes {
			g.Line().Id(c.Go).Op(":").Id(c.Go)
		}
		g.Line()
	})
	f.Comment("// status is a code as an error: nil for success.")
	f.Func().Id("status").Params(jen.Id("v").Id(d.Go)).Error().Block(
		jen.If(jen.Id("v").Op("==").Lit(0)).Block(jen.Return(jen.Nil())),
		jen.If(known.Add(jen.Id("boxed").Index(jen.Id("v")).Op("!=").Nil())).Block(
			jen.Return(jen.Id("boxed").Index(jen.Id("v"))),
		),
		jen.Return(jen.Id("v")),
	)
}

// statusRecord prints the errors of a library whose status is a record: a code, and perhaps
// the status of another library.
func statusRecord(f *jen.File, d *model.Decl) {
	code := jen.Id("v").Dot(d.Fields[0].Go)
	f.Comment("// Error is the C name of the code, and the error of the other library beside it.")
	f.Func().Params(jen.Id("v").Id(d.Go)).Id("Error").Params().String().BlockFunc(func(g *jen.Group) {
		if other := otherStatus(d); other != nil {
			g.If(jen.Id("v").Dot(other.Go).Op("!=").Lit(0)).Block(
				jen.Return(code.Clone().Dot("String").Call().Op("+").Lit(": ").Op("+").Id("v").Dot(other.Go).Dot("Error").Call()),
			)
		}
		g.Return(code.Clone().Dot("String").Call())
	})
	if other := otherStatus(d); other != nil {
		f.Comment("// Unwrap is the error of the other library, nil for none.")
		f.Func().Params(jen.Id("v").Id(d.Go)).Id("Unwrap").Params().Error().Block(
			jen.If(jen.Id("v").Dot(other.Go).Op("==").Lit(0)).Block(jen.Return(jen.Nil())),
			jen.Return(jen.Id("v").Dot(other.Go)),
		)
	}
	f.Comment("// status is a status as an error: nil for success.")
	f.Func().Id("status").Params(jen.Id("v").Id(d.Go)).Error().Block(
		jen.If(code.Clone().Op("==").Lit(0)).Block(jen.Return(jen.Nil())),
		jen.Return(jen.Id("v")),
	)
}

// otherStatus is the member that is another library's status, nil for none.
func otherStatus(d *model.Decl) *model.Field {
	for _, m := range d.Fields[1:] {
		if m.Type.Kind == model.Named && m.Type.Decl.Error {
			return m
		}
	}
	return nil
}
