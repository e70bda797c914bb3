package parse

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"modernc.org/cc/v4"
)

// A definition is a record that a header defines. The front end knows bit fields of one
// system alone and takes no notice of packing, so that layouts are made here.
type definition struct {
	on        [len(systems)]layout
	differs   [len(systems)]bool // from the first one, also inside of members
	unlike    bool               // the front end, or a system, has another layout
	byPointer string             // why C's way to pass it by value is not known, "" where it is
	err       error              // why its layout is not known
}

// definitions lays out all records that the headers define, in their order, and notes which functions they define and
// which types are the system's.
func (u *unit) definitions() {
	for l := u.ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		switch d := l.ExternalDeclaration; {
		case d == nil:
		case d.Case == cc.ExternalDeclarationFuncDef:
			u.bodies[d.FunctionDefinition.Declarator.Name()] = !u.row.Inline
			u.specifiers(d.FunctionDefinition.DeclarationSpecifiers, nil)
		case d.Case == cc.ExternalDeclarationDecl && d.Declaration.Case == cc.DeclarationAssert:
			u.packs.mark(d.Declaration)
		case d.Case == cc.ExternalDeclarationDecl:
			s := d.Declaration.DeclarationSpecifiers
			u.specifiers(s, d.Declaration.AttributeSpecifierList)
			if s != nil && !u.ours(d) {
				u.system[spell(s.Type(), tagOf(s.Type()))] = true
			}
		}
	}
}

// specifiers lays out what a declaration defines. last are the attributes at its end.
func (u *unit) specifiers(l *cc.DeclarationSpecifiers, last *cc.AttributeSpecifierList) {
	var enum enumSpecifier
	for ; l != nil; l = l.DeclarationSpecifiers {
		u.specified(l.TypeSpecifier)
		m, _ := attributes(l.AttributeSpecifierList) // resized returns the error
		enum.next(l.TypeSpecifier, m)
	}
	m, _ := attributes(last)
	enum.next(nil, m)
	u.pack(enum)
}

// specified lays out a record that a type specifier defines.
func (u *unit) specified(t *cc.TypeSpecifier) {
	if t != nil && t.StructOrUnionSpecifier != nil {
		u.definition(t.StructOrUnionSpecifier)
	}
}

// An enumSpecifier is the definition of an enum among the specifiers of a declaration.
type enumSpecifier struct {
	defines *cc.EnumSpecifier // nil where there is none
	packed  bool
}

// next takes the next specifier, which is a type or attributes, and returns what is left of these for what the
// declaration names: C packs an enum by those behind its values or behind the word enum.
func (e *enumSpecifier) next(t *cc.TypeSpecifier, m mark) mark {
	if m.enum || m.packed && e.defines != nil {
		e.packed, m.packed = true, false
	}
	if t != nil && t.EnumSpecifier != nil && t.EnumSpecifier.Case == cc.EnumSpecifierDef {
		e.defines = t.EnumSpecifier
	}
	return m
}

// pack notes the size of an enum that is packed: the least that holds its values.
func (u *unit) pack(e enumSpecifier) {
	if !e.packed || e.defines == nil {
		return
	}
	t, ok := e.defines.Type().(*cc.EnumType)
	if !ok || firstValue(t) == nil {
		return
	}
	_, signed, _ := enumValues(t, 8) // define returns the error
	size := 1
	for _, e := range t.Enumerators() {
		v, _ := intValue(e.Value())
		need := bits.Len64(uint64(v))
		if signed {
			need = bits.Len64(uint64(max(v, ^v))) + 1
		}
		for 8*size < need {
			size *= 2
		}
	}
	u.packed[firstValue(t)] = int64(size)
}

// definition lays one record out, after those that are defined inside it.
func (u *unit) definition(s *cc.StructOrUnionSpecifier) {
	t, ok := s.Type().(record)
	if s.Case != cc.StructOrUnionSpecifierDef || !ok {
		return
	}
	def := &definition{}
	var marks []mark // of the members' declarations, one each
	for l := s.StructDeclarationList; l != nil; l = l.StructDeclarationList {
		d := l.StructDeclaration
		if d.Case == cc.StructDeclarationAssert {
			u.packs.mark(d.StaticAssertDeclaration)
			continue
		}
		for q := d.SpecifierQualifierList; q != nil; q = q.SpecifierQualifierList {
			u.specified(q.TypeSpecifier)
		}
		more, err := u.memberMarks(d)
		marks, def.err = append(marks, more...), errors.Join(def.err, err)
	}
	own, err := attributes(s.AttributeSpecifierList, s.AttributeSpecifierList2)
	if def.err = errors.Join(def.err, err, u.packs.err); def.err == nil && len(marks) != t.NumFields() {
		def.err = errors.New("the generator does not know its members")
	}
	for i := range t.NumFields() {
		f := t.FieldByIndex(i)
		switch in := u.definitionOf(f.Type()); {
		case def.err != nil:
		case in != nil:
			def.err = in.err
		case holdsRecord(f.Type()):
			def.err = fmt.Errorf("its member %s is of a type that is not defined in front of it", f.Name())
		}
	}
	if def.err == nil {
		u.lay(def, t, own, marks)
	}
	if t.NumFields() > 0 {
		u.defined[t.FieldByIndex(0)] = def
	}
}

