package emit

import (
	"fmt"
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
		case model.Incomplete:
			docs(f, d.Doc)
			f.Type().Id(d.Go).Struct(jen.Id("_").Qual("structs", "HostLayout"))
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
	format, wide := "FormatInt", "int64"
	if d.Underlying.Go == "uint64" {
		format, wide = "FormatUint", "uint64"
	}
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
		jen.Return(jen.Lit(d.Go+"(").Op("+").Qual("strconv", format).Call(jen.Id(wide).Call(jen.Id("v")), jen.Lit(10)).Op("+").Lit(")")),
	)
}

// consts prints the constants that belong to no enumeration, a block a topic: go doc shows all of a block.
func (e *emitter) consts() error {
	f := e.file()
	for all := e.api.Consts; len(all) > 0; {
		n := 1
		for n < len(all) && topic(all[n]) == topic(all[0]) {
			n++
		}
		if n == 1 {
			docs(f, all[0].Doc)
			f.Const().Add(constant(all[0]))
		} else {
			f.Const().DefsFunc(func(g *jen.Group) {
				for _, c := range all[:n] {
					groupDocs(g, c.Doc)
					g.Add(constant(c))
				}
			})
		}
		f.Line()
		all = all[n:]
	}
	return e.save("zconsts.go", f)
}

// topic is what a constant shares with its neighbours of one block: whether it has a type, which a block mixes badly, and
// its name without the last word, of which the first four count, as in NVML_FI_DEV_ECC_CURRENT.
func topic(c *model.Const) string {
	words := strings.Split(c.Go, "_")
	return fmt.Sprint(words[:max(1, min(len(words)-1, 4))], len(words) > 2, c.Type != nil)
}

func constant(c *model.Const) *jen.Statement {
	def := jen.Id(c.Go)
	if c.Type != nil {
		def.Add(goType(c.Type))
	}
	return def.Op("=").Id(c.Value)
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
