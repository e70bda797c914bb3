package parse

import (
	"io/fs"
	"slices"
	"strings"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// owns tells whether declarations of a header are bound.
func (u *unit) owns(header string) bool {
	return u.row.Own == nil || slices.Contains(u.row.Own, header)
}

// notOwn notes a function of a header that is not the row's own, if it has the library's prefix: those of C and of other
// libraries are expected to be missing.
func (u *unit) notOwn(dd *cc.Declarator) {
	name := dd.Name()
	if dd.Type().Kind() == cc.Function && u.row.Prefix != "" && strings.HasPrefix(name, u.row.Prefix) && !u.skips(name) && !slices.Contains(u.beside[u.file], name) {
		u.beside[u.file] = append(u.beside[u.file], name)
	}
}

// binds tells whether a function, type or constant of the row's own headers is bound.
func (u *unit) binds(name string) bool {
	return u.row.Only == nil || u.row.Only.MatchString(name)
}

// sharedTypes are the types that the library takes from other packages: by C name, and by
// tag, as "handle CUstream_st".
func sharedTypes(headers fs.FS, row *model.Row, version string) (map[string]*model.Decl, error) {
	shared := map[string]*model.Decl{}
	for _, api := range row.Uses {
		of, at := model.RowOf(api), row.Import(api, version)
		if at == "" {
			continue
		}
		u, err := load(headers, of, of.Headers[:1], internalDefine(of))
		if err != nil {
			return nil, err
		}
		u.walk()
		for _, d := range u.order {
			if u.foreign[d] {
				continue
			}
			d.Package, d.Go, d.Error = at, model.GoTypeName(d.C), of.IsStatus(d)
			shared[d.C] = d
			if d.Tag != "" {
				shared[kindWord(d.Kind)+" "+d.Tag] = d
			}
		}
	}
	return shared, nil
}

// prune leaves of a's types those that are its own or that its own declarations use, and
// not those that another package has.
func (u *unit) prune(a *model.API) {
	if a.Row.Own == nil {
		return
	}
	p := pruner{used: map[*model.Decl]bool{}, names: map[string]bool{}}
	for _, f := range a.Funcs {
		p.params(f.Params)
		p.typ(f.Result)
	}
	for _, d := range a.Decls {
		if !u.foreign[d] && !d.Nested {
			p.decl(d)
		}
	}
	for _, c := range a.Consts {
		p.typ(c.Type)
	}
	for _, v := range a.Vars {
		p.typ(v.Type)
	}
	a.Decls = slices.DeleteFunc(a.Decls, func(d *model.Decl) bool { return !p.used[d] || d.Package != "" })
	a.Aliases = slices.DeleteFunc(a.Aliases, func(al *model.Alias) bool {
		return !al.Func && (!p.names[al.C] && !u.ownAlias[al.C] || declNamed(a.Decls, al.Target) == nil)
	})
}

func declNamed(decls []*model.Decl, c string) *model.Decl {
	if i := slices.IndexFunc(decls, func(d *model.Decl) bool { return d.C == c }); i >= 0 {
		return decls[i]
	}
	return nil
}

// A pruner marks the types that declarations use.
type pruner struct {
	used  map[*model.Decl]bool
	names map[string]bool // as they spell them
}

func (p pruner) params(ps []*model.Param) {
	for _, q := range ps {
		p.typ(q.Type)
	}
}

func (p pruner) typ(t *model.Type) {
	if t = t.Innermost(); t == nil {
		return
	}
	p.names[t.C] = true
	p.decl(t.Decl)
}

func (p pruner) decl(d *model.Decl) {
	if d == nil || p.used[d] {
		return
	}
	p.used[d] = true
	if d.Package != "" {
		return // its parts are there too
	}
	p.typ(d.Underlying)
	p.typ(d.Result)
	p.params(d.Params)
	for _, f := range d.Fields {
		p.typ(f.Type)
	}
}

// chapters puts functions outside of the header's chapters into one a header.
func chapters(a *model.API, headerOf map[string]string) {
	for _, f := range a.Funcs {
		if f.Group != "" {
			continue
		}
		header := headerOf[f.Symbol]
		if header == "" {
			header = a.Header
		}
		f.Group = strings.TrimSuffix(header, ".h")
		if !slices.ContainsFunc(a.Groups, func(g model.Group) bool { return g.Name == f.Group }) {
			a.Groups = append(a.Groups, model.Group{Name: f.Group, Title: "Functions of " + header})
		}
	}
}
