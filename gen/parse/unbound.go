package parse

import (
	"errors"
	"fmt"
	"slices"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// leave leaves out a declaration that cannot be bound. Only those of the row's own headers are
// worth a word.
func (u *unit) leave(name string, why error) {
	if u.leftOut[name] {
		return
	}
	u.leftOut[name] = true
	if u.owns(u.file) && u.binds(name) {
		u.unbound = append(u.unbound, model.Unbound{C: name, At: u.pos, Why: why.Error()})
	}
}

// leaveType leaves out a type. It stays known by its name, so that pointers to it can be bound.
func (u *unit) leaveType(name string, t cc.Type, why error) {
	u.leave(name, why)
	d := &model.Decl{Kind: model.Scalar, C: name, Tag: tagOf(t), LeftOut: why.Error(), Size: 1, Align: 1}
	switch ptr, _ := t.(*cc.PointerType); {
	case ptr != nil && ptr.Elem().Kind() == cc.Function:
		d.Kind = model.Callback
	case t.Kind() == cc.Struct:
		d.Kind = model.Struct
	case t.Kind() == cc.Union:
		d.Kind = model.Union
	case t.Kind() == cc.Enum:
		d.Kind = model.Enum
	}
	if u.decls[name] == nil {
		u.add(d)
	}
}

// leaveAll leaves out everything that a declaration declares.
func (u *unit) leaveAll(e *cc.ExternalDeclaration, why error) {
	d := e.Declaration
	if e.Case != cc.ExternalDeclarationDecl || d.DeclarationSpecifiers == nil {
		return
	}
	t := d.DeclarationSpecifiers.Type()
	if tag := tagOf(t); tag != "" && !t.IsIncomplete() && u.decls[spell(t, tag)] == nil {
		u.leaveType(spell(t, tag), t, why)
	} else if enum, ok := t.(*cc.EnumType); ok && tag == "" && d.InitDeclaratorList == nil {
		for _, e := range enum.Enumerators() {
			u.leave(e.Token.SrcStr(), why)
		}
	}
	for l := d.InitDeclaratorList; l != nil; l = l.InitDeclaratorList {
		dd := l.InitDeclarator.Declarator
		if dd.IsTypename() {
			u.leaveType(dd.Name(), dd.Type(), why)
		} else if u.owns(u.file) {
			u.leave(dd.Name(), why)
		}
	}
}

// value resolves the type of something that is passed or held by value.
func (u *unit) value(t cc.Type) (*model.Type, error) {
	r, err := u.typ(t)
	if err == nil && incomplete(r) {
		err = errors.New("it is of type " + r.CDecl("") + ", whose layout is not known")
	}
	return r, err
}

// result resolves the type of a function's result.
func (u *unit) result(t cc.Type) (*model.Type, error) {
	if t.Kind() == cc.Void {
		return &model.Type{Kind: model.Void}, nil
	}
	r, err := u.typ(t)
	if err == nil && r.C != "" && incomplete(r) {
		return u.value(t)
	}
	return r, err
}

// incomplete tells whether there is no value of a type.
func incomplete(t *model.Type) bool {
	t = t.Element()
	return t.Kind == model.Void || t.Is(model.Incomplete)
}

// unpassable leaves out a function that passes by value what C passes in another way than Go.
func (u *unit) unpassable(f *model.Func) bool {
	for _, p := range append(slices.Clone(f.Params), &model.Param{Type: f.Result}) {
		if why := byPointer(p.Type); why != "" {
			u.leftOut[f.Symbol] = true
			u.unbound = append(u.unbound, model.Unbound{C: f.Symbol, Why: fmt.Sprintf("it passes %s by value: %s", p.Type.C, why)})
			return true
		}
	}
	return false
}

// byPointer says why C passes a type by value in another way than Go, "" where it does not.
func byPointer(t *model.Type) string {
	switch {
	case t.Kind == model.Named:
		return t.Decl.ByPointer
	case t.Kind == model.Basic && t.C == float16:
		return "C passes it as a float, and Go has none of 16 bits"
	}
	return ""
}
