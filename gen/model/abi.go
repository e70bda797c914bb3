package model

import "slices"

// An ABI is how C functions of one system get their arguments and return their result. A
// call from Go without cgo follows it; with cgo the C compiler does.
type ABI struct {
	Name   string // as in a file's name: "linux_amd64"
	GOOS   string
	GOARCH string
	Ints   int // registers for integers and pointers; 0 if all arguments lie in one list of words
	Floats int // registers for floats

	place func(*assignment, *Type, int64)
	reply func(*assignment, *Type, int64)
}

// ABIs are those of the systems for which calls work without cgo.
var ABIs = []*ABI{
	{"linux_amd64", "linux", "amd64", 6, 8, placeSysV, replySysV},
	{"linux_arm64", "linux", "arm64", 8, 8, placeARM64, replyARM64},
	{"windows_amd64", "windows", "amd64", 0, 0, placeWindows, replyWindows},
}

// A Move makes a word for C of the bytes at an offset in a call's memory.
type Move struct {
	At, Size int64
	How      How
}

// How a [Move] makes a word.
type How int

// The ways to make a word.
const (
	Load    How = iota // the bytes, with zeros above them
	Signed             // the bytes as a number with a sign
	Copied             // the address of a copy of the bytes
	Address            // the address of the bytes
)

// A Part of a result: so many bytes of a register belong at an offset in a call's memory.
type Part struct {
	From     int // the register: 0 and 1 hold integers, 2 and more floats
	At, Size int64
}

// The registers of a [Part].
const firstFloat = 2

// Plan says how C gets the arguments of a function, and where its result comes from.
type Plan struct {
	Words    []Move // in registers for integers, the rest on the stack
	Floats   []Move // in registers for floats
	Indirect bool   // arm64: the address of the result is in a register of its own
	Parts    []Part
}

// Plain tells whether the slots of a call are the words as they lie, and the result is a
// number of at most a word.
func (p *Plan) Plain() bool {
	for i, m := range p.Words {
		if m != (Move{At: int64(i) * Slot, Size: Slot}) {
			return false
		}
	}
	return len(p.Floats) == 0 && !p.Indirect &&
		(len(p.Parts) == 0 || len(p.Parts) == 1 && p.Parts[0].From == 0 && p.Parts[0].Size&(p.Parts[0].Size-1) == 0)
}

// Plan makes the plan of a function.
func (abi *ABI) Plan(f *Func) *Plan {
	a := assignment{abi: abi}
	at, _, result := f.Layout()
	if f.Result.Kind != Void {
		abi.reply(&a, f.Result, result)
	}
	for i, p := range f.Params {
		abi.place(&a, p.Type, at[i])
	}
	if len(a.stack) > 0 {
		for len(a.ints) < abi.Ints {
			a.ints = append(a.ints, Move{Size: Slot}) // any word
		}
	}
	a.plan.Words = slices.Concat(a.ints, a.stack)
	return &a.plan
}

// assignment is a plan in the making.
type assignment struct {
	abi         *ABI
	plan        Plan
	ints, stack []Move
	full        bool // arm64: what did not fit closed the registers for integers
}

// leaf is a number or a pointer that a type is made of.
type leaf struct {
	at, size int64
	float    bool
}

func leaves(t *Type, at int64) []leaf {
	switch {
	case t.Kind == Array:
		var all []leaf
		for i := range t.Len {
			all = append(all, leaves(t.Elem, at+i*t.Elem.Size)...)
		}
		return all
	case t.Kind == Named && t.Decl.Underlying != nil && !t.Is(Enum):
		return leaves(t.Decl.Underlying, at)
	case t.Is(Struct), t.Is(Union):
		var all []leaf
		for _, f := range t.Decl.Fields {
			if f.Bits > 0 {
				all = append(all, leaf{at + f.Offset, f.Past() - f.Offset, false})
			} else {
				all = append(all, leaves(f.Type, at+f.Offset)...)
			}
		}
		return all
	case t.Go == "complex64", t.Go == "complex128":
		return []leaf{{at, t.Size / 2, true}, {at + t.Size/2, t.Size / 2, true}}
	}
	return []leaf{{at, t.Size, t.Go == "float32" || t.Go == "float64"}}
}

// number returns the only leaf of a type that is no record.
func number(t *Type) (l leaf, ok bool) {
	if all := leaves(t, 0); len(all) == 1 && !t.Is(Struct) && !t.Is(Union) && t.Kind != Array {
		return all[0], true
	}
	return leaf{}, false
}

// signed tells whether a type is a small number with a sign.
func signed(t *Type) bool {
	for t.Kind == Named && t.Decl.Underlying != nil {
		t = t.Decl.Underlying
	}
	return t.Go == "int8" || t.Go == "int16"
}

// word is the word of an integer or a pointer in a slot. C compilers rely on the extension
// of a number of less than 32 bits.
func word(t *Type, at int64) Move {
	if n, ok := number(t); !ok || n.size >= 4 {
		return Move{At: at, Size: Slot}
	}
	if signed(t) {
		return Move{At: at, Size: t.Size, How: Signed}
	}
	return Move{At: at, Size: t.Size}
}

