package parse

// A system has C compilers that lay records out in a way of their own. The first one is what
// the model's sizes and offsets are about.
type system struct {
	name          string // of its ABI in the model
	microsoft     bool   // bit fields of types of different sizes share nothing
	unnamedAligns bool   // unnamed bit fields align the record as others do
}

var systems = [...]system{{name: "linux_amd64"}, {name: "linux_arm64", unnamedAligns: true}, {name: "windows_amd64", microsoft: true}}

// A member is what a layout depends on. Sizes and alignments are in bytes.
type member struct {
	size, align int64 // of its type
	named       bool
	bitField    bool
	bits        int64
	packed      bool
	own         int64 // the least alignment that its declaration asks for, 0 for none
}

// A layout is where a record's members lie, in bits.
type layout struct {
	size, align int64
	at          []int64
}

// A layer puts one member after the other. Positions and alignments are in bits.
type layer struct {
	system
	pack  int64 // the most alignment of a member, by a pragma; 0 for any
	at    int64
	align int64 // of the record

	// On Microsoft's side: the bit field that the open unit is of, nil for none, and the
	// unit's bits that are free.
	unit *member
	free int64
}

// lay lays a record out. Its own alignment and pack are in bytes.
func (s system) lay(members []member, union bool, own, pack int64) layout {
	l := layer{system: s, pack: 8 * pack, align: 8 * max(own, 1)}
	out := layout{}
	size := int64(0)
	for i := range members {
		m := &members[i]
		if union {
			l.at, l.unit, l.free = 0, nil, 0
		}
		out.at = append(out.at, l.place(m, i == len(members)-1 && !union))
		size = max(size, l.at)
	}
	out.align = l.align / 8
	out.size = roundUp((size+7)/8, out.align)
	return out
}

// place puts a member behind those before it and returns where.
func (l *layer) place(m *member, last bool) int64 {
	wanted := l.wants(m)
	l.align = max(l.align, l.gives(m, wanted))
	if l.microsoft {
		return l.placeMicrosoft(m, wanted, last)
	}
	l.at = roundUp(l.at, wanted)
	// A bit field lies within as many bytes as its type has, at a multiple of its type's alignment.
	if align := 8 * m.align; m.bits > 0 && !m.packed && l.pack == 0 && l.at%align+m.bits > 8*m.size {
		l.at = roundUp(l.at, align)
	}
	at := l.at
	l.at += m.length()
	return at
}

// length is how many bits a member takes.
func (m *member) length() int64 {
	if m.bitField {
		return m.bits
	}
	return 8 * m.size
}

// wants is the alignment that a member gets.
func (l *layer) wants(m *member) int64 {
	wanted := max(8*m.own, 1)
	switch {
	case m.bitField && m.bits == 0 && !l.microsoft:
		return max(wanted, 8*m.align) // packing says nothing of these
	case m.bitField && m.packed && m.own == 0:
		wanted = 1
	case m.bitField:
	case m.packed && m.own == 0:
		wanted = 8
	case !m.packed:
		wanted = max(wanted, 8*m.align)
	}
	return l.limited(wanted)
}

// gives is the alignment that a member gives to the record.
func (l *layer) gives(m *member, wanted int64) int64 {
	align := 8 * m.align
	switch {
	case !m.bitField:
		return wanted
	case l.microsoft && m.bits == 0 && l.unit == nil, l.microsoft && m.bits > 0 && m.packed:
		return 0
	case l.microsoft:
		return l.limited(max(align, wanted))
	case !m.named && !l.unnamedAligns:
		return 0
	case m.bits == 0:
		return max(align, wanted)
	case l.pack == 0 && m.packed:
		align = 8
	}
	return max(wanted, l.limited(align))
}

// limited is an alignment under the pragma.
func (l *layer) limited(align int64) int64 {
	if l.pack > 0 {
		return min(align, l.pack)
	}
	return align
}

// placeMicrosoft puts a bit field into the open unit if that is of a type of the same size and
// has room. Everything else closes the unit.
func (l *layer) placeMicrosoft(m *member, wanted int64, last bool) int64 {
	if u := l.unit; u != nil && m.bits > 0 && u.size == m.size && l.free >= m.bits {
		l.free -= m.bits
	} else {
		l.open(m, wanted)
	}
	at := l.at
	l.at += m.length()
	if last && m.bits > 0 {
		l.at += l.free
	}
	return at
}

// open closes the open unit and, for a bit field, opens one. Only what is not packed is aligned
// as its type, and a bit field only if the unit before is not of a type of the same size.
func (l *layer) open(m *member, wanted int64) {
	before := l.unit
	if before != nil && l.at%wanted == 0 {
		wanted = 1 // the alignment that a declaration asks for counts from the end of the bits
	}
	l.at += l.free
	l.unit, l.free = nil, 0
	if m.bitField && m.bits == 0 && before == nil {
		return
	}
	if !m.packed && (!m.bitField || before == nil || before.size != m.size) {
		wanted = max(wanted, l.limited(8*m.align))
	}
	l.at = roundUp(l.at, wanted)
	if m.bits > 0 {
		l.unit, l.free = m, 8*m.size-m.bits
	}
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
