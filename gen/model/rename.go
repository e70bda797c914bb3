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
	for _, f := range a.Funcs {
		add(f.Symbol, &f.Go)
	}
	for _, al := range a.Aliases {
		add(al.C, &al.Go)
	}
	for _, d := range a.Decls {
		add(d.C, &d.Go)
		for _, e := range d.Enumerators {
			add(e.C, &e.Go)
		}
		d.eachMember(func(f *Field) { add(BareName(d.C)+"."+f.C, &f.Go) })
	}
	for _, c := range a.Consts {
		add(c.C, &c.Go)
	}
	for _, v := range a.Vars {
		add(v.C, &v.Go)
	}
	return places
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
