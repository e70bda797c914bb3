package parse

import (
	"fmt"
	"strconv"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// tagged takes a struct, union or enum that is declared by its tag alone.
func (u *unit) tagged(t cc.Type, comment string) error {
	tag := tagOf(t)
	switch t.Kind() {
	case cc.Struct, cc.Union:
		if tag == "" || t.IsIncomplete() {
			return nil // a forward declaration says nothing yet
		}
	case cc.Enum:
		if tag == "" {
			return u.unnamedEnum(t.(*cc.EnumType))
		}
	default:
		return fmt.Errorf("unhandled declaration of a %s", t.Kind())
	}
	if u.decls[spell(t, tag)] != nil {
		return nil // a typedef in front of the definition has it already
	}
	_, err := u.define(t, spell(t, tag), comment)
	return err
}

// typedef takes one typedef.
func (u *unit) typedef(d *cc.Declaration, dd *cc.Declarator, comment string) error {
	name, t := dd.Name(), dd.Type()
	if target := u.renamed(d, dd); target != nil {
		if target.C == "struct "+name || target.C == "union "+name || target.C == "enum "+name {
			target.C = name // a typedef that repeats the tag
			u.decls[name] = target
			return nil
		}
		u.decls[name] = target
		u.aliases = append(u.aliases, &model.Alias{C: name, Target: target.C})
		return nil
	}
	switch t.Kind() {
	case cc.Struct, cc.Union, cc.Enum:
		if t.IsIncomplete() {
			return fmt.Errorf("unhandled typedef of a record that is never defined")
		}
		_, err := u.define(t, name, comment)
		return err
	case cc.Ptr:
		return u.pointerTypedef(dd, t.(*cc.PointerType).Elem(), comment)
	}
	if _, ok := model.BasicName(name); ok {
		return nil // a second name for a number that Go has too
	}
	under, err := u.number(t)
	if err != nil {
		return err
	}
	u.add(&model.Decl{Kind: model.Scalar, C: name, Comment: comment, Underlying: under, Size: t.Size(), Align: int64(t.Align())})
	return nil
}

// renamed is the declaration that a typedef gives a second name, nil where the
// typedef is a declaration of its own.
func (u *unit) renamed(d *cc.Declaration, dd *cc.Declarator) *model.Decl {
	if dd.Pointer != nil || dd.DirectDeclarator.Case != cc.DirectDeclaratorIdent {
		return nil
	}
	if t := dd.Type(); tagOf(t) != "" {
		if known := u.decls[spell(t, tagOf(t))]; known != nil {
			return known
		}
	}
	var names []string
	for _, tok := range cc.NodeTokens(d.DeclarationSpecifiers) {
		if s := tok.SrcStr(); s != "typedef" {
			names = append(names, s)
		}
	}
	if len(names) != 1 {
		return nil
	}
	return u.decls[names[0]]
}

func (u *unit) pointerTypedef(dd *cc.Declarator, elem cc.Type, comment string) error {
	name := dd.Name()
	switch {
	case elem.Kind() == cc.Function:
		params, result, err := u.signature(elem.(*cc.FunctionType), dd)
		if err != nil {
			return err
		}
		u.add(&model.Decl{Kind: model.Callback, C: name, Comment: comment, Params: params, Result: result, Size: 8, Align: 8})
		return nil
	case elem.Kind() == cc.Struct && elem.IsIncomplete():
		d := &model.Decl{Kind: model.Handle, C: name, Tag: tagOf(elem), Comment: comment, Size: 8, Align: 8}
		u.add(d)
		return nil
	}
	return fmt.Errorf("unhandled typedef of a pointer to %s", elem)
}

func (u *unit) add(d *model.Decl) {
	u.decls[d.C] = d
	if d.Tag != "" && d.Kind != model.Handle {
		u.decls[kindWord(d.Kind)+" "+d.Tag] = d
	}
	u.order = append(u.order, d)
	u.last = d
}

// define takes the definition of a record or enum under the name name.
func (u *unit) define(t cc.Type, name, comment string) (*model.Decl, error) {
	d := &model.Decl{C: name, Tag: tagOf(t), Comment: comment, Size: t.Size(), Align: int64(t.Align())}
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
	for i := range t.NumFields() {
		f := t.FieldByIndex(i)
		if f.IsBitfield() || f.IsFlexibleArrayMember() {
			return fmt.Errorf("%s.%s: unhandled bit field or flexible array", d.C, f.Name())
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
		field := &model.Field{C: f.Name(), Type: ft, Offset: f.Offset()}
		d.Fields = append(d.Fields, field)
		if dd := f.Declarator(); dd != nil {
			u.members[at(dd.NameTok())] = &field.Comment
		}
	}
	return nil
}

// fieldType resolves a member's type. A record defined in place becomes a
// declaration named after its parent and member.
func (u *unit) fieldType(parent *model.Decl, f *cc.Field, i int) (*model.Type, error) {
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
		CPath: memberPath(parent, f.Name(), length > 0), Size: t.Size(), Align: int64(t.Align()),
	}
	if t.Kind() == cc.Union {
		nested.Kind = model.Union
	}
	if err := u.fields(nested, t.(record)); err != nil {
		return nil, err
	}
	u.nested[parent] = append(u.nested[parent], nested)
	typ := named(nested)
	if length > 0 {
		typ = &model.Type{Kind: model.Array, Elem: typ, Len: length, Size: f.Type().Size(), Align: typ.Align}
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

// typ resolves a type as it is used.
func (u *unit) typ(t cc.Type) (*model.Type, error) {
	konst := t.Attributes().IsConst()
	if td := t.Typedef(); td != nil {
		if d := u.decls[td.Name()]; d != nil {
			n := named(d)
			n.C, n.Const = td.Name(), konst
			return n, nil
		}
	}
	switch t := t.(type) {
	case *cc.PointerType:
		if fn, ok := t.Elem().(*cc.FunctionType); ok {
			return nil, fmt.Errorf("unhandled pointer to a function without a typedef: %s", fn)
		}
		elem, err := u.typ(t.Elem())
		if err != nil {
			return nil, err
		}
		return &model.Type{Kind: model.Pointer, Elem: elem, Const: konst, Size: 8, Align: 8}, nil
	case *cc.ArrayType:
		elem, err := u.typ(t.Elem())
		if err != nil {
			return nil, err
		}
		if t.Len() < 0 {
			return nil, fmt.Errorf("unhandled array without a length")
		}
		return &model.Type{Kind: model.Array, Elem: elem, Len: t.Len(), Size: t.Size(), Align: elem.Align}, nil
	}
	if tag := tagOf(t); tag != "" {
		if d := u.decls[spell(t, tag)]; d != nil {
			n := named(d)
			n.Const = konst
			return n, nil
		}
		return nil, fmt.Errorf("unhandled use of %s, which nothing declares", spell(t, tag))
	}
	if t.Kind() == cc.Void {
		return &model.Type{Kind: model.Void, Const: konst}, nil
	}
	n, err := u.number(t)
	if err != nil {
		return nil, err
	}
	n.Const = konst
	return n, nil
}

// qualify sets the const of the pointers that a declarator writes, innermost
// first: the front end's types do not keep it.
func qualify(t *model.Type, written *cc.Pointer) {
	var levels []*model.Type
	for ; t.Kind == model.Pointer || t.Kind == model.Array; t = t.Elem {
		levels = append(levels, t)
	}
	for i := len(levels) - 1; i >= 0 && written != nil; i-- {
		for q := written.TypeQualifiers; q != nil; q = q.TypeQualifiers {
			if q.TypeQualifier.Case == cc.TypeQualifierConst {
				levels[i].Const = true
			}
		}
		written = written.Pointer
	}
}

// number resolves a number type. One that has a name of its own keeps it.
func (u *unit) number(t cc.Type) (*model.Type, error) {
	c := numbers[t.Kind()]
	if td := t.Typedef(); td != nil {
		if _, ok := model.BasicName(td.Name()); ok {
			c = td.Name()
		}
	}
	g, ok := model.BasicName(c)
	if !ok {
		return nil, fmt.Errorf("unhandled type %s", t)
	}
	return &model.Type{Kind: model.Basic, C: c, Go: g, Size: t.Size(), Align: int64(t.Align())}, nil
}

var numbers = map[cc.Kind]string{
	cc.Char: "char", cc.SChar: "signed char", cc.UChar: "unsigned char",
	cc.Short: "short", cc.UShort: "unsigned short", cc.Int: "int", cc.UInt: "unsigned int",
	cc.Long: "long", cc.ULong: "unsigned long", cc.LongLong: "long long", cc.ULongLong: "unsigned long long",
	cc.Float: "float", cc.Double: "double",
}

func named(d *model.Decl) *model.Type {
	return &model.Type{Kind: model.Named, C: d.C, Size: d.Size, Align: d.Align, Decl: d}
}

func tagOf(t cc.Type) string {
	switch t := t.(type) {
	case *cc.StructType:
		tok := t.Tag()
		return tok.SrcStr()
	case *cc.UnionType:
		tok := t.Tag()
		return tok.SrcStr()
	case *cc.EnumType:
		tok := t.Tag()
		return tok.SrcStr()
	}
	return ""
}

func spell(t cc.Type, tag string) string {
	switch t.Kind() {
	case cc.Union:
		return "union " + tag
	case cc.Enum:
		return "enum " + tag
	}
	return "struct " + tag
}

func kindWord(k model.DeclKind) string {
	return map[model.DeclKind]string{model.Struct: "struct", model.Union: "union", model.Enum: "enum"}[k]
}

func intValue(v cc.Value) (int64, bool) {
	switch v := v.(type) {
	case cc.Int64Value:
		return int64(v), true
	case cc.UInt64Value:
		return int64(v), true
	}
	return 0, false
}
