package doc

import (
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// Coverage counts what of a has text of ours.
type Coverage struct {
	Functions Count
	Types     Count // enumerations, structs, unions, handles, numbers and callbacks
	Values    Count // enumerators and constants
	Members   Count
}

// Count tells how much of a kind is documented. A function is documented fully
// when its parameters, its errors, its order and its use from Go are told.
type Count struct {
	Full, Sentence, None int
	Without              []string // the C names of None
}

func (c *Count) add(name string, full, sentence bool) {
	switch {
	case full:
		c.Full++
	case sentence:
		c.Sentence++
	default:
		c.None++
		c.Without = append(c.Without, name)
	}
}

// Cover counts. Variants of a function count as the function, records inside
// records as members.
func Cover(a *model.API) (Coverage, error) {
	all, err := texts()
	if err != nil {
		return Coverage{}, err
	}
	w := &writer{api: a, texts: all}
	var c Coverage
	seen := map[string]bool{}
	for _, f := range a.Funcs {
		base, _, _ := model.Base(f.Symbol)
		if seen[base] {
			continue
		}
		seen[base] = true
		e := all[base]
		c.Functions.add(base, e != nil && len(e.lacks(f, a.Row.API)) == 0, e != nil)
	}
	for _, d := range a.Decls {
		if d.Nested {
			continue
		}
		e := w.entryOf(d)
		c.Types.add(model.BareName(d.C), e != nil, false)
		for _, v := range d.Enumerators {
			c.Values.add(v.C, e.value(v.C, a.Row.API) != "" || d.Error && statusText()[v.C] != "", false)
		}
		for _, f := range d.Fields {
			c.Members.add(model.BareName(d.C)+"."+f.C, e.field(f.C, a.Row.API) != "" || f.C == "", false)
		}
	}
	for _, k := range a.Consts {
		c.Values.add(k.C, all[k.C] != nil, false)
	}
	return c, nil
}

// lacks lists the parts of the complete form that an entry has not, for one
// function that it is about.
func (e *entry) lacks(f *model.Func, api string) []string {
	var out []string
	told := map[string]bool{}
	for _, p := range e.params {
		told[forAPI(p.name, api)] = true
	}
	for _, p := range f.Params {
		if !told[p.C] {
			out = append(out, "param "+p.C)
		}
	}
	streams := model.RowOf(api).Stream != ""
	for part, there := range map[string]bool{"error": len(e.errors) > 0, "order": len(e.order) > 0 || !streams, "go": len(e.golang) > 0} {
		if !there {
			out = append(out, part)
		}
	}
	return out
}

// takesStream tells whether a function enqueues work or speaks of a stream.
func takesStream(f *model.Func) bool {
	for _, p := range f.Params {
		if c := p.Type.C; slices.ContainsFunc(model.Rows, func(r *model.Row) bool { return c != "" && c == r.Stream }) {
			return true
		}
		if t := p.Type; t.Kind == model.Pointer && strings.HasSuffix(t.Elem.C, "treamCaptureMode") {
			return true
		}
	}
	return false
}