// lay makes the layouts of a record.
func (u *unit) lay(def *definition, t record, own mark, marks []mark) {
	union, changed := t.Kind() == cc.Union, false
	for i, s := range systems {
		members, plain := u.membersOf(t, own, marks, i)
		def.on[i] = s.lay(members, union, own.aligned, u.packs.align)
		changed = changed || !s.lay(plain, union, own.aligned, 0).same(def.on[i])
		def.differs[i] = !def.on[i].same(def.on[0])
		def.unlike = def.unlike || def.differs[i] || !def.on[i].is(t)
	}
	first := def.on[0]
	switch {
	case first.align > 8:
		def.byPointer = fmt.Sprintf("it is aligned to %d bytes, and arguments to 8", first.align)
	case slices.ContainsFunc(def.on[1:], func(l layout) bool { return l.size != first.size || l.align != first.align }):
		def.byPointer = "its size differs between Linux on amd64, Linux on arm64 and Windows"
	case changed:
		def.byPointer = "it is packed, or its members are aligned"
	}
	for i := range t.NumFields() {
		f := t.FieldByIndex(i)
		in := u.definitionOf(f.Type())
		if in == nil {
			in = &definition{}
		}
		for s := range systems {
			def.differs[s] = def.differs[s] || in.differs[s]
		}
		def.unlike = def.unlike || in.unlike
		switch {
		case def.byPointer != "":
		case in.byPointer != "":
			def.byPointer = "of a member: " + strings.TrimPrefix(in.byPointer, "of a member: ")
		case f.IsBitfield() && f.Name() == "":
			def.byPointer = "it has bit fields without a name"
		}
		if size, align := u.measure(f.Type(), 0); f.IsBitfield() && align != size {
			def.err = fmt.Errorf("its bit field %s is of a type that is aligned to %d", f.Name(), align)
		}
	}
}

// membersOf are the members of a record, and what they would be as their types say alone.
func (u *unit) membersOf(t record, own mark, marks []mark, system int) (members, plain []member) {
	for i, mark := range marks {
		f := t.FieldByIndex(i)
		m := member{named: f.Name() != "", bitField: f.IsBitfield(), bits: f.ValueBits()}
		m.size, m.align = u.natural(f.Type(), system)
		plain = append(plain, m)
		m.size, m.align = u.measure(f.Type(), system)
		m.packed, m.own = mark.packed || own.packed, mark.aligned
		members = append(members, m)
	}
	return members, plain
}

// is tells whether the front end has the same layout, but for bit fields.
func (l layout) is(t record) bool {
	for i, at := range l.at {
		if f := t.FieldByIndex(i); !f.IsBitfield() && 8*f.Offset() != at {
			return false
		}
	}
	return l.size == t.Size() && l.align == int64(t.Align())
}

func (l layout) same(m layout) bool {
	return l.size == m.size && l.align == m.align && slices.Equal(l.at, m.at)
}

// holdsRecord tells whether a type is a record with members, or an array of them.
func holdsRecord(t cc.Type) bool {
	for t.Kind() == cc.Array {
		t = t.(*cc.ArrayType).Elem()
	}
	r, ok := t.(record)
	return ok && r.NumFields() > 0
}

// definitionOf is the definition of a record, or of the elements of an array of them; nil for
// other types.
func (u *unit) definitionOf(t cc.Type) *definition {
	for t.Kind() == cc.Array {
		t = t.(*cc.ArrayType).Elem()
	}
	if r, ok := t.(record); ok && r.NumFields() > 0 {
		return u.defined[r.FieldByIndex(0)]
	}
	return nil
}

// size is that of a type on the first system.
func (u *unit) size(t cc.Type) int64 {
	size, _ := u.measure(t, 0)
	return size
}

// natural is the size and the alignment of a type on a system, as long as no typedef gives it
// another alignment.
func (u *unit) natural(t cc.Type, system int) (size, align int64) {
	switch d := u.definitionOf(t); {
	case t.Kind() == cc.Array:
		size, align = u.natural(t.(*cc.ArrayType).Elem(), system)
		return size * t.(*cc.ArrayType).Len(), align
	case d != nil:
		return d.on[system].size, d.on[system].align
	case t.Kind() == cc.Struct, t.Kind() == cc.Union:
		return t.Size(), int64(t.Align())
	case t.Kind() == cc.ComplexFloat:
		return t.Size(), t.Size() / 2
	}
	size = cmp.Or(u.packed[firstValue(t)], t.Size())
	return size, max(min(size, 8), 1)
}

// measure is the size and the alignment of a type on a system.
func (u *unit) measure(t cc.Type, system int) (size, align int64) {
	size, align = u.natural(t, system)
	if a, ok := t.(*cc.ArrayType); ok {
		_, align = u.measure(a.Elem(), system)
	}
	if td := t.Typedef(); td != nil {
		if a := td.Type().Attributes(); a != nil && a.Aligned() > 0 {
			align = a.Aligned()
		}
	}
	return size, align
}

