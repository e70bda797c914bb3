package model

import (
	"fmt"
	"slices"
	"strings"
)

// Unbound is a declaration of the headers that the package cannot have.
type Unbound struct {
	C   string // its name; of a member after that of its record, as in "CUx.text"
	At  string // where it stands
	Why string // as a sentence about it: "it takes a variable number of arguments"
}

// Reasons says what is not bound, a line for each reason.
func (a *API) Reasons() []string {
	var whys []string
	names := map[string][]string{}
	for _, u := range a.Unbound {
		if names[u.Why] == nil {
			whys = append(whys, u.Why)
		}
		names[u.Why] = append(names[u.Why], u.C)
	}
	for i, why := range whys {
		whys[i] = strings.Join(names[why], ", ") + ": " + why
	}
	return whys
}

// withdraw removes the types that are left out. Pointers to them become pointers to anything,
// and numbers take their place where they are numbers in Go. What needs their values is left
// out, too.
func withdraw(a *API) {
	out := func(c, why string) { a.Unbound = append(a.Unbound, Unbound{C: c, Why: why}) }
	for changed := true; changed; {
		changed = false
		for _, d := range a.Decls {
			if in := d.missing(); d.LeftOut == "" && in != nil {
				d.LeftOut, changed = "it holds "+in.C+" by value, which is not bound", true
				if d.Kind == Callback {
					d.LeftOut = "it passes " + in.C + " by value, which is not bound"
				}
				if !d.Nested && !d.Foreign {
					out(d.C, d.LeftOut)
				}
			}
		}
	}
	a.Funcs = slices.DeleteFunc(a.Funcs, func(f *Func) bool {
		in := missingIn(f.Params, f.Result)
		if in != nil {
			out(f.Symbol, fmt.Sprintf("it passes %s by value, which is not bound", in.C))
		}
		if in == nil && f.tooLarge() {
			out(f.Symbol, "its arguments, or its result, take more bytes than a call without cgo can have")
			return true
		}
		return in != nil
	})
	a.Vars = slices.DeleteFunc(a.Vars, func(v *Var) bool {
		in := v.Type.missing()
		if in != nil {
			out(v.C, fmt.Sprintf("it is of type %s, which is not bound", in.C))
		}
		return in != nil
	})
	a.Decls = slices.DeleteFunc(a.Decls, func(d *Decl) bool { return d.LeftOut != "" })
	a.dropUnreachable()
	for _, c := range a.Consts {
		if c.Type != nil && c.Type.missing() != nil {
			c.Type = nil
		}
	}
	a.eachType((*Type).replace)
	a.Aliases = slices.DeleteFunc(a.Aliases, func(al *Alias) bool {
		if al.Func {
			return !slices.ContainsFunc(a.Funcs, func(f *Func) bool { return f.Symbol == al.Target })
		}
		return declNamed(a, al.Target) == nil
	})
}

// missing is the type that a declaration needs and that is left out, nil if there is none.
func (d *Decl) missing() *Decl {
	for _, f := range d.Fields {
		if in := f.Type.missing(); in != nil {
			return in
		}
	}
	if d.Kind == Callback && d.Result != nil {
		return missingIn(d.Params, d.Result)
	}
	if d.Kind == Second {
		return d.Underlying.missing()
	}
	return nil
}

func missingIn(params []*Param, result *Type) *Decl {
	for _, p := range params {
		if in := p.Type.missing(); in != nil {
			return in
		}
	}
	return result.missing()
}

// missing is the type that a value of t is made of, if it is left out and nothing takes its place.
func (t *Type) missing() *Decl {
	switch {
	case t.Kind == Array:
		return t.Elem.missing()
	case t.Kind == Named && t.Decl != nil && t.Decl.LeftOut != "" && t.Decl.substitute() == nil:
		return t.Decl
	}
	return nil
}

// substitute is what a value of a type that is left out is in Go, nil if that is not known.
func (d *Decl) substitute() *Type {
	switch d.Kind {
	case Enum, Scalar, Second:
		return d.Underlying
	case Handle, Callback:
		return &Type{Kind: Pointer, Go: "uintptr", Elem: &Type{Kind: Void}, Size: 8, Align: 8}
	}
	return nil
}

