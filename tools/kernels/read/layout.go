package read

import (
	"debug/dwarf"
	"strings"
)

func (r *reader) typeOf(e *dwarf.Entry) (*Type, error) {
	offset, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
	if !ok {
		return &Type{Kind: Void}, nil
	}
	return r.typeAt(offset)
}

// typeAt reads a type once. What a pointer points to it leaves to resolve, as that may be a type that is half read.
func (r *reader) typeAt(offset dwarf.Offset) (*Type, error) {
	if t := r.types[offset]; t != nil {
		return t, nil
	}
	entries := r.dwarf.Reader()
	entries.Seek(offset)
	e, err := entries.Next()
	if err != nil {
		return nil, err
	}
	t := &Type{}
	r.types[offset] = t
	name, _ := e.Val(dwarf.AttrName).(string)
	t.Size, _ = e.Val(dwarf.AttrByteSize).(int64)
	t.At = r.position(e)
	t.Name = plain(name)
	switch e.Tag {
	case dwarf.TagBaseType:
		encoding, _ := e.Val(dwarf.AttrEncoding).(int64)
		const boolean, float, signed, signedChar = 2, 4, 5, 6
		t.Float, t.Bool, t.Signed = encoding == float, encoding == boolean, encoding == signed || encoding == signedChar
	case dwarf.TagUnspecifiedType:
		t.Kind = Void
	case dwarf.TagTypedef, dwarf.TagConstType, dwarf.TagVolatileType, dwarf.TagRestrictType:
		return t, r.qualify(t, e)
	case dwarf.TagPointerType, dwarf.TagReferenceType, dwarf.TagRvalueReferenceType:
		t.Kind, t.Size, t.Reference = Pointer, 8, e.Tag != dwarf.TagPointerType
		r.later = append(r.later, func() (err error) { t.Elem, err = r.typeOf(e); return err })
	case dwarf.TagSubroutineType:
		t.Kind = Function
	case dwarf.TagArrayType:
		err = r.array(t, entries, e)
	case dwarf.TagEnumerationType:
		t.Kind = Enum
		err = r.values(t, entries, e)
	case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
		t.Kind = Struct
		if e.Tag == dwarf.TagUnionType {
			t.Kind = Union
		}
		err = r.fields(t, entries, e)
	default:
		t.Kind, t.Name = Other, strings.TrimSpace(e.Tag.String()+" "+name)
	}
	return t, err
}

// handles are CUDA's typedefs of numbers for a texture, a surface or a graph's condition.
var handles = map[string]Handle{
	"cudaTextureObject_t": Texture, "CUtexObject": Texture,
	"cudaSurfaceObject_t": Surface, "CUsurfObject": Surface,
	"cudaGraphConditionalHandle": Condition, "CUgraphConditionalHandle": Condition,
}

// qualify makes t what its typedef or qualifier is of.
func (r *reader) qualify(t *Type, e *dwarf.Entry) error {
	of, err := r.typeOf(e)
	if err != nil {
		return err
	}
	name, at := t.Name, t.At
	*t = *of
	if e.Tag == dwarf.TagTypedef {
		if t.Handle == "" && t.Typedef != "size_t" { // which say more than a program's names for them
			t.Typedef, t.Handle = name, handles[name]
		}
		if t.Name == "" {
			t.Name, t.At = name, at
		}
	}
	t.Const = t.Const || e.Tag == dwarf.TagConstType
	if t.Kind == Pointer {
		r.later = append(r.later, func() error { t.Elem = of.Elem; return nil })
	}
	return nil
}

// resolve reads what pointers point to, and those that it finds there.
func (r *reader) resolve() error {
	for len(r.later) > 0 {
		next := r.later[0]
		r.later = r.later[1:]
		if err := next(); err != nil {
			return err
		}
	}
	return nil
}

// skip skips the entries inside of e. The standard library's SkipChildren follows offsets, which may lead back.
func skip(entries *dwarf.Reader, e *dwarf.Entry) error {
	depth := 0
	for {
		switch {
		case e.Tag == 0:
			depth--
		case e.Children:
			depth++
		}
		if depth <= 0 {
			return nil
		}
		var err error
		if e, err = entries.Next(); err != nil || e == nil {
			return err
		}
	}
}

