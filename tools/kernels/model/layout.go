package model

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/tools/kernels/read"
)

// named returns the Go type for a struct, union or enum, which the first unit that uses it declares.
func (p *Package) named(t *read.Type) (*Type, error) {
	key := fmt.Sprint(t.Name, "|", t.At.File, "|", t.At.Line, "|", t.Size, "|", t.Kind)
	for _, f := range t.Fields { // tell types apart that one line declares
		key += fmt.Sprint("|", f.Name, f.Offset, f.Bit, f.Bits, shape(f.Type))
	}
	for _, v := range t.Values {
		key += fmt.Sprint("|", v.Name, v.Value)
	}
	if n := p.types[key]; n != nil {
		if !n.done { // it holds a pointer to itself
			return n, nil
		}
		p.unit.Long = p.unit.Long || n.unit.Long // the file that declares it is not there on Windows
		return n, n.err
	}
	n := &Type{unit: p.unit, Kind: "struct", C: t.Name, At: fmt.Sprintf("%s:%d", filepath.Base(t.At.File), t.At.Line), Size: t.Size, Align: 1, Doc: p.comment(t.At), of: t}
	switch t.Kind {
	case read.Union:
		n.Kind = "union"
	case read.Enum:
		n.Kind = "enum"
	}
	p.types[key] = n
	if n.Go, n.err = p.typeName(t); n.err == nil {
		if t.Kind == read.Enum {
			n.err = p.enum(n)
		} else {
			n.err = p.layout(n)
		}
	}
	n.done = true
	if n.err == nil {
		p.unit.Types = append(p.unit.Types, n)
	}
	return n, n.err
}

// shape tells the types of fields apart. Of what a pointer points to, another source may know less.
func shape(t *read.Type) string {
	switch {
	case t.Kind == read.Pointer:
		return fmt.Sprint("*", t.Elem.Name)
	case t.Elem != nil:
		return fmt.Sprint(t.Len, shape(t.Elem))
	}
	return fmt.Sprint(t.Kind, t.Name, t.Size, t.Float, t.Signed)
}

// enum chooses the underlying type, and the names of the enumerators.
func (p *Package) enum(n *Type) error {
	t := n.of
	signed := t.Signed || t.Size == 4 && !slices.ContainsFunc(t.Values, func(v read.Value) bool { return v.Value > 1<<31-1 })
	sign := "uint"
	if signed {
		sign = "int"
	}
	n.Enum = &Go{Name: fmt.Sprint(sign, t.Size*8), Size: t.Size, Align: t.Size}
	n.Align = t.Size
	for _, v := range t.Values {
		value := fmt.Sprint(v.Value)
		if !signed && v.Value < 0 {
			value = fmt.Sprint(uint64(v.Value) & (1<<(8*t.Size-1)*2 - 1))
		}
		name := Camel(v.Name)
		if len(name) <= len(n.Go) || name[:len(n.Go)] != n.Go {
			name = n.Go + name
		}
		name = p.renamed(v.Name, t.At.Line, name)
		if err := p.take(name, fmt.Sprintf("enumerator %s of %s", v.Name, t.Name), v.Name, t.At); err != nil {
			return err
		}
		n.Values = append(n.Values, Constant{name, value})
	}
	return nil
}

// flat returns the fields of t from the offset at on, with those of unnamed members and of bases
// that overlap another field among them.
func flat(t *read.Type, at int64) (all []read.Field) {
	for _, f := range t.Fields {
		empty := f.Type.Size == 0 && f.Bits == 0 || (f.Type.Kind == read.Struct && len(f.Type.Fields) == 0)
		if empty {
			continue
		}
		inside := f.Type.Kind == read.Union || f.Type.Kind == read.Struct
		switch {
		case f.Name == "" && !f.Base && inside, f.Base && (overlaps(t, f) || cutOff(f.Type)):
			all = append(all, flat(f.Type, at+f.Offset)...)
			continue
		case f.Name == "" && !f.Base: // an unnamed bit-field
			continue
		case f.Base:
			f.Name = f.Type.Name
		}
		f.Offset += at
		all = append(all, f)
	}
	return all
}

// cutOff tells whether a base's type is one that NVRTC has made: without the padding at the end, where the derived
// type has fields.
func cutOff(t *read.Type) bool { return strings.HasPrefix(t.Name, "__SO__") }

