package parse

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

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
		return fmt.Errorf("a declaration of a %s without a name", t.Kind())
	}
	if d := u.decls[spell(t, tag)]; d != nil {
		d.Comment = cmp.Or(d.Comment, comment) // something in front of the definition has it already
		return nil
	}
	_, err := u.define(t, spell(t, tag), comment)
	return err
}

// typedef takes one typedef.
func (u *unit) typedef(d *cc.Declaration, dd *cc.Declarator, comment string) error {
	name, t := dd.Name(), dd.Type()
	if _, ok := basicName(name, t); ok && u.row.Own != nil {
		return nil
	}
	if target := u.renamed(d, dd); target != nil {
		if target.C == "struct "+name || target.C == "union "+name || target.C == "enum "+name {
			target.C = name // a typedef that repeats the tag
			u.decls[name] = target
			u.alike(name, target.Tag)
			return nil
		}
		if target.Package != "" && u.owns(u.file) { // a second name of another package's type
			t := &model.Type{Kind: model.Named, C: target.C, Go: target.Go, Size: target.Size, Align: target.Align, Decl: target}
			u.add(&model.Decl{Kind: model.Second, C: name, Comment: comment, Underlying: t, Size: t.Size, Align: t.Align})
			return nil
		}
		u.decls[name] = target
		u.alike(name, target.C)
		u.aliases = append(u.aliases, &model.Alias{C: name, Target: target.C})
		u.ownAlias[name] = u.owns(u.file) && u.binds(name)
		return nil
	}
	switch t.Kind() {
	case cc.Struct, cc.Union, cc.Enum:
		if t.IsIncomplete() {
			u.incomplete(t, name, comment)
			return nil
		}
		_, err := u.define(t, name, comment)
		return err
	case cc.Ptr:
		return u.pointerTypedef(dd, t.(*cc.PointerType).Elem(), comment)
	case cc.Array:
		return u.second(dd, comment)
	case cc.Void:
		u.void[name] = true
		return nil
	case cc.Function:
		return nil // a pointer to one is a number
	}
	if _, ok := basicName(name, t); ok {
		return nil // a second name for a number that Go has too
	}
	under, err := u.number(t)
	if err != nil {
		return err
	}
	if td := d.DeclarationSpecifiers.Type().Typedef(); td != nil {
		if _, under.Fixed = basicName(td.Name(), t); td.Name() == float16 {
			under.C = float16
		}
	}
	u.add(&model.Decl{Kind: model.Scalar, C: name, Comment: comment, Underlying: under, Size: t.Size(), Align: int64(t.Align()), ByPointer: byPointer(under)})
	return nil
}

