package model

import "strings"

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
		for _, f := range d.Fields {
			add(BareName(d.C)+"."+f.C, &f.Go)
		}
	}
	for _, c := range a.Consts {
		add(c.C, &c.Go)
	}
	for _, v := range a.Vars {
		add(v.C, &v.Go)
	}
	return places
}

// rename applies the renames of quirks, after all else has its Go name.
func (a *API) rename() {
	for name, as := range a.renamed {
		for _, place := range a.named(name) {
			old := *place
			*place = as
			if !strings.Contains(name, ".") {
				a.mention(name, old, as)
			}
		}
	}
}

// mention gives a declaration its new name where others speak of it.
func (a *API) mention(name, old, as string) {
	for _, al := range a.Aliases {
		if al.Target == name && al.GoRef == old {
			al.GoRef = as
		}
	}
	for _, c := range a.Consts {
		if c.Value == old {
			c.Value = as
		}
	}
	a.eachType(func(t *Type) {
		for ; t != nil; t = t.Elem {
			if t.Kind == Named && t.Go == old && (t.C == name || t.Decl.C == name) {
				t.Go = as
			}
		}
	})
}
