package emit

import (
	"fmt"
	"slices"

	"github.com/dave/jennifer/jen"

	"github.com/cudabind/cudabind/gen/model"
)

// withoutCgo is the build constraint of what calls without cgo need on all systems.
const withoutCgo = "(linux && (amd64 || arm64) && !cgo && cudabind_nocgo) || (windows && amd64)"

// shapes prints what calls without cgo need to know of the functions: a table for all
// systems, and for each system the plans of the functions that one of them does not call
// with the slots as they lie.
func (e *emitter) shapes() error {
	var shapes []jen.Code
	plans := map[string][]*model.Plan{}
	numbers := map[string]int{}
	for _, fn := range e.api.Funcs {
		of := map[string]*model.Plan{}
		key, plain := "", true
		for _, abi := range model.ABIs {
			p := abi.Plan(fn)
			of[abi.Name] = p
			plain = plain && p.Plain()
			key += fmt.Sprintln(*p)
		}
		number := 0
		if !plain {
			if numbers[key] == 0 {
				numbers[key] = len(numbers) + 1
				for name, p := range of {
					plans[name] = append(plans[name], p)
				}
			}
			number = numbers[key]
		}
		_, end, result := fn.Layout()
		if result/model.Slot > 255 || fn.Result.Size > 255 || number > 1<<16-1 {
			return fmt.Errorf("%s: unhandled: its arguments or its result are too large for calls without cgo", fn.Symbol)
		}
		shapes = append(shapes, lits(int(end/model.Slot), int(result/model.Slot), int(fn.Result.Size), number))
	}
	f := e.fileOn(withoutCgo)
	f.Comment("// shapes are the shapes of the functions, by their numbers.")
	f.Var().Id("shapes").Op("=").Index(jen.Op("...")).Id("shape").Custom(lines, shapes...)
	if err := e.save("zshapes.go", f); err != nil {
		return err
	}
	for _, abi := range model.ABIs {
		if err := e.plans(abi, plans[abi.Name]); err != nil {
			return err
		}
	}
	return nil
}

// lines prints the values of a table, a line each.
var lines = jen.Options{Open: "{", Close: "}", Separator: ",", Multi: true}

// lits prints numbers in braces.
func lits(numbers ...int) *jen.Statement {
	var values []jen.Code
	for _, n := range numbers {
		values = append(values, jen.Lit(n))
	}
	return jen.Values(values...)
}

// plans prints the plans for one system.
func (e *emitter) plans(abi *model.ABI, plans []*model.Plan) error {
	most, scratch := max(abi.Ints, abi.Floats), int64(1)
	values := []jen.Code{jen.Values()}
	for _, p := range plans {
		copies := int64(1)
		for _, m := range slices.Concat(p.Words, p.Floats) {
			if m.How == model.Copied {
				copies += (m.Size + 15) / 16 * 2
			}
		}
		most, scratch = max(most, len(p.Words)), max(scratch, copies)
		values = append(values, plan(p))
	}
	f := e.file()
	if abi.GOOS == "linux" {
		f = e.fileOn("!cgo && cudabind_nocgo")
		f.Comment("// registers is how many integers are in registers.")
		f.Const().Id("registers").Op("=").Lit(abi.Ints)
	}
	f.Comment("// The most words of a call, and the words that its copies take.")
	f.Const().Defs(jen.Id("mostWords").Op("=").Lit(most), jen.Id("scratchWords").Op("=").Lit(int(scratch)))
	f.Comment("// plans are what is special about calls on this system. The first is for all others.")
	f.Var().Id("plans").Op("=").Index(jen.Op("...")).Id("plan").Custom(lines, values...)
	return e.save("zplans_"+abi.Name+".go", f)
}

// plan prints a plan; it is empty where the slots are the words as they lie.
func plan(p *model.Plan) jen.Code {
	if p.Plain() {
		return jen.Values()
	}
	return jen.ValuesFunc(func(g *jen.Group) {
		g.Id("words").Op(":").Add(moves(p.Words))
		if len(p.Floats) > 0 {
			g.Id("floats").Op(":").Add(moves(p.Floats))
		}
		if p.Indirect {
			g.Id("indirect").Op(":").True()
		}
		if len(p.Parts) > 0 {
			g.Id("parts").Op(":").Index().Id("part").ValuesFunc(func(g *jen.Group) {
				for _, part := range p.Parts {
					g.Add(lits(int(part.At), int(part.Size), int(part.From)))
				}
			})
		}
	})
}

func moves(moves []model.Move) *jen.Statement {
	return jen.Index().Id("move").ValuesFunc(func(g *jen.Group) {
		for _, m := range moves {
			how := [...]string{"asValue", "asSigned", "asCopy", "asAddress"}[m.How]
			g.Values(jen.Lit(int(m.At)), jen.Lit(int(m.Size)), jen.Id(how))
		}
	})
}
