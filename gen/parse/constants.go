package parse

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// constant is the value of a macro, with the type that its cast gives it.
func constant(m *cc.Macro, decls map[string]*model.Decl) (*model.Const, error) {
	name := m.Name.SrcStr()
	v, ok := intValue(m.Value())
	switch v := m.Value().(type) {
	case cc.StringValue:
		return &model.Const{C: name, Value: strconv.Quote(strings.TrimSuffix(string(v), "\x00"))}, nil
	case cc.Float64Value:
		if text := floatLiteral(float64(v)); text != "" {
			return &model.Const{C: name, Value: text}, nil
		}
	}
	if !ok {
		return nil, fmt.Errorf("macro %s has no value that a constant of Go can have", name)
	}
	t := m.Type()
	as := constantType(t, decls)
	return &model.Const{C: name, Value: intLiteral(v, t, as), Type: as}, nil
}

// constantType is the type of a constant of Go that is of type t in C, nil for an untyped one.
func constantType(t cc.Type, decls map[string]*model.Decl) *model.Type {
	var d *model.Decl
	name := ""
	if td := t.Typedef(); td != nil {
		name = td.Name()
		d = decls[name]
	} else if t.Kind() == cc.Enum {
		if d = decls[tagOf(t)]; d != nil {
			name = d.C
		}
	}
	if t.Kind() == cc.Ptr && (t.Typedef() == nil || d != nil && d.Kind == model.Second) { // Go has no constant pointers
		return &model.Type{Kind: model.Basic, C: "void *", Go: "uintptr", Size: 8, Align: 8}
	}
	if d == nil {
		return nil
	}
	of := named(d)
	of.C = name
	return of
}

// initialized is the constant that a variable with a value stands for, nil if Go has none like it.
func (u *unit) initialized(dd *cc.Declarator, value cc.Value) *model.Const {
	f, isFloat := value.(cc.Float64Value)
	v, isInt := intValue(value)
	if isFloat && isFloating(dd.Type()) {
		if text := floatLiteral(float64(f)); text != "" {
			return &model.Const{C: dd.Name(), Value: text}
		}
	}
	if !isInt {
		return nil // also a number with a point that becomes an integer
	}
	t, err := u.typ(dd.Type())
	if err != nil || t.Kind != model.Basic && !t.Is(model.Enum) && !t.Is(model.Scalar) {
		return nil
	}
	t.Const = false
	return &model.Const{C: dd.Name(), Value: intLiteral(v, dd.Type(), t), Type: t}
}

// intLiteral is an integer of type t, as Go writes it in a constant of type as. That of an unsigned type has no sign.
func intLiteral(v int64, t cc.Type, as *model.Type) string {
	unused := max(64-8*t.Size(), 0)
	switch {
	case t.Kind() == cc.Bool:
		return strconv.FormatBool(v != 0)
	case isFloating(t):
		return strconv.FormatInt(v, 10)
	case slices.Contains(unsigned, t.Kind()), as != nil && as.Is(model.Enum) && !as.Decl.Signed, isByte(as):
		return strconv.FormatUint(uint64(v)<<unused>>unused, 10)
	}
	return strconv.FormatInt(v<<unused>>unused, 10)
}

// isByte tells whether a type is C's char, which has a sign in C on some systems, and none in Go.
func isByte(t *model.Type) bool {
	if t != nil && t.Is(model.Scalar) {
		t = t.Decl.Underlying
	}
	return t != nil && t.Kind == model.Basic && t.Go == "byte"
}

func isFloating(t cc.Type) bool {
	return slices.Contains([]cc.Kind{cc.Float, cc.Double, cc.LongDouble}, t.Kind())
}

var unsigned = []cc.Kind{cc.UChar, cc.UShort, cc.UInt, cc.ULong, cc.ULongLong, cc.Ptr}

// floatLiteral is a number with a point as Go writes it, "" for one that no constant of Go has: an infinity, what is no
// number, and a zero with a sign.
func floatLiteral(v float64) string {
	if math.IsInf(v, 0) || math.IsNaN(v) || v == 0 && math.Signbit(v) {
		return ""
	}
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0" // without it, half of 1.0 is 0 in Go
	}
	return text
}

// dependsOnPlace tells whether a token has another value in each place.
func dependsOnPlace(token string) bool {
	return slices.Contains([]string{"__LINE__", "__FILE__", "__COUNTER__", "__DATE__", "__TIME__", "__TIMESTAMP__", "__INCLUDE_LEVEL__", "__BASE_FILE__", "__FILE_NAME__", "__func__", "__FUNCTION__"}, token)
}

// misread tells whether a token is a string whose value the front end does not know.
func misread(token string) bool { return strings.HasPrefix(token, `u8"`) }
