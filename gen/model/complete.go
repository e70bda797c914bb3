package model

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Options adjust what Complete makes of an API.
type Options struct {
	// Frozen maps plain names to what they were first published for. A plain
	// name it lacks gets the header's mapping.
	Frozen map[string]string

	// Quirks are the user's own rows, applied after the table's.
	Quirks []Quirk

	// Partial is for a header that is only a part of NVIDIA's, as in tests: a
	// quirk that finds nothing in it is no error.
	Partial bool
}

// Complete turns what the parser read into what the emitter prints: quirks are
// applied, everything gets its Go name and number, and nothing is left
// unhandled.
func Complete(a *API, opts Options) error {
	if err := applyQuirks(a, opts); err != nil {
		return err
	}
	withdraw(a)
	switch d := a.Status(); {
	case d != nil:
		d.Error = true
	case !opts.Partial && a.Row.Own == nil:
		return fmt.Errorf("%s declares no %s, the type of its status codes", a.source(), a.Row.Status)
	}
	for _, d := range a.Decls {
		if d.Kind == Callback && d.Thread == "" {
			d.Thread = a.Row.Callback
		}
	}
	if err := handled(a); err != nil {
		return err
	}
	freeze(a, opts.Frozen)
	if err := checkPFNs(a); err != nil {
		return err
	}
	nameTypes(a)
	if err := nameFuncs(a); err != nil {
		return err
	}
	for i, f := range a.Funcs {
		f.Number = i
		f.Since = Since(a.Row.API, f.Symbol)
		for _, p := range f.Params {
			if p.Type.Is(Callback) && len(f.Callbacks) == 0 {
				f.Callbacks = append(f.Callbacks, p.Type.Decl)
			}
			if p.Function != "" && len(f.Callbacks) == 0 {
				f.Callbacks = append(f.Callbacks, &Decl{Kind: Callback, Thread: cmp.Or(a.Row.Callback, "a thread that the library does not name")})
			}
		}
	}
	for _, al := range a.Aliases {
		if al.Func {
			al.Since = Since(a.Row.API, al.Target)
		}
	}
	a.giveWay()
	a.rename()
	return unique(a)
}