// overlaps tells whether another field of t lies inside of the base b, as in its padding.
func overlaps(t *read.Type, b read.Field) bool {
	return slices.ContainsFunc(t.Fields, func(o read.Field) bool {
		same := o.Offset == b.Offset && o.Type == b.Type && o.Base
		to := end(o)
		if o.Base { // without the padding at its end, as of the types of cutOff
			to = o.Offset
			for _, f := range flat(o.Type, o.Offset) {
				to = max(to, end(f))
			}
		}
		return !same && o.Type.Size > 0 && len(o.Type.Fields)+len(o.Name) > 0 && o.Offset < b.Offset+b.Type.Size && to > b.Offset
	})
}

func end(f read.Field) int64 {
	if f.Bits > 0 {
		return f.Offset + (f.Bit+f.Bits+7)/8
	}
	return f.Offset + f.Type.Size
}

// layout finds Go fields that lie where those of C++ lie. What Go cannot place there, such as
// unions, bit-fields and packed fields, becomes bytes with methods.
func (p *Package) layout(n *Type) error {
	fields := flat(n.of, 0)
	slices.SortStableFunc(fields, func(a, b read.Field) int { return int(a.Offset - b.Offset) })
	limit := n.Size & -n.Size // the largest alignment that keeps the size
	names := map[string]bool{}
	for len(fields) > 0 {
		group := fields[:1]
		to := end(fields[0])
		for len(group) < len(fields) && fields[len(group)].Offset < to {
			to = max(to, end(fields[len(group)]))
			group = fields[:len(group)+1]
		}
		fields = fields[len(group):]
		slot, err := p.slot(n, group, to, limit)
		if err != nil {
			return err
		}
		for names[slot.Name] {
			slot.Name += "_"
		}
		names[slot.Name] = true
		n.Slots = append(n.Slots, slot)
	}
	for i := range n.Slots {
		for j := range n.Slots[i].Members {
			m := &n.Slots[i].Members[j]
			for names[m.Name] || names["Set"+m.Name] {
				m.Name += "_"
			}
			names[m.Name], names["Set"+m.Name] = true, true
		}
	}
	return nil
}

// slot returns the field for a group of fields that overlap, which is one field as a rule.
func (p *Package) slot(n *Type, group []read.Field, to, limit int64) (Slot, error) {
	f, from := group[0], group[0].Offset
	types := make([]*Go, len(group))
	for i, f := range group {
		p.hint = n.Go + Camel(f.Name)
		var err error
		if types[i], err = p.goType(f.Type); err != nil {
			return Slot{}, fmt.Errorf("%s.%s: %w", n.C, f.Name, err)
		}
	}
	g := types[0]
	if len(group) == 1 && f.Bits == 0 && from%g.Align == 0 && g.Align <= limit && g.Size == f.Type.Size {
		n.Align = max(n.Align, g.Align)
		s := Slot{Name: Camel(f.Name), Type: g, Offset: from, Embed: f.Base, Comment: inC(f.Type)}
		s.Pass, s.Elem = p.inView(f.Type, g)
		if f.Base {
			s.Name = g.Name
		}
		return s, nil
	}
	s := Slot{Name: fmt.Sprint("storage", from), Type: &Go{Elem: &Go{Name: "byte", Size: 1, Align: 1}, Len: to - from, Size: to - from, Align: 1}, Offset: from}
	for i, f := range group {
		m := Member{Name: Camel(f.Name), Type: types[i], Kind: "a member of a union", Offset: f.Offset - from, Bit: f.Bit, Bits: f.Bits, Signed: f.Type.Signed}
		switch {
		case f.Bits > 0:
			m.Kind = fmt.Sprintf("a bit-field of %d bits", f.Bits)
			if f.Bits == 1 {
				m.Kind = "a bit-field of 1 bit"
			}
			p.unit.Bits = p.shares(&p.bits)
		default:
			if len(group) == 1 {
				m.Kind = "a packed field"
			}
			p.unit.Copies = p.shares(&p.copies)
		}
		s.Members = append(s.Members, m)
	}
	return s, nil
}

// inC is the type in C++ where the Go type does not tell it.
func inC(t *read.Type) string {
	if t.Kind == read.Number && (t.Bool || t.Name == "char") || t.Kind == read.Pointer {
		return CName(t)
	}
	return ""
}

// inView returns how the form for the host passes a field.
func (p *Package) inView(t *read.Type, g *Go) (Pass, *Go) {
	switch {
	case !p.pointers(t):
		return Value, nil
	case t.Kind == read.Number:
		return Object, &Go{Name: string(t.Handle), Package: Safe, Object: true}
	case t.Kind == read.Struct:
		return View, nil
	case opaque(t.Elem):
		return VoidPointer, nil
	}
	return Pointer, g.Elem
}