// A mark is what attributes say of a layout.
type mark struct {
	packed  bool
	enum    bool  // an enum is packed by attributes behind the word
	aligned int64 // 0 where they say nothing
}

// memberMarks are those of the members that d declares.
func (u *unit) memberMarks(d *cc.StructDeclaration) ([]mark, error) {
	all, err := attributes()
	var enum enumSpecifier
	for q := d.SpecifierQualifierList; q != nil; q = q.SpecifierQualifierList {
		lists := []*cc.AttributeSpecifierList{q.AttributeSpecifierList}
		if q.TypeQualifier != nil {
			lists = append(lists, q.TypeQualifier.AttributeSpecifierList)
		}
		m, wrong := attributes(lists...)
		m = enum.next(q.TypeSpecifier, m)
		all.packed, all.aligned = all.packed || m.packed, max(all.aligned, m.aligned)
		if q.AlignmentSpecifier != nil {
			n, ok := alignas(q.AlignmentSpecifier)
			if !ok {
				wrong = fmt.Errorf("the generator does not know %s", cc.NodeSource(q.AlignmentSpecifier))
			}
			all.aligned = max(all.aligned, n)
		}
		err = errors.Join(err, wrong)
	}
	u.pack(enum)
	marks := []mark{}
	for l := d.StructDeclaratorList; l != nil; l = l.StructDeclaratorList {
		marks = append(marks, all)
		if slices.ContainsFunc(cc.NodeTokens(l.StructDeclarator), func(t cc.Token) bool { return t.SrcStr() == "__attribute__" }) {
			err = errors.Join(err, fmt.Errorf("an attribute of a layout inside of %s", cc.NodeSource(l.StructDeclarator)))
		}
	}
	if len(marks) == 0 {
		marks = append(marks, all)
	}
	last, wrong := attributes(d.AttributeSpecifierList)
	own := &marks[len(marks)-1]
	own.packed, own.aligned = own.packed || last.packed, max(own.aligned, last.aligned)
	return marks, errors.Join(err, wrong)
}

// resized is an error for attributes of a declaration that give a number another size, which
// the front end does not know. tokens are those of d.
func resized(d *cc.Declaration, tokens []cc.Token) error {
	lists := []*cc.AttributeSpecifierList{d.AttributeSpecifierList}
	for l := d.InitDeclaratorList; l != nil; l = l.InitDeclaratorList {
		lists = append(lists, l.AttributeSpecifierList, l.InitDeclarator.AttributeSpecifierList)
	}
	for s := d.DeclarationSpecifiers; s != nil; s = s.DeclarationSpecifiers {
		lists = append(lists, s.AttributeSpecifierList)
	}
	_, err := attributes(lists...)
	if err == nil && alignedToMost(d, tokens) {
		err = errors.New("an alignment that the generator does not know")
	}
	return err
}

// alignedToMost tells whether d aligns what it names without a number, which the front end
// takes for nothing.
func alignedToMost(d *cc.Declaration, tokens []cc.Token) bool {
	named := false // whether a name stands in front, behind the members of a record
	for i, t := range tokens {
		switch text := t.SrcStr(); {
		case text == "{", text == "}":
			named = false
		case d.InitDeclaratorList != nil && text == d.InitDeclaratorList.InitDeclarator.Declarator.Name():
			named = true
		case named && strings.Trim(text, "_") == "aligned" && i+1 < len(tokens) && tokens[i+1].SrcStr() != "(":
			return true
		}
	}
	return false
}

func alignas(s *cc.AlignmentSpecifier) (int64, bool) {
	if s.Case == cc.AlignmentSpecifierType {
		return int64(s.TypeName.Type().Align()), true
	}
	return intValue(s.ConstantExpression.Value())
}

// attributes reads what lists of attributes say of a layout. Those that change one in a way
// that is not known here are an error.
func attributes(lists ...*cc.AttributeSpecifierList) (m mark, err error) {
	for _, l := range lists {
		for ; l != nil; l = l.AttributeSpecifierList {
			for v := l.AttributeSpecifier.AttributeValueList; v != nil; v = v.AttributeValueList {
				a := v.AttributeValue
				switch name := strings.Trim(a.Token.SrcStr(), "_"); name {
				case "packed":
					m.packed = true
				case packedEnum:
					m.enum = true
				case "aligned":
					n, ok := int64(16), true // without a number: the most that any type needs
					if a.ArgumentExpressionList != nil {
						n, ok = intValue(a.ArgumentExpressionList.AssignmentExpression.Value())
					}
					if !ok {
						err = fmt.Errorf("the generator does not know %s", cc.NodeSource(a))
					}
					m.aligned = max(m.aligned, n)
				case "mode", "vector_size", "ms_struct", "gcc_struct", "scalar_storage_order", "transparent_union":
					err = fmt.Errorf("the generator does not know what the attribute %s makes of it", name)
				}
			}
		}
	}
	return m, err
}
