package parse

import (
	"fmt"
	"strconv"
	"strings"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// define takes the definition of a record or enum under the name name.
func (u *unit) define(t cc.Type, name, comment string) (*model.Decl, error) {
	d := &model.Decl{C: name, Tag: tagOf(t), Comment: comment}
	d.Size, d.Align = u.measure(t, 0)
	if def := u.definitionOf(t); def != nil {
		if def.err != nil {
			return nil, fmt.Errorf("%s: %w", name, def.err)
		}
		d.ByPointer = def.byPointer
		if def.unlike {
			u.unlike[name], u.unlike[d.Tag] = true, true
		}
	}
	switch t := t.(type) {
	case *cc.EnumType:
		d.Kind = model.Enum
		if d.Size != 4 {
			return nil, fmt.Errorf("%s: unhandled enum of %d bytes", name, d.Size)
		}
		if err := u.enumerators(d, t); err != nil {
			return nil, err
		}
	case *cc.StructType, *cc.UnionType:
		if d.Kind = model.Struct; t.Kind() == cc.Union {
			d.Kind = model.Union
		}
		if d.Size%d.Align != 0 {
			return nil, fmt.Errorf("%s: unhandled typedef of a record with an alignment of %d", name, d.Align)
		}
		// Its members may be of types that the header declares later.
		u.add(d)
		u.pending = append(u.pending, func() error { return u.fields(d, t.(record)) })
		return d, nil
	default:
		return nil, fmt.Errorf("unhandled definition of a %s", t.Kind())
	}
	u.add(d)
	return d, nil
}

func (u *unit) enumerators(d *model.Decl, t *cc.EnumType) error {
	if d.Tag == "" && d.C == "" {
		return fmt.Errorf("unhandled enum without a name")
	}
	for _, e := range t.Enumerators() {
		v, ok := intValue(e.Value())
		if !ok {
			return fmt.Errorf("enumerator %s has no value", e.Token.SrcStr())
		}
		d.Signed = d.Signed || v < 0
		c := &model.Const{C: e.Token.SrcStr(), Value: strconv.FormatInt(v, 10)}
		d.Enumerators = append(d.Enumerators, c)
		u.members[at(e.Token)] = &c.Comment
	}
	go32 := "uint32"
	if d.Signed {
		go32 = "int32"
	}
	d.Underlying = &model.Type{Kind: model.Basic, C: "int", Go: go32, Size: 4, Align: 4}
	for _, e := range d.Enumerators {
		e.Type = named(d)
	}
	return nil
}

// unnamedEnum takes an enum that only serves to declare constants.
func (u *unit) unnamedEnum(t *cc.EnumType) error {
	for _, e := range t.Enumerators() {
		v, ok := intValue(e.Value())
		if !ok {
			return fmt.Errorf("enumerator %s has no value", e.Token.SrcStr())
		}
		u.consts = append(u.consts, &model.Const{C: e.Token.SrcStr(), Value: strconv.FormatInt(v, 10)})
	}
	return nil
}

// record is what struct and union types have in common.
type record interface {
	cc.Type
	NumFields() int
	FieldByIndex(int) *cc.Field
}

func (u *unit) fields(d *model.Decl, t record) error {
	def := u.definitionOf(t)
	if def == nil {
		return nil
	}
	places := [len(systems)][]model.Place{}
	for i := range t.NumFields() {
		f := t.FieldByIndex(i)
		if f.IsFlexibleArrayMember() {
			return fmt.Errorf("%s.%s: unhandled flexible array", d.C, f.Name())
		}
		if f.IsBitfield() && f.Name() == "" {
			continue // a gap
		}
		if u.size(f.Type()) == 0 {
			return fmt.Errorf("%s.%s: unhandled member of no size", d.C, f.Name())
		}
		if f.Name() == "" && !u.inPlace(f.Type()) {
			return fmt.Errorf("%s: unhandled member without a name: %s", d.C, f.Type())
		}
		ft, err := u.fieldType(d, f, i)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", d.C, f.Name(), err)
		}
		// The front end misplaces the const of members, and a call does not care.
		for t := ft; t != nil; t = t.Elem {
			t.Const = false
		}
		for s := range systems {
			at := def.on[s].at[i]
			places[s] = append(places[s], model.Place{Offset: at / 8, Bit: at % 8})
		}
		field := &model.Field{C: f.Name(), Type: ft, Place: places[0][len(d.Fields)]}
		if f.IsBitfield() {
			field.Bits = f.ValueBits()
		}
		d.Fields = append(d.Fields, field)
		if dd := f.Declarator(); dd != nil {
			u.members[at(dd.NameTok())] = &field.Comment
		}
	}
	for s, l := range def.on {
		if def.differs[s] {
			d.Elsewhere = append(d.Elsewhere, model.Layout{System: systems[s].name, Size: l.size, Align: l.align, Places: places[s]})
		}
	}
	return nil
}

// fieldType resolves a member's type. A record defined in place becomes a
// declaration named after its parent and member.
func (u *unit) fieldType(parent *model.Decl, f *cc.Field, i int) (*model.Type, error) {
	if d := f.Declarator(); d != nil {
		if ptr, ok := f.Type().(*cc.PointerType); ok && ptr.Typedef() == nil {
			if fn, ok := ptr.Elem().(*cc.FunctionType); ok && fn.Typedef() == nil {
				return u.inlineCallback(bare(parent.C)+"_"+f.Name(), fn, d)
			}
		}
	}
	t, length := f.Type(), int64(0)
	if arr, ok := t.(*cc.ArrayType); ok && u.inPlace(arr.Elem()) {
		t, length = arr.Elem(), arr.Len()
	}
	if !u.inPlace(t) {
		return u.typ(f.Type())
	}
	part := f.Name()
	if part == "" {
		part = "anon" + strconv.Itoa(i)
	}
	nested := &model.Decl{
		Kind: model.Struct, C: parent.C + "_" + part, Nested: true,
		CPath: memberPath(parent, f.Name(), length > 0),
	}
	nested.Size, nested.Align = u.measure(t, 0)
	if t.Kind() == cc.Union {
		nested.Kind = model.Union
	}
	if err := u.fields(nested, t.(record)); err != nil {
		return nil, err
	}
	u.nested[parent] = append(u.nested[parent], nested)
	typ := named(nested)
	if length > 0 {
		typ = &model.Type{Kind: model.Array, Elem: typ, Len: length, Size: u.size(f.Type()), Align: typ.Align}
	}
	return typ, nil
}

// bare is a name without struct or union.
func bare(c string) string { return c[strings.LastIndexByte(c, ' ')+1:] }

// inPlace tells whether a type is a record defined where it is used.
func (u *unit) inPlace(t cc.Type) bool {
	if t.Kind() != cc.Struct && t.Kind() != cc.Union || t.Typedef() != nil {
		return false
	}
	tag := tagOf(t)
	return tag == "" || u.decls[spell(t, tag)] == nil && !t.IsIncomplete()
}

// memberPath is a C expression of a member's type, for a C compiler to measure.
// Of an unnamed member it is that of the parent, through which C reaches what
// is inside.
func memberPath(parent *model.Decl, member string, array bool) string {
	of := parent.CPath
	if of == "" {
		of = "(*(" + parent.C + "*)0)"
	}
	if member == "" {
		return of
	}
	of += "." + member
	if array {
		of += "[0]"
	}
	return of
}