// handled reports declarations that the generator does not know what to do with.
func handled(a *API) error {
	var errs []error
	var rows []row
	missing := func(r row, format string, args ...any) {
		errs = append(errs, fmt.Errorf(format, args...))
		r.API, r.From = a.Row.API, a.Version
		rows = append(rows, r)
	}
	for _, c := range a.Consts {
		if c.Value == "" {
			missing(row{Quirk: "skip", Name: c.C, Reason: "no constant"}, "macro %s has a body that is no constant: a skip quirk must say why it is left out", c.C)
		}
	}
	if a.Row.Package != "" {
		for _, u := range a.Unbound {
			missing(row{Quirk: "skip", Name: u.C, Reason: u.Why}, "%s cannot be bound: %s: a skip quirk must say that it is left out", strings.TrimPrefix(u.At+": "+u.C, ": "), u.Why)
		}
	}
	for _, d := range a.Decls {
		if d.Kind == Callback && d.Thread == "" { // no Go: the cautious choice
			who, also := "CUDA", ""
			if !a.Row.OfCUDA() {
				who, also = "the library", `; "callback" in the row of the library says it for all types`
			}
			missing(row{Quirk: "callback", Name: d.C, Thread: "a thread that " + who + " does not name", Reason: "not measured"},
				"callback type %s has no quirk row that says on which thread %s calls it%s", d.C, who, also)
		}
	}
	chapter := ""
	for _, f := range a.Funcs {
		chapter = cmp.Or(f.Group, chapter)
		if f.Group == "" {
			missing(row{Quirk: "group", Name: f.Symbol, Chapter: cmp.Or(chapter, firstChapter(a)), Reason: "declared outside of the chapters"},
				"function %s stands in no chapter of %s: a group quirk must say where it belongs", f.Symbol, a.Header)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s has declarations that the generator does not know what to do with:\n%w", a.source(), errors.Join(append(errs, advice(rows))...))
}

func firstChapter(a *API) string {
	if len(a.Groups) == 0 {
		return ""
	}
	return a.Groups[0].Name
}

// source names the header and its version, for messages.
func (a *API) source() string {
	switch {
	case a.Row.OfCUDA():
		return a.Header + " of CUDA " + a.Version
	case a.Version == "":
		return a.Header
	}
	return a.Header + " of version " + a.Version
}

// freeze keeps plain names at the target they were first published for, so
// that a newer header does not change what a program's call means.
func freeze(a *API, frozen map[string]string) {
	symbols := map[string]*Func{}
	for _, f := range a.Funcs {
		symbols[f.Symbol] = f
	}
	kept := a.Aliases[:0]
	for _, al := range a.Aliases {
		old, ok := frozen[al.C]
		if !ok || old == al.Target {
			kept = append(kept, al)
			continue
		}
		if al.Func && old == al.C {
			continue // it was the symbol's own name: the new target has a name too
		}
		if al.Func && symbols[old] != nil || !al.Func && declNamed(a, old) != nil {
			al.Newer, al.Target = al.Target, old
		}
		kept = append(kept, al)
	}
	a.Aliases = kept
}

// PlainNames lists the plain names of a and what each means, for the table
// that freezes them.
func PlainNames(a *API) map[string]string {
	out := map[string]string{}
	for _, f := range a.Funcs {
		if base, version, thread := Base(f.Symbol); base == f.Symbol && version == 1 && thread == "" && f.Go == GoName(f.Symbol) {
			out[f.Symbol] = f.Symbol
		}
	}
	for _, al := range a.Aliases {
		out[al.C] = al.Target
	}
	return out
}

// nameTypes gives declarations, members and uses their Go names. Of a type
// with several names the plain one is its own and the others are aliases.
func nameTypes(a *API) {
	for _, d := range a.Decls {
		if d.Go == "" {
			d.Go = GoTypeName(d.C)
		}
	}
	for _, al := range a.Aliases {
		if al.Func {
			continue
		}
		d := declNamed(a, al.Target)
		if plain, version, _ := Base(d.C); plain == al.C && version > 0 && plain != d.C {
			d.Go = GoName(al.C)
		}
	}
	nameNested(a)
	used := typeNames{}
	aliases := a.Aliases[:0]
	for _, al := range a.Aliases {
		al.Go = GoName(al.C)
		if !al.Func {
			d := declNamed(a, al.Target)
			al.GoRef = d.Go
			if al.Go == d.Go { // the type has the plain name, the alias its own
				if al.Go = GoTypeName(d.C); al.Go == d.Go {
					continue
				}
			}
			used[al.C] = al.Newer != ""
		}
		aliases = append(aliases, al)
	}
	a.Aliases = aliases
	for _, d := range a.Decls {
		for i, f := range d.Fields {
			if f.Go = anonName(f, i); f.C != "" {
				f.Go = GoName(f.C)
			}
			used.name(f.Type)
		}
		for _, e := range d.Enumerators {
			e.Go = GoName(e.C)
			used.name(e.Type)
		}
		used.params(d.Params, d.Result)
		if d.Underlying != nil {
			used.name(d.Underlying)
		}
	}
	for _, c := range a.Consts {
		c.Go = GoName(c.C)
		if c.Type != nil {
			used.name(c.Type)
		}
	}
	for _, v := range a.Vars {
		v.Go = GoName(v.C)
		used.name(v.Type)
	}
	for _, f := range a.Funcs {
		used.params(f.Params, f.Result)
	}
}

// anonName is the unexported name of an unnamed member, "" for others; what it
// holds is reached by the methods of the record around it.
func anonName(f *Field, i int) string {
	if f.C != "" {
		return ""
	}
	return "anon" + itoa(int64(i))
}

// nameNested names records inside records after their parents' Go names.
func nameNested(a *API) {
	for _, d := range a.Decls {
		for i, f := range d.Fields {
			if t := f.Type.Element(); t.Kind == Named && t.Decl.Nested {
				t.Decl.Go = d.Go + "_" + identifier(f.C) + anonName(f, i)
			}
		}
	}
}

// GoTypeName is the Go name of a type, as C spells it.
func GoTypeName(c string) string { return GoName(BareName(c)) }

// typeNames names types as they are used. It tells which of the names in C are
// frozen at an older type in Go.
type typeNames map[string]bool

func (u typeNames) params(ps []*Param, result *Type) {
	hidden := map[string]bool{} // what a parameter of that name would hide
	types := []*Type{result}
	for _, p := range ps {
		types = append(types, p.Type)
	}
	for _, t := range types {
		if t == nil {
			continue
		}
		u.name(t)
		if t.Enum != nil {
			hidden[t.Enum.Go] = true
		}
		if in := t.Innermost(); in != nil && in.Decl != nil {
			hidden[in.Go] = true
			hidden[importName(in.Decl.Package)] = true
		}
	}
	for i, p := range ps {
		p.Go = paramName(p.C, i)
		for hidden[p.Go] || slices.ContainsFunc(ps[:i], func(other *Param) bool { return other.Go == p.Go }) {
			p.Go += "_"
		}
	}
}

// name sets the Go name of a type: the name the header uses, where that means
// the same in Go.
func (u typeNames) name(t *Type) {
	switch t.Kind {
	case Named:
		if u[t.C] {
			t.C = t.Decl.C
		}
		t.Go = GoTypeName(t.C)
		if t.Decl.Nested || t.Decl.Package != "" {
			t.Go = t.Decl.Go
		}
	case Pointer, Array:
		u.name(t.Elem)
	}
}

// nameFuncs names functions after their symbols. The unsuffixed symbol under a
// plain name that means another one becomes its _v1.
func nameFuncs(a *API) error {
	taken := map[string]bool{}
	for _, al := range a.Aliases {
		if al.Func {
			taken[al.C] = true
			al.GoRef = GoName(al.Target)
		}
	}
	for _, f := range a.Funcs {
		f.Go = GoName(f.Symbol)
		for _, p := range f.Params {
			if p.Go == "sym"+f.Go { // its number in the package
				p.Go += "_"
			}
		}
		base, _, thread := Base(f.Symbol)
		suffix := ""
		if thread != "" {
			suffix = "_" + thread
		}
		if taken[base] && f.Symbol == base+suffix && thread == "" {
			f.Go = GoName(base) + "_v1"
		}
		if !strings.HasPrefix(f.Symbol, a.Row.Prefix) {
			return fmt.Errorf("function %s does not begin with %s: what library is it of? A skip quirk leaves it out, and a row's \"prefix\" may be shorter", f.Symbol, a.Row.Prefix)
		}
	}
	return nil
}

// unique checks that no two things share a Go name.
func unique(a *API) error {
	n := names{}
	for _, own := range ownNames {
		n[own] = "the package's own " + own
	}
	if len(a.Row.Library.Subdirs) > 0 {
		n["Folders"] = "the package's own Folders"
	}
	var errs []error
	var rows []row
	add := func(n names, goName, c string) {
		if err := n.add(goName, c); err != nil {
			errs = append(errs, err)
			rows = append(rows, row{API: a.Row.API, Quirk: "rename", Name: c, As: goName + "_", Reason: "another has the name " + goName})
		}
	}
	a.eachName(func(c string, place *string) { add(n, *place, c) })
	for _, d := range a.Decls {
		members := names{}
		d.eachMember(func(f *Field) { add(members, f.Go, BareName(d.C)+"."+f.C) })
		d.eachMember(func(f *Field) {
			if other, taken := members["Set"+f.Go]; taken && d.Apart(f) {
				c := BareName(d.C) + "." + f.C
				errs = append(errs, fmt.Errorf("%s and what sets %s both become Set%s in Go: add a rename quirk for one of them", other, c, f.Go))
				rows = append(rows, row{API: a.Row.API, Quirk: "rename", Name: c, As: f.Go + "_", Reason: "another has the name Set" + f.Go})
			}
		})
		if d.Align > Slot && (d.Kind == Struct || d.Kind == Union) {
			if other, taken := n["New"+d.Go]; taken {
				errs = append(errs, fmt.Errorf("%s and what makes a %s both become New%s in Go: add a rename quirk for one of them", other, d.C, d.Go))
				rows = append(rows, row{API: a.Row.API, Quirk: "rename", Name: d.C, As: d.Go + "_", Reason: "another has the name New" + d.Go})
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errors.Join(append(errs, advice(rows))...)
}

// eachMember visits the members of a record that have names, those of unnamed records in it too.
func (d *Decl) eachMember(visit func(*Field)) {
	for _, f := range d.Fields {
		if f.C == "" && f.Type.Decl != nil {
			f.Type.Decl.eachMember(visit)
		} else {
			visit(f)
		}
	}
}
