package model

import (
	"maps"
	"slices"
	"strings"
)

// rename gives the declaration of a C name, or a member as record.member, another name in Go.
func rename(as string) func(*API, string) bool {
	return func(a *API, name string) bool {
		if len(a.named(name)) == 0 {
			return false
		}
		if a.renamed == nil {
			a.renamed = map[string]string{}
		}
		a.renamed[name] = as
		return true
	}
}

// named are the places of the Go names of what C calls name.
func (a *API) named(name string) (places []*string) {
	add := func(c string, place *string) {
		if c == name {
			places = append(places, place)
		}
	}
	a.eachName(add)
	for _, d := range a.Decls {
		d.eachMember(func(f *Field) { add(BareName(d.C)+"."+f.C, &f.Go) })
	}
	return places
}

// eachName visits the Go names of the package with the C names of what has them.
func (a *API) eachName(visit func(c string, place *string)) {
	for _, f := range a.Funcs {
		visit(f.Symbol, &f.Go)
	}
	for _, al := range a.Aliases {
		visit(al.C, &al.Go)
	}
	for _, d := range a.Decls {
		visit(d.C, &d.Go)
		for _, e := range d.Enumerators {
			visit(e.C, &e.Go)
		}
	}
	for _, c := range a.Consts {
		visit(c.C, &c.Go)
	}
	for _, v := range a.Vars {
		visit(v.C, &v.Go)
	}
}

// giveWay gives types for which C has no name another name in Go where something else has theirs: records inside records,
// and pointers to functions that a parameter or a member spells in place.
func (a *API) giveWay() {
	times := map[string]int{}
	a.eachName(func(_ string, place *string) { times[*place]++ })
	for _, d := range a.Decls {
		if !d.Nested && !d.Inline {
			continue
		}
		for times[d.Go] > 1 {
			times[d.Go]--
			d.Go += "_"
			times[d.Go]++
		}
	}
	a.eachType(func(t *Type) {
		if t = t.Innermost(); t != nil && t.Decl != nil && (t.Decl.Nested || t.Decl.Inline) {
			t.Go = t.Decl.Go
		}
	})
}

// rename applies the renames of quirks, after all else has its Go name. All that is renamed has its old name until then,
// so that two declarations can change places.
func (a *API) rename() {
	type change struct {
		name, old, as string
		place         *string
	}
	var changes []change
	for _, name := range slices.Sorted(maps.Keys(a.renamed)) {
		for _, place := range a.named(name) {
			changes = append(changes, change{name, *place, a.renamed[name], place})
		}
	}
	values := map[string]string{}
	for _, c := range changes {
		if *c.place = c.as; !strings.Contains(c.name, ".") {
			a.mention(c.name, c.old, c.as)
			values[c.old] = c.as
		}
	}
	for _, c := range a.Consts {
		if as, ok := values[c.Value]; ok {
			c.Value = as
		}
	}
}

// mention gives a declaration its new name where types and aliases speak of it.
func (a *API) mention(name, old, as string) {
	for _, al := range a.Aliases {
		if al.Target == name && al.GoRef == old {
			al.GoRef = as
		}
	}
	a.eachType(func(t *Type) {
		if t = t.Innermost(); t != nil && t.Go == old && (t.C == name || t.Decl.C == name) {
			t.Go = as
		}
	})
}
