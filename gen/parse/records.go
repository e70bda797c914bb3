package parse

import (
	"errors"
	"fmt"
	"math"
	"slices"
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
			return nil, def.err
		}
		d.ByPointer = def.byPointer
		if def.unlike {
			u.unlike[name], u.unlike[d.Tag] = true, true
		}
	}
	switch t := t.(type) {
	case *cc.EnumType:
		d.Kind = model.Enum
		if d.Size != t.Size() {
			u.unlike[name], u.unlike[d.Tag] = true, true
		}
		if len(t.Enumerators()) == 0 {
			return nil, errors.New("an enum without values")
		}
		if err := u.enumerators(d, t); err != nil {
			return nil, err
		}
	case *cc.StructType, *cc.UnionType:
		if d.Kind = model.Struct; t.Kind() == cc.Union {
			d.Kind = model.Union
		}
		if d.Size%d.Align != 0 {
			return nil, fmt.Errorf("a typedef gives it an alignment of %d, of which its size is no multiple", d.Align)
		}
		if d.Size == 0 {
			return nil, errors.New("it has no size")
		}
		// Its members may be of types that the header declares later.
		u.add(d)
		u.name(t, d)
		file, pos := u.file, u.pos
		u.pending = append(u.pending, func() {
			u.file, u.pos = file, pos
			if err := u.fields(d, t.(record)); err != nil {
				u.leave(d.C, err)
				d.LeftOut, d.Fields, d.Elsewhere = err.Error(), nil, nil
			}
		})
		return d, nil
	default:
		return nil, fmt.Errorf("no type of Go is like a %s", t.Kind())
	}
	u.add(d)
	u.name(t, d)
	return d, nil
}

func (u *unit) enumerators(d *model.Decl, t *cc.EnumType) error {
	values, signed, err := enumValues(t, d.Size)
	if err != nil {
		return err
	}
	d.Signed = signed
	for i, e := range t.Enumerators() {
		c := &model.Const{C: e.Token.SrcStr(), Value: values[i]}
		d.Enumerators = append(d.Enumerators, c)
		u.members[at(e.Token)] = &c.Comment
	}
	d.Underlying = enumNumber(d.Size, d.Signed)
	for _, e := range d.Enumerators {
		e.Type = named(d)
	}
	return nil
}

// enumValues are the values of an enum of a size, and whether it has a sign: not if one of them needs all 64 bits.
func enumValues(t *cc.EnumType, size int64) (values []string, signed bool, err error) {
	all := size == 8 && slices.ContainsFunc(t.Enumerators(), func(e *cc.Enumerator) bool {
		v, ok := e.Value().(cc.UInt64Value)
		return ok && v > math.MaxInt64
	})
	for _, e := range t.Enumerators() {
		v, ok := intValue(e.Value())
		switch {
		case !ok:
			return nil, false, fmt.Errorf("enumerator %s has no value", e.Token.SrcStr())
		case all:
			values = append(values, strconv.FormatUint(uint64(v), 10))
		default:
			values = append(values, strconv.FormatInt(v, 10))
			signed = signed || v < 0
		}
	}
	return values, signed, nil
}

// enumNumber is the number that a value of an enum is.
func enumNumber(size int64, signed bool) *model.Type {
	t := &model.Type{Kind: model.Basic, C: map[int64]string{1: "char", 2: "short", 4: "int", 8: "long long"}[size], Go: fmt.Sprint("int", 8*size), Size: size, Align: size}
	switch {
	case !signed:
		t.C, t.Go = "unsigned "+t.C, "u"+t.Go
	case size != 4:
		t.C = "signed " + t.C
	}
	return t
}

// unnamedEnum takes an enum that only serves to declare constants.
func (u *unit) unnamedEnum(t *cc.EnumType) error {
	values, _, err := enumValues(t, u.size(t))
	if err != nil {
		return err
	}
	for i, e := range t.Enumerators() {
		if u.binds(e.Token.SrcStr()) {
			u.consts = append(u.consts, &model.Const{C: e.Token.SrcStr(), Value: values[i]})
		}
	}
	return nil
}

// enumInPlace takes an enum without a name that a member, a parameter or a variable is of: its
// values are constants, and it is a number.
func (u *unit) enumInPlace(t *cc.EnumType) (*model.Type, error) {
	_, signed, err := enumValues(t, u.size(t))
	if err != nil {
		return nil, err
	}
	known := slices.ContainsFunc(t.Enumerators(), func(e *cc.Enumerator) bool {
		return slices.ContainsFunc(u.consts, func(c *model.Const) bool { return c.C == e.Token.SrcStr() })
	})
	if !known && u.owns(u.file) {
		if err := u.unnamedEnum(t); err != nil {
			return nil, err
		}
	}
	return enumNumber(u.size(t), signed), nil
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
		if f.IsBitfield() && f.Name() == "" {
			continue // a gap
		}
		if f.IsFlexibleArrayMember() || u.size(f.Type()) <= 0 {
			u.leave(model.BareName(d.C)+"."+f.Name(), errors.New("a member without a size"))
			continue
		}
		if f.Name() == "" && (!u.inPlace(f.Type()) || tagOf(f.Type()) != "") { // to some compilers that is one, to others none
			return fmt.Errorf("it has a member without a name: %s", f.Type())
		}
		ft, err := u.fieldType(d, f, i)
		if err != nil {
			return fmt.Errorf("its member %s: %w", f.Name(), err)
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
		if why := byPointer(ft.Element()); why != "" && d.ByPointer == "" {
			d.ByPointer = "of a member: " + strings.TrimPrefix(why, "of a member: ")
		}
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
				return u.inlineCallback(model.BareName(parent.C)+"_"+f.Name(), fn, d), nil
			}
		}
	}
	t := f.Type()
	var arrays []*cc.ArrayType
	for arr, ok := t.(*cc.ArrayType); ok && arr.Typedef() == nil; arr, ok = t.(*cc.ArrayType) {
		t, arrays = arr.Elem(), append(arrays, arr)
	}
	if !u.inPlace(t) {
		return u.value(f.Type())
	}
	part := f.Name()
	if part == "" {
		part = "anon" + strconv.Itoa(i)
	}
	nested := &model.Decl{
		Kind: model.Struct, C: parent.C + "_" + part, Nested: true,
		CPath: memberPath(parent, f.Name(), len(arrays)),
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
	for _, arr := range slices.Backward(arrays) {
		typ = &model.Type{Kind: model.Array, Elem: typ, Len: arr.Len(), Size: u.size(arr), Align: typ.Align}
	}
	return typ, nil
}

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
func memberPath(parent *model.Decl, member string, dimensions int) string {
	of := parent.CPath
	if of == "" {
		of = "(*(" + parent.C + "*)0)"
	}
	if member == "" {
		return of
	}
	return of + "." + member + strings.Repeat("[0]", dimensions)
}