// replace puts something else in the place of a type that is left out.
func (t *Type) replace() {
	if t.Enum != nil && t.Enum.LeftOut != "" {
		t.Enum = nil
	}
	switch {
	case t.Kind == Named && t.Decl != nil && t.Decl.LeftOut != "":
		if s := t.Decl.substitute(); s != nil {
			konst := t.Const
			*t = *s
			t.Const = konst
			t.replace()
		}
	case t.Kind == Pointer && t.Elem.missing() != nil:
		of := &Type{Kind: Void, Const: t.Elem.Const}
		if d := t.Elem.Decl; d != nil && (d.Kind == Struct || d.Kind == Union || d.Kind == Incomplete) && !d.Nested {
			of.C = d.C
		}
		t.Elem = of
	case t.Elem != nil:
		t.Elem.replace()
	}
}

// eachType visits the types that declarations use.
func (a *API) eachType(visit func(*Type)) {
	all := func(params []*Param, result *Type) {
		for _, p := range params {
			visit(p.Type)
		}
		if result != nil {
			visit(result)
		}
	}
	for _, f := range a.Funcs {
		all(f.Params, f.Result)
	}
	for _, d := range a.Decls {
		all(d.Params, d.Result)
		for _, f := range d.Fields {
			visit(f.Type)
		}
		if d.Underlying != nil {
			visit(d.Underlying)
		}
	}
	for _, v := range a.Vars {
		visit(v.Type)
	}
	for _, c := range a.Consts {
		if c.Type != nil {
			visit(c.Type)
		}
	}
}

// spellOut gives constants that name one that goes its value.
func (a *API) spellOut(gone *Const) {
	for _, c := range a.Consts {
		if c.Value == GoName(gone.C) {
			c.Value = gone.Value
		}
	}
}

// dropUnreachable removes records that lay inside of those that are left out.
func (a *API) dropUnreachable() {
	inside := map[*Decl]bool{}
	var look func(d *Decl)
	look = func(d *Decl) {
		for _, f := range d.Fields {
			if t := f.Type.Element(); t.Kind == Named && t.Decl.Nested && !inside[t.Decl] {
				inside[t.Decl] = true
				look(t.Decl)
			}
		}
	}
	for _, d := range a.Decls {
		if !d.Nested {
			look(d)
		}
	}
	a.Decls = slices.DeleteFunc(a.Decls, func(d *Decl) bool { return d.Nested && !inside[d] })
}

// skip leaves out what is called name: a function, a type, a constant, a variable, another name
// of one, or what cannot be bound in any case.
func skip(a *API, name string) bool {
	found := false
	cut := func(c string) bool {
		found = found || c == name
		return c == name
	}
	a.Unbound = slices.DeleteFunc(a.Unbound, func(u Unbound) bool { return cut(u.C) })
	a.Funcs = slices.DeleteFunc(a.Funcs, func(f *Func) bool { return cut(f.Symbol) })
	a.Aliases = slices.DeleteFunc(a.Aliases, func(al *Alias) bool { return cut(al.C) })
	a.Vars = slices.DeleteFunc(a.Vars, func(v *Var) bool { return cut(v.C) })
	for _, c := range a.Consts {
		if c.C == name {
			a.spellOut(c)
		}
	}
	a.Consts = slices.DeleteFunc(a.Consts, func(c *Const) bool { return cut(c.C) })
	a.Inlines = slices.DeleteFunc(a.Inlines, func(in Inline) bool { return cut(in.C) })
	a.Dropped = slices.DeleteFunc(a.Dropped, cut)
	for _, d := range a.Decls {
		gone := cut(d.C)
		if gone {
			d.LeftOut = "a quirk leaves it out"
		}
		for _, e := range d.Enumerators {
			if gone || e.C == name {
				a.spellOut(e)
			}
		}
		d.Enumerators = slices.DeleteFunc(d.Enumerators, func(e *Const) bool { return cut(e.C) })
	}
	a.eachType(func(t *Type) { // a second name of a type that stays
		if t = t.Innermost(); t != nil && t.C == name && t.Decl != nil && t.Decl.C != name {
			t.C = t.Decl.C
		}
	})
	if found {
		a.Skipped = append(a.Skipped, name)
	}
	return found
}
