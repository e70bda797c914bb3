package model

import "slices"

// A Place is where a member lies in a record: so many bytes behind its start, and of a bit
// field so many bits behind these.
type Place struct{ Offset, Bit int64 }

// A Layout is how a system lays a record out.
type Layout struct {
	System      string // the name of its ABI
	Size, Align int64
	Places      []Place // of the members
}

// On is the record as a system lays it out.
func (d *Decl) On(system string) *Decl {
	for _, l := range d.Elsewhere {
		if l.System != system {
			continue
		}
		there := *d
		there.Size, there.Align, there.Fields = l.Size, l.Align, nil
		for i, f := range d.Fields {
			moved := *f
			moved.Place, moved.Type = l.Places[i], f.Type.on(system)
			there.Fields = append(there.Fields, &moved)
		}
		return &there
	}
	return d
}

func (t *Type) on(system string) *Type {
	there := *t
	switch {
	case t.Kind == Array:
		there.Elem = t.Elem.on(system)
		there.Size, there.Align = t.Len*there.Elem.Size, there.Elem.Align
	case t.Kind == Named && len(t.Decl.Elsewhere) > 0:
		there.Decl = t.Decl.On(system)
		there.Size, there.Align = there.Decl.Size, there.Decl.Align
	case t.Is(Second):
		under := t.Decl.Underlying.on(system)
		there.Size, there.Align = under.Size, under.Align
	}
	return &there
}

// GoAlign is the alignment that Go gives a type, which has none above that of a word.
func (t *Type) GoAlign() int64 {
	switch {
	case t.Kind == Array:
		return t.Elem.GoAlign()
	case t.Is(Struct), t.Is(Union):
		return min(t.Decl.Align, Slot)
	case t.Kind == Named && t.Decl.Underlying != nil:
		return t.Decl.Underlying.GoAlign()
	case t.Go == "complex64", t.Go == "complex128":
		return t.Size / 2
	}
	return max(min(t.Size, Slot), 1)
}

// Apart tells whether a member of d cannot be a field in Go, or a pointer to one: as a bit
// field, or since packing puts it where its type does not lie.
func (d *Decl) Apart(f *Field) bool {
	align := f.Type.GoAlign()
	return f.Bits > 0 || f.Offset%align != 0 || d.Align%align != 0
}

// HasPointer tells whether a value of the type holds a pointer in Go.
func (t *Type) HasPointer() bool {
	switch {
	case t.Kind == Pointer:
		return t.Go == ""
	case t.Kind == Array:
		return t.Elem.HasPointer()
	case t.Is(Struct), t.Is(Union):
		return slices.ContainsFunc(t.Decl.Fields, func(f *Field) bool { return f.Type.HasPointer() })
	case t.Is(Second):
		return t.Decl.Underlying.HasPointer()
	}
	return false
}