// children calls f for each entry inside of e.
func children(entries *dwarf.Reader, e *dwarf.Entry, f func(*dwarf.Entry) error) error {
	if !e.Children {
		return nil
	}
	for {
		c, err := entries.Next()
		if err != nil || c == nil || c.Tag == 0 {
			return err
		}
		if err := f(c); err != nil {
			return err
		}
		if err := skip(entries, c); err != nil {
			return err
		}
	}
}

// array reads an array, in C++'s order: the last dimension is the innermost.
func (r *reader) array(t *Type, entries *dwarf.Reader, e *dwarf.Entry) error {
	elem, err := r.typeOf(e)
	if err != nil {
		return err
	}
	var dims []int64
	err = children(entries, e, func(c *dwarf.Entry) error {
		n, _ := c.Val(dwarf.AttrCount).(int64)
		dims = append(dims, n)
		return nil
	})
	for i := len(dims) - 1; i >= 0; i-- {
		elem = &Type{Kind: Array, Elem: elem, Len: dims[i], Size: dims[i] * elem.Size, Const: elem.Const}
	}
	*t = *elem
	return err
}

func (r *reader) values(t *Type, entries *dwarf.Reader, e *dwarf.Entry) error {
	return children(entries, e, func(c *dwarf.Entry) error {
		name, _ := c.Val(dwarf.AttrName).(string)
		v, _ := c.Val(dwarf.AttrConstValue).(int64)
		name = qualified(name)
		t.Values = append(t.Values, Value{name[strings.LastIndex(name, ":")+1:], v})
		t.Signed = t.Signed || v < 0
		return nil
	})
}

func (r *reader) fields(t *Type, entries *dwarf.Reader, e *dwarf.Entry) error {
	return children(entries, e, func(c *dwarf.Entry) (err error) {
		if c.Tag != dwarf.TagMember && c.Tag != dwarf.TagInheritance {
			return nil
		}
		var f Field
		f.Name, _ = c.Val(dwarf.AttrName).(string)
		if f.Type, err = r.typeOf(c); err != nil {
			return err
		}
		offset, fixed := memberOffset(c)
		t.Virtual = t.Virtual || !fixed || f.Type.Virtual && f.Type.Kind == Struct
		f.Offset = offset
		for _, prefix := range []string{"__vptr", "__v_", "_vptr"} { // of a table of virtual functions
			t.Virtual = t.Virtual || strings.HasPrefix(f.Name, prefix)
		}
		if strings.HasPrefix(f.Name, "__b_") || c.Tag == dwarf.TagInheritance { // NVRTC before 13.5 has bases as members
			f.Base, f.Name = true, ""
		}
		if unnamed(f.Name) {
			f.Name = ""
		}
		if bits, ok := c.Val(dwarf.AttrBitSize).(int64); ok {
			f.bits(c, bits)
		}
		t.Fields = append(t.Fields, f)
		return nil
	})
}

// memberOffset returns where a member begins; false if only the program can tell, as of virtual bases.
func memberOffset(e *dwarf.Entry) (offset int64, fixed bool) {
	const plusConst = 0x23 // DW_OP_plus_uconst
	switch at := e.Val(dwarf.AttrDataMemberLoc).(type) {
	case int64:
		return at, true
	case []byte:
		if len(at) == 0 || at[0] != plusConst {
			return 0, false
		}
		for i, b := range at[1:] {
			offset |= int64(b&0x7f) << (7 * i)
		}
	}
	return offset, true
}

// bits reads where a bit-field is, from its lowest bit on.
func (f *Field) bits(e *dwarf.Entry, n int64) {
	f.Bits = n
	if at, ok := e.Val(dwarf.AttrDataBitOffset).(int64); ok { // NVRTC 13 for sm_100 and newer
		f.Offset, f.Bit = at/8, at%8
		return
	}
	unit, _ := e.Val(dwarf.AttrByteSize).(int64)
	fromTop, _ := e.Val(dwarf.AttrBitOffset).(int64)
	f.Bit = unit*8 - fromTop - n
	f.Offset, f.Bit = f.Offset+f.Bit/8, f.Bit%8
}