func words(t *Type, at int64) (moves []Move) {
	if t.Size <= Slot {
		return []Move{word(t, at)}
	}
	for i := int64(0); i < t.Size; i += Slot {
		moves = append(moves, Move{At: at + i, Size: Slot})
	}
	return moves
}

// System V, amd64: a type of at most two words is in registers, word by word, if all fit.

// inFloats tells of each word of a type whether it is of floats alone; nil for types that
// are in memory.
func inFloats(t *Type) []bool {
	if t.Size > 2*Slot {
		return nil
	}
	floats := make([]bool, (t.Size+Slot-1)/Slot)
	for i := range floats {
		floats[i] = true
	}
	for _, l := range leaves(t, 0) {
		for i := l.at / Slot; i < (l.at+l.size+Slot-1)/Slot; i++ {
			floats[i] = floats[i] && l.float
		}
	}
	return floats
}

func placeSysV(a *assignment, t *Type, at int64) {
	kinds, moves := inFloats(t), words(t, at)
	floats := 0
	for _, float := range kinds {
		if float {
			floats++
		}
	}
	if kinds == nil || len(a.ints)+len(kinds)-floats > a.abi.Ints || len(a.plan.Floats)+floats > a.abi.Floats {
		a.stack = append(a.stack, moves...)
		return
	}
	for i, m := range moves {
		if kinds[i] {
			a.plan.Floats = append(a.plan.Floats, m)
		} else {
			a.ints = append(a.ints, m)
		}
	}
}

func replySysV(a *assignment, t *Type, at int64) {
	kinds := inFloats(t)
	if kinds == nil {
		a.ints = append(a.ints, Move{at, t.Size, Address})
		return
	}
	ints, floats := 0, firstFloat
	for i, float := range kinds {
		from := &ints
		if float {
			from = &floats
		}
		offset := int64(i) * Slot
		a.plan.Parts = append(a.plan.Parts, Part{*from, at + offset, min(t.Size-offset, Slot)})
		*from++
	}
}

// AAPCS64: up to four floats of one size are in registers each, other types of more than
// two words are copied, and what does not fit closes the registers.

// onlyFloats returns the floats that a type is made of, nil if that is no type for their
// registers.
func onlyFloats(t *Type) []leaf {
	all := leaves(t, 0)
	slices.SortFunc(all, func(x, y leaf) int { return int(x.at - y.at) })
	all = slices.Compact(all)
	if len(all) == 0 || len(all) > 4 || int64(len(all))*all[0].size != t.Size {
		return nil
	}
	for _, l := range all {
		if !l.float || l.size != all[0].size {
			return nil
		}
	}
	return all
}

func placeARM64(a *assignment, t *Type, at int64) {
	if floats := onlyFloats(t); floats != nil {
		if len(a.plan.Floats)+len(floats) > a.abi.Floats {
			for len(a.plan.Floats) < a.abi.Floats {
				a.plan.Floats = append(a.plan.Floats, Move{Size: Slot})
			}
			a.stack = append(a.stack, words(t, at)...)
			return
		}
		for _, l := range floats {
			a.plan.Floats = append(a.plan.Floats, Move{At: at + l.at, Size: l.size})
		}
		return
	}
	moves := words(t, at)
	if t.Size > 2*Slot {
		moves = []Move{{at, t.Size, Copied}}
	}
	if a.full = a.full || len(a.ints)+len(moves) > a.abi.Ints; a.full {
		a.stack = append(a.stack, moves...)
		return
	}
	a.ints = append(a.ints, moves...)
}

func replyARM64(a *assignment, t *Type, at int64) {
	if floats := onlyFloats(t); floats != nil {
		for i, l := range floats {
			a.plan.Parts = append(a.plan.Parts, Part{firstFloat + i, at + l.at, l.size})
		}
		return
	}
	if t.Size > 2*Slot {
		a.plan.Indirect = true
		return
	}
	for i := int64(0); i < t.Size; i += Slot {
		a.plan.Parts = append(a.plan.Parts, Part{int(i / Slot), at + i, min(t.Size-i, Slot)})
	}
}

// Windows, amd64: each argument is one word. A record of another size than a word of C has
// is copied. Floats lie in the same words.

func fitsWord(t *Type) bool { return t.Size <= Slot && t.Size&(t.Size-1) == 0 }

func placeWindows(a *assignment, t *Type, at int64) {
	if !fitsWord(t) {
		a.stack = append(a.stack, Move{at, t.Size, Copied})
		return
	}
	a.stack = append(a.stack, Move{At: at, Size: Slot})
}

func replyWindows(a *assignment, t *Type, at int64) {
	from := 0
	if n, ok := number(t); ok && n.float {
		from = firstFloat
	}
	if !fitsWord(t) {
		a.stack = append(a.stack, Move{at, t.Size, Address})
		return
	}
	a.plan.Parts = []Part{{from, at, t.Size}}
}
