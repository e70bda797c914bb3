package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
)

// change is one difference.
type change struct {
	API  string `json:"api"`
	Kind string `json:"kind"` // function, plain name, enum, enumerator, struct, field, constant, ...
	What string `json:"what"` // added, removed, changed, remapped
	Name string `json:"name"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// facts are what there is to know of an API, by what it is about. Two versions
// differ where their facts do.
type facts map[subject]string

type subject struct{ kind, name string }

// diff compares two sets of facts.
func diff(api string, from, to facts) []change {
	var out []change
	for s, old := range from {
		now, there := to[s]
		if !there && s.kind == plainName && to.has(s.name) { // the name is a symbol's own again
			now, there = s.name, true
		}
		switch {
		case !there:
			out = append(out, change{api, s.kind, "removed", s.name, old, ""})
		case now != old && s.kind == plainName:
			out = append(out, change{api, s.kind, "remapped", s.name, old, now})
		case now != old:
			out = append(out, change{api, s.kind, "changed", s.name, old, now})
		}
	}
	for s, now := range to {
		if _, there := from[s]; there {
			continue
		}
		if s.kind == plainName && from.has(s.name) { // it was a symbol's own name
			out = append(out, change{api, s.kind, "remapped", s.name, s.name, now})
			continue
		}
		out = append(out, change{api, s.kind, "added", s.name, "", now})
	}
	slices.SortFunc(out, func(x, y change) int {
		return cmp.Or(slices.Index(kinds, x.Kind)-slices.Index(kinds, y.Kind), cmp.Compare(x.What, y.What), cmp.Compare(x.Name, y.Name))
	})
	return out
}

// has tells whether there is a function of that name.
func (f facts) has(function string) bool {
	_, ok := f[subject{"function", function}]
	return ok
}

const plainName = "plain name"

// kinds is the order in which changes are shown.
var kinds = []string{"function", plainName, "enum", "enumerator", "struct", "union", "field", "handle", "scalar", "callback", "type name", "constant"}

// load reads the facts of a CUDA version, or of an include folder. The error is fs.ErrNotExist if there are headers, but
// not those of the API.
func load(ctx context.Context, version, api string, progress io.Writer) (facts, error) {
	dir, err := folder(ctx, version, progress)
	if err != nil {
		return nil, err
	}
	a, err := parse.Parse(os.DirFS(dir), api)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", version, err)
	}
	return apiFacts(a), nil
}

// folder is the include folder of a CUDA version, which is fetched, or the one that a path names.
func folder(ctx context.Context, version string, progress io.Writer) (string, error) {
	if info, err := os.Stat(version); err != nil || !info.IsDir() {
		dir, fetched := headers.Fetch(ctx, version, progress)
		if fetched != nil && strings.ContainsRune(version, filepath.Separator) {
			return "", fmt.Errorf("%s is no folder: %v", version, err)
		}
		return dir, fetched
	}
	if dir, ok := headers.IncludeFolder(version, "cuda.h"); ok {
		return dir, nil
	}
	return "", fmt.Errorf("%s has no cuda.h, nor does its folder include", version)
}

func apiFacts(a *model.API) facts {
	f := facts{}
	for _, fn := range a.Funcs {
		f[subject{"function", fn.Symbol}] = fn.Prototype()
	}
	for _, al := range a.Aliases {
		kind := "type name"
		if al.Func {
			kind = plainName
		}
		f[subject{kind, al.C}] = al.Target
	}
	for _, c := range a.Consts {
		f[subject{"constant", c.C}] = c.Value
	}
	for _, d := range a.Decls {
		f.decl(d)
	}
	return f
}

func (f facts) decl(d *model.Decl) {
	name := model.BareName(d.C)
	if d.Nested {
		return // its members are told with those of the record around it
	}
	switch d.Kind {
	case model.Enum:
		f[subject{"enum", name}] = ""
		for _, e := range d.Enumerators {
			f[subject{"enumerator", name + "." + e.C}] = e.Value
		}
	case model.Struct, model.Union:
		f[subject{d.Kind.String(), name}] = fmt.Sprintf("%d bytes, aligned to %d", d.Size, d.Align)
		f.members(name, d, 0)
	case model.Callback:
		f[subject{"callback", name}] = d.Prototype()
	case model.Scalar:
		f[subject{"scalar", name}] = d.Underlying.C
	default:
		f[subject{d.Kind.String(), name}] = ""
	}
}

// members adds the members of a record, those of records inside it by their
// path.
func (f facts) members(path string, d *model.Decl, base int64) {
	for _, m := range d.Fields {
		at := path
		if m.C != "" {
			at += "." + m.C
		}
		if m.Type.Kind == model.Named && m.Type.Decl.Nested {
			f.members(at, m.Type.Decl, base+m.Offset)
			continue
		}
		f[subject{"field", at}] = fmt.Sprintf("%s at %d", m.Type.CDecl(""), base+m.Offset)
	}
}
