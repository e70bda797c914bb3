package main

import (
	"fmt"
	"go/constant"
	"go/types"
	"slices"
	"strings"
)

// lines returns the exported API of a package, a line for each fact that a
// program can depend on. Names of parameters are none.
func lines(p *types.Package) []string {
	a := &api{qualifier: func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}}
	for _, name := range p.Scope().Names() {
		if o := p.Scope().Lookup(name); o.Exported() {
			a.object(o)
		}
	}
	slices.Sort(a.lines)
	return slices.Compact(a.lines)
}

type api struct {
	qualifier types.Qualifier
	lines     []string
}

func (a *api) add(format string, args ...any) {
	a.lines = append(a.lines, fmt.Sprintf(format, args...))
}

func (a *api) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		a.add("const %s %s = %s", o.Name(), a.text(o.Type()), value(o.Val()))
	case *types.Var:
		a.add("var %s %s", o.Name(), a.text(o.Type()))
	case *types.Func:
		s := o.Signature()
		a.add("func %s%s%s", o.Name(), a.params(s.TypeParams()), a.signature(s))
	case *types.TypeName:
		a.typeName(o)
	}
}

func value(v constant.Value) string {
	if v.Kind() == constant.Float {
		return v.String()
	}
	return v.ExactString()
}

func (a *api) typeName(o *types.TypeName) {
	if o.IsAlias() {
		a.add("type %s = %s", o.Name(), a.text(types.Unalias(o.Type())))
		return
	}
	t := o.Type().(*types.Named)
	name := o.Name() + a.params(t.TypeParams())
	switch u := t.Underlying().(type) {
	case *types.Struct:
		a.add("type %s struct", name)
		a.fields("type "+name+" struct", u)
	case *types.Interface:
		a.add("type %s interface", name)
		a.elements("type "+name+" interface", u)
		return // its methods are elements
	default:
		a.add("type %s %s", name, a.text(u))
	}
	a.methods(o.Name(), t)
}

// fields adds the exported fields of a struct, and those of structs that it
// embeds without exporting them.
func (a *api) fields(prefix string, s *types.Struct) {
	for i := range s.NumFields() {
		f := s.Field(i)
		switch {
		case f.Embedded() && f.Exported():
			a.add("%s, embeds %s", prefix, a.text(f.Type()))
		case f.Embedded():
			if inner, ok := pointed(f.Type()).Underlying().(*types.Struct); ok {
				a.fields(prefix, inner)
			}
		case f.Exported():
			a.add("%s, %s %s", prefix, f.Name(), a.text(f.Type()))
		}
	}
}

func pointed(t types.Type) types.Type {
	if p, ok := t.(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

func (a *api) elements(prefix string, u *types.Interface) {
	for i := range u.NumEmbeddeds() {
		a.add("%s, embeds %s", prefix, a.text(u.EmbeddedType(i)))
	}
	for i := range u.NumExplicitMethods() {
		m := u.ExplicitMethod(i)
		if !m.Exported() {
			a.add("%s, unexported methods", prefix) // no other package can implement it
			continue
		}
		a.add("%s, %s%s", prefix, m.Name(), a.signature(m.Signature()))
	}
}

// methods adds the methods of a type, those it has from embedded ones among them.
func (a *api) methods(name string, t *types.Named) {
	var args []string
	for i := range t.TypeParams().Len() {
		args = append(args, t.TypeParams().At(i).Obj().Name())
	}
	if len(args) > 0 {
		name += "[" + strings.Join(args, ", ") + "]"
	}
	values := types.NewMethodSet(t)
	for m := range types.NewMethodSet(types.NewPointer(t)).Methods() {
		if !m.Obj().Exported() {
			continue
		}
		receiver := name
		if values.Lookup(m.Obj().Pkg(), m.Obj().Name()) == nil {
			receiver = "*" + name
		}
		a.add("method (%s) %s%s", receiver, m.Obj().Name(), a.signature(m.Type().(*types.Signature)))
	}
}

// params is a list of type parameters.
func (a *api) params(l *types.TypeParamList) string {
	if l.Len() == 0 {
		return ""
	}
	var all []string
	for p := range l.TypeParams() {
		all = append(all, p.Obj().Name()+" "+a.text(p.Constraint()))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (a *api) signature(s *types.Signature) string {
	return strings.TrimPrefix(a.text(types.NewSignatureType(nil, nil, nil, s.Params(), s.Results(), s.Variadic())), "func")
}

func (a *api) text(t types.Type) string { return types.TypeString(bare(t), a.qualifier) }

// bare leaves out the names of parameters.
func bare(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Signature:
		return types.NewSignatureType(nil, nil, nil, unnamed(t.Params()), unnamed(t.Results()), t.Variadic())
	case *types.Pointer:
		return types.NewPointer(bare(t.Elem()))
	case *types.Slice:
		return types.NewSlice(bare(t.Elem()))
	case *types.Array:
		return types.NewArray(bare(t.Elem()), t.Len())
	case *types.Map:
		return types.NewMap(bare(t.Key()), bare(t.Elem()))
	case *types.Chan:
		return types.NewChan(t.Dir(), bare(t.Elem()))
	}
	return t
}

func unnamed(l *types.Tuple) *types.Tuple {
	var all []*types.Var
	for v := range l.Variables() {
		all = append(all, types.NewParam(v.Pos(), nil, "", bare(v.Type())))
	}
	return types.NewTuple(all...)
}
