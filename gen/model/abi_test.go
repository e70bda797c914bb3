package model

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func sizedAs(c, g string, size int64) *Type {
	return &Type{Kind: Basic, C: c, Go: g, Size: size, Align: size}
}

var (
	tInt    = sizedAs("int", "int32", 4)
	tChar   = sizedAs("signed char", "int8", 1)
	tShort  = sizedAs("unsigned short", "uint16", 2)
	tFloat  = sizedAs("float", "float32", 4)
	tDouble = sizedAs("double", "float64", 8)
)

// record is a struct of members that lie side by side.
func record(members ...*Type) *Type {
	d := &Decl{Kind: Struct, C: "r", Align: 1}
	for _, m := range members {
		d.Fields = append(d.Fields, &Field{Type: m, Place: Place{Offset: d.Size}})
		d.Size += m.Size
		d.Align = max(d.Align, m.Align)
	}
	return &Type{Kind: Named, C: "r", Size: d.Size, Align: d.Align, Decl: d}
}

func many(n int, t *Type) (params []*Param) {
	for range n {
		params = append(params, &Param{Type: t})
	}
	return params
}

func w(at int64) Move { return Move{At: at, Size: Slot} }

// TestPlans: where each system's C has arguments and results that are not words as they lie.
// What C compilers do with them shows in the proofs.
func TestPlans(t *testing.T) {
	none := nothing()
	three, dims, big := record(tFloat, tFloat, tFloat), record(tInt, tInt, tInt), record(tDouble, tInt, tInt, tDouble)
	for _, c := range []struct {
		name   string
		abi    int
		params []*Param
		result *Type
		want   Plan
	}{
		{"small numbers, System V", 0, []*Param{{Type: tChar}, {Type: tShort}}, none, Plan{Words: []Move{{0, 1, Signed}, {8, 2, Load}}}},
		{"small numbers, Windows", 2, []*Param{{Type: tChar}, {Type: tShort}}, none, Plan{Words: []Move{w(0), w(8)}}},
		{"floats, System V", 0, []*Param{{Type: tInt}, {Type: tFloat}, {Type: tInt}}, tDouble, Plan{Words: []Move{w(0), w(16)}, Floats: []Move{w(8)}, Parts: []Part{{2, 64, 8}}}},
		{"floats, ARM", 1, []*Param{{Type: tInt}, {Type: tFloat}, {Type: tInt}}, tDouble, Plan{Words: []Move{w(0), w(16)}, Floats: []Move{{8, 4, Load}}, Parts: []Part{{2, 64, 8}}}},
		{"floats, Windows", 2, []*Param{{Type: tInt}, {Type: tFloat}, {Type: tInt}}, tDouble, Plan{Words: []Move{w(0), w(8), w(16)}, Parts: []Part{{2, 64, 8}}}},
		{"a ninth float, System V", 0, many(9, tDouble), none, Plan{Words: []Move{{Size: 8}, {Size: 8}, {Size: 8}, {Size: 8}, {Size: 8}, {Size: 8}, w(64)}, Floats: []Move{w(0), w(8), w(16), w(24), w(32), w(40), w(48), w(56)}}},
		{"three floats, System V", 0, []*Param{{Type: three}}, three, Plan{Floats: []Move{w(0), w(8)}, Parts: []Part{{2, 64, 8}, {3, 72, 4}}}},
		{"three floats, ARM", 1, []*Param{{Type: three}}, three, Plan{Floats: []Move{{0, 4, Load}, {4, 4, Load}, {8, 4, Load}}, Parts: []Part{{2, 64, 4}, {3, 68, 4}, {4, 72, 4}}}},
		{"three floats, Windows", 2, []*Param{{Type: three}}, three, Plan{Words: []Move{{64, 12, Address}, {0, 12, Copied}}}},
		{"two words where one register is left, System V", 0, append(many(5, tInt), &Param{Type: dims}, &Param{Type: tInt}), none, Plan{Words: []Move{w(0), w(8), w(16), w(24), w(32), w(56), w(40), w(48)}}},
		{"two words where one register is left, ARM", 1, append(many(7, tInt), &Param{Type: dims}, &Param{Type: tInt}), none, Plan{Words: []Move{w(0), w(8), w(16), w(24), w(32), w(40), w(48), {Size: 8}, w(56), w(64), w(72)}}},
		{"three bytes, Windows", 2, []*Param{{Type: record(tChar, tChar, tChar)}}, none, Plan{Words: []Move{{0, 3, Copied}}}},
		{"24 bytes, System V", 0, []*Param{{Type: big}, {Type: tInt}}, big, Plan{Words: []Move{{64, 24, Address}, w(24), {Size: 8}, {Size: 8}, {Size: 8}, {Size: 8}, w(0), w(8), w(16)}}},
		{"24 bytes, ARM", 1, []*Param{{Type: big}, {Type: tInt}}, big, Plan{Words: []Move{{0, 24, Copied}, w(24)}, Indirect: true}},
		{"24 bytes, Windows", 2, []*Param{{Type: big}, {Type: tInt}}, big, Plan{Words: []Move{{64, 24, Address}, {0, 24, Copied}, w(24)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ABIs[c.abi].Plan(&Func{Params: c.params, Result: c.result})
			assert.Equal(t, c.want, *got)
		})
	}
}

// TestPlainCalls: with up to 16 integers and pointers the slots are the words as they lie.
func TestPlainCalls(t *testing.T) {
	for _, abi := range ABIs {
		for n := range 17 {
			assert.True(t, abi.Plan(&Func{Params: many(n, tInt), Result: tInt}).Plain(), "%s: %d", abi.Name, n)
		}
		assert.Equal(t, abi.GOOS == "windows", abi.Plan(&Func{Params: many(1, tFloat), Result: tInt}).Plain(), abi.Name)
	}
}