// renamed is the declaration that a typedef gives a second name, nil where the
// typedef is a declaration of its own.
func (u *unit) renamed(d *cc.Declaration, dd *cc.Declarator) *model.Decl {
	if !isName(dd) {
		return nil
	}
	if known := u.untagged[untaggedKey(dd.Type())]; known != nil {
		return known
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

// incomplete adds a record that no header defines.
func (u *unit) incomplete(t cc.Type, name, comment string) *model.Decl {
	d := &model.Decl{Kind: model.Incomplete, C: name, Tag: tagOf(t), Comment: comment}
	u.add(d)
	u.decls[spell(t, d.Tag)] = d
	return d
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
	case elem.Kind() == cc.Struct && elem.IsIncomplete() && u.decls[spell(elem, tagOf(elem))] == nil:
		d := &model.Decl{Kind: model.Handle, C: name, Tag: tagOf(elem), Comment: comment, Size: 8, Align: 8}
		u.add(d)
		return nil
	}
	return u.second(dd, comment)
}

// second takes a typedef of a pointer to something known, or of an array.
func (u *unit) second(dd *cc.Declarator, comment string) error {
	t, err := u.spelledOut(dd.Type())
	if err == nil && incomplete(t) {
		err = errors.New("an array of something whose layout is not known")
	}
	if err != nil {
		return err
	}
	u.add(&model.Decl{Kind: model.Second, C: dd.Name(), Comment: comment, Underlying: t, Size: t.Size, Align: t.Align})
	return nil
}

// spelledOut resolves a pointer or array type by what it is made of.
func (u *unit) spelledOut(t cc.Type) (*model.Type, error) {
	switch t := t.(type) {
	case *cc.PointerType:
		return u.pointer(t)
	case *cc.ArrayType:
		return u.array(t)
	}
	return nil, fmt.Errorf("no type of Go is like %s", t)
}

func (u *unit) add(d *model.Decl) {
	u.decls[d.C] = d
	if word := kindWord(d.Kind); d.Tag != "" && word != "" {
		u.decls[word+" "+d.Tag] = d
	}
	if d.Tag != "" && d.Kind == model.Handle {
		u.handles[d.Tag] = d
	}
	u.order = append(u.order, d)
	u.last = d
	if u.owns(u.file) && !u.binds(model.BareName(d.C)) {
		u.foreign[d] = true
	}
	if !u.owns(u.file) {
		u.foreign[d], d.Foreign = true, true
		if s := cmp.Or(u.shared[d.C], u.shared[kindWord(d.Kind)+" "+d.Tag]); s != nil {
			d.Package, d.Go, d.Error = s.Package, s.Go, s.Error
		}
	}
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
		if u.void[td.Name()] {
			return &model.Type{Kind: model.Void, C: td.Name(), Const: konst}, nil
		}
		if g, ok := basicName(td.Name(), t); ok && u.row.Own != nil {
			return &model.Type{Kind: model.Basic, C: td.Name(), Go: g, Size: t.Size(), Align: int64(t.Align()), Const: konst}, nil
		}
		if p, ok := t.(*cc.PointerType); ok && p.Elem().Kind() == cc.Void {
			return foreign(td.Name(), ""), nil
		}
	}
	switch t := t.(type) {
	case *cc.PointerType:
		if fn, ok := t.Elem().(*cc.FunctionType); ok {
			if td := fn.Typedef(); td != nil {
				return foreign("", td.Name()), nil
			}
			return foreign("", ""), nil
		}
		if d := u.handles[tagOf(t.Elem())]; d != nil && !t.Elem().Attributes().IsConst() {
			n := named(d) // spelled as what it points to
			n.Const = konst
			return n, nil
		}
		p, err := u.pointer(t)
		if err == nil {
			p.Const = konst
		}
		return p, err
	case *cc.ArrayType:
		return u.array(t)
	}
	if tag := tagOf(t); tag != "" {
		if tag == "__va_list_tag" {
			return nil, errVariable
		}
		if d := u.decls[spell(t, tag)]; d != nil {
			n := named(d)
			n.Const = konst
			return n, nil
		}
		if t.IsIncomplete() {
			return u.undefined(t, konst)
		}
		d, err := u.define(t, spell(t, tag), "") // the header does so further below, or in place
		if err != nil {
			u.leaveType(spell(t, tag), t, err)
			d = u.decls[spell(t, tag)]
		}
		n := named(d)
		n.Const = konst
		return n, nil
	}
	if d := u.untagged[untaggedKey(t)]; d != nil {
		n := named(d)
		n.Const = konst
		return n, nil
	}
	if enum, ok := t.(*cc.EnumType); ok {
		return u.enumInPlace(enum)
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

// undefined resolves a type that no header defines.
func (u *unit) undefined(t cc.Type, konst bool) (*model.Type, error) {
	c := spell(t, tagOf(t))
	switch {
	case u.row.Own == nil:
		return nil, fmt.Errorf("nothing declares %s", c)
	case u.handles[tagOf(t)] != nil || u.system[c]:
		return &model.Type{Kind: model.Void, C: c, Const: konst}, nil
	}
	n := named(u.incomplete(t, c, ""))
	n.Const = konst
	return n, nil
}

// pointer resolves a pointer by what it points to. What Go has no type for is anything.
func (u *unit) pointer(t *cc.PointerType) (*model.Type, error) {
	elem, err := u.typ(t.Elem())
	if _, known := numbers[t.Elem().Kind()]; err != nil && !known && tagOf(t.Elem()) == "" && t.Elem().Kind() != cc.Array {
		elem, err = &model.Type{Kind: model.Void, Const: t.Elem().Attributes().IsConst()}, nil
	}
	if err != nil {
		return nil, err
	}
	return &model.Type{Kind: model.Pointer, Elem: elem, Size: 8, Align: 8}, nil
}

func (u *unit) array(t *cc.ArrayType) (*model.Type, error) {
	elem, err := u.typ(t.Elem())
	if err == nil && t.Len() < 0 {
		err = errors.New("it is an array without a length")
	}
	if err != nil {
		return nil, err
	}
	return &model.Type{Kind: model.Array, Elem: elem, Len: t.Len(), Size: u.size(t), Align: elem.Align}, nil
}

// foreign is a handle of another system, which its header gives a name, or a pointer to a
// function that one names: no Go pointer, and so a number.
func foreign(handle, function string) *model.Type {
	return &model.Type{Kind: model.Pointer, C: handle, Go: "uintptr", Elem: &model.Type{Kind: model.Void, C: function}, Size: 8, Align: 8}
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
		if _, ok := basicName(td.Name(), t); ok {
			c = td.Name()
		}
	}
	g, ok := model.BasicName(c)
	if !ok {
		return nil, fmt.Errorf("no type of Go is like %s", t)
	}
	return &model.Type{Kind: model.Basic, C: c, Go: g, Size: t.Size(), Align: int64(t.Align())}, nil
}

// basicName is the Go name of a number type by its name in C, unless the headers give that name to something else.
func basicName(c string, t cc.Type) (string, bool) {
	g, ok := model.BasicName(c)
	return g, ok && t.Size() == model.BasicSize(g) && isFloating(t) == strings.HasPrefix(g, "float")
}

var numbers = map[cc.Kind]string{
	cc.Char: "char", cc.SChar: "signed char", cc.UChar: "unsigned char",
	cc.Short: "short", cc.UShort: "unsigned short", cc.Int: "int", cc.UInt: "unsigned int",
	cc.Long: "long", cc.ULong: "unsigned long", cc.LongLong: "long long", cc.ULongLong: "unsigned long long",
	cc.Float: "float", cc.Double: "double", cc.Bool: "_Bool",
	cc.ComplexFloat: "cuComplex", cc.ComplexDouble: "cuDoubleComplex",
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

// name notes that d is t, which further declarators can be about.
func (u *unit) name(t cc.Type, d *model.Decl) {
	if key := untaggedKey(t); key != nil {
		u.untagged[key] = d
	}
}

// untaggedKey tells one record or enum without a tag from others, by what it begins with; nil for other types.
func untaggedKey(t cc.Type) any {
	switch t := t.(type) {
	case record:
		if t.NumFields() > 0 && tagOf(t) == "" {
			return t.FieldByIndex(0)
		}
	case *cc.EnumType:
		if first := firstValue(t); first != nil && tagOf(t) == "" {
			return first
		}
	}
	return nil
}

// firstValue is the value that an enum begins with, nil for other types and for an enum without values.
func firstValue(t cc.Type) *cc.Enumerator {
	if e, ok := t.(*cc.EnumType); ok && len(e.Enumerators()) > 0 {
		return e.Enumerators()[0]
	}
	return nil
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
