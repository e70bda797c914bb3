package emit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// shapes prints what calls without cgo need to know of the functions: a table for all
// systems, and for each system the plans of the functions that one of them does not call
// with the slots as they lie.
func (e *emitter) shapes(data map[string]any) error {
	var shapes []string
	plans := map[string][]*model.Plan{}
	numbers := map[string]int{}
	for _, fn := range e.api.Funcs {
		of := map[string]*model.Plan{}
		text, plain := "", true
		for _, abi := range model.ABIs {
			p := abi.Plan(fn)
			of[abi.Name] = p
			plain = plain && p.Plain()
			text += planText(p) + "|"
		}
		number := 0
		if !plain {
			if numbers[text] == 0 {
				numbers[text] = len(numbers) + 1
				for name, p := range of {
					plans[name] = append(plans[name], p)
				}
			}
			number = numbers[text]
		}
		_, end, result := fn.Layout()
		if result/model.Slot > 255 || fn.Result.Size > 255 || number > 1<<16-1 {
			return fmt.Errorf("%s: unhandled: its arguments or its result are too large for calls without cgo", fn.Symbol)
		}
		shapes = append(shapes, fmt.Sprintf("{%d, %d, %d, %d}", end/model.Slot, result/model.Slot, fn.Result.Size, number))
	}
	data["Shapes"] = shapes
	if err := e.template("zshapes.go", "shapes.go.tmpl", data); err != nil {
		return err
	}
	for _, abi := range model.ABIs {
		if err := e.plans(abi, plans[abi.Name], data); err != nil {
			return err
		}
	}
	return nil
}

// plans prints the plans for one system.
func (e *emitter) plans(abi *model.ABI, plans []*model.Plan, data map[string]any) error {
	most, scratch := max(abi.Ints, abi.Floats), int64(0)
	var texts []string
	for _, p := range plans {
		copies := int64(0)
		for _, m := range slices.Concat(p.Words, p.Floats) {
			if m.How == model.Copied {
				copies += (m.Size + 15) / 16 * 2
			}
		}
		most, scratch = max(most, len(p.Words)), max(scratch, copies)
		texts = append(texts, planText(p))
	}
	data["NoCgo"], data["Registers"] = abi.GOOS == "linux", abi.Ints
	data["Plans"], data["MostWords"], data["ScratchWords"] = texts, most, scratch+1
	return e.template("zplans_"+abi.Name+".go", "plans.go.tmpl", data)
}

// planText prints a plan; it is empty where the slots are the words as they lie.
func planText(p *model.Plan) string {
	if p.Plain() {
		return "{}"
	}
	text := fmt.Sprintf("{words: []move{%s}", moveTexts(p.Words))
	if len(p.Floats) > 0 {
		text += fmt.Sprintf(", floats: []move{%s}", moveTexts(p.Floats))
	}
	if p.Indirect {
		text += ", indirect: true"
	}
	if len(p.Parts) > 0 {
		var parts []string
		for _, part := range p.Parts {
			parts = append(parts, fmt.Sprintf("{%d, %d, %d}", part.At, part.Size, part.From))
		}
		text += fmt.Sprintf(", parts: []part{%s}", strings.Join(parts, ", "))
	}
	return text + "}"
}

func moveTexts(moves []model.Move) string {
	var texts []string
	for _, m := range moves {
		texts = append(texts, fmt.Sprintf("{%d, %d, %s}", m.At, m.Size, [...]string{"asValue", "asSigned", "asCopy", "asAddress"}[m.How]))
	}
	return strings.Join(texts, ", ")
}
