package main

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// fact is a number that the model, the header and the Go package agree on.
type fact struct {
	Subject  string // what it is about: every type, member, value and second name
	Property string
	Want     string // what the model says
	C, Go    string // expressions; "" where the language has none
}

// Name is the fact's name, once in a package.
func (f fact) Name() string { return f.Subject + " " + f.Property }

// GoNumber is the Go expression as a uint64. That it holds a negative constant
// shows when it compiles.
func (f fact) GoNumber() string {
	if strings.HasPrefix(f.Want, "-") {
		return "^uint64(^" + f.Go + ")"
	}
	return "uint64(" + f.Go + ")"
}

// WantNumber is the model's number as a Go literal.
func (f fact) WantNumber() string {
	if strings.HasPrefix(f.Want, "-") {
		return "^uint64(^" + f.Want + ")"
	}
	return f.Want
}

// layout compares the model with the C compiler, number by number.
func (p *proof) layout(t *testing.T) {
	facts := layoutFacts(p.api)
	p.everySubject(t, facts)
	var inC []fact
	for _, f := range facts {
		if f.C != "" && !p.elsewhere[f.Subject] {
			inC = append(inC, f)
		}
	}
	if len(inC) == 0 {
		return // all its types are another library's
	}
	flags := []string{"-Wno-deprecated-declarations"}
	if p.api.Row.Internal != "" { // it hides second names of types
		flags = append(flags, "-U"+p.api.Row.Internal)
	}
	lines := p.program(t, "layout.c.tmpl", map[string]any{"Facts": inC}, flags...)
	require.Len(t, lines, len(inC))
	for i, f := range inC {
		if want := f.Name() + "\t" + f.Want; lines[i] != want {
			t.Errorf("CUDA %s: %s in C, %s in the model", p.api.Version, lines[i], f.Want)
		}
	}
	t.Logf("%d numbers about %d subjects compared with C", len(inC), len(subjects(facts)))
}

// everySubject checks that nothing in the model has been left out.
func (p *proof) everySubject(t *testing.T, facts []fact) {
	want := len(p.api.Consts)
	for _, d := range p.api.Decls {
		want += 1 + len(d.Fields) + len(d.Enumerators)
	}
	for _, al := range p.api.Aliases {
		if !al.Func {
			want++
		}
	}
	require.Len(t, subjects(facts), want, "CUDA %s: what the model declares, and what facts are about", p.api.Version)
}

func subjects(facts []fact) map[string]bool {
	set := map[string]bool{}
	for _, f := range facts {
		set[f.Subject] = true
	}
	return set
}

// goFacts are those that Go has an expression for.
func goFacts(facts []fact) []fact {
	var out []fact
	for _, f := range facts {
		if f.Go != "" {
			out = append(out, f)
		}
	}
	return out
}

// measurer collects the facts of a model.
type measurer struct {
	facts   []fact
	unnamed map[string]bool // records inside records that C has no expression for, by their names
}

func layoutFacts(a *model.API) []fact {
	m := measurer{unnamed: map[string]bool{}}
	for _, d := range a.Decls {
		for _, f := range d.Fields {
			if f.C == "" {
				m.unnamed[f.Type.Decl.C] = true
			}
		}
	}
	for _, d := range a.Decls {
		m.decl(d)
		for _, f := range d.Fields {
			m.member(d, f)
		}
		for _, e := range d.Enumerators {
			m.add(e.C, "value", e.Value, e.C, e.Go)
		}
	}
	decls := map[string]*model.Decl{}
	for _, d := range a.Decls {
		decls[d.Go] = d
	}
	for _, al := range a.Aliases {
		if !al.Func {
			m.alias(al, decls[al.GoRef])
		}
	}
	m.consts(a)
	return m.facts
}

func (m *measurer) add(subject, property string, want any, c, g string) {
	m.facts = append(m.facts, fact{subject, property, fmt.Sprint(want), c, g})
}

func (m *measurer) decl(d *model.Decl) {
	if d.Kind == model.Incomplete {
		m.add(d.C, "size of a pointer", 8, "sizeof("+typeOf(d)+" *)", "unsafe.Sizeof((*"+d.Go+")(nil))")
		return
	}
	size, align := "sizeof("+typeOf(d)+")", "_Alignof("+typeOf(d)+")"
	if m.unnamed[d.C] || d.Inline {
		size, align = "", "" // its place shows in the record around it
	}
	m.add(d.C, "size", d.Size, size, "unsafe.Sizeof("+zero(d.Go)+")")
	if d.Align > 8 { // more than Go knows: its allocator sees to it
		m.add(d.C, "align", d.Align, align, "")
		m.add(d.C, "gap", 0, "", fmt.Sprintf("proofGap(func() uintptr { return uintptr(unsafe.Pointer(New%s())) }, %d, 32)", d.Go, d.Align))
	} else {
		inGo := "unsafe.Alignof(" + zero(d.Go) + ")"
		if d.Underlying != nil && d.Align != d.Underlying.GoAlign() {
			inGo = "" // a typedef can change that of a number, and Go cannot
		}
		m.add(d.C, "align", d.Align, align, inGo)
	}
	if d.Underlying != nil && d.Kind != model.Second {
		m.add(d.C, "kind", kinds[d.Underlying.Go], "KIND(("+d.C+")0)", "proofKind("+zero(d.Go)+")")
	}
}

// member measures one member of d. A Go struct has a field for it, a union an
// accessor; what lies in an unnamed record has an accessor of d's too.
func (m *measurer) member(d *model.Decl, f *model.Field) {
	subject := d.C + "." + f.C
	if f.C == "" {
		subject += f.Go
		inside := f.Type.Decl
		if d.Kind == model.Struct && !d.Apart(f) {
			m.add(subject, "offset", f.Offset, m.offset(d, first(inside)), "unsafe.Offsetof("+d.Go+"{}."+f.Go+")")
			m.add(subject, "size", f.Type.Size, "", "unsafe.Sizeof("+d.Go+"{}."+f.Go+")")
		} else {
			m.add(subject, "offset", f.Offset, m.offset(d, first(inside)), "")
		}
		m.promoted(d, inside, f.Offset)
		return
	}
	if f.Bits > 0 {
		m.bitField(subject, "", d, f)
		return
	}
	m.place(subject, "", d, f, d.Kind == model.Union)
	path := pathOf(d) + "." + f.C
	elem := f.Type
	for elem.Kind == model.Array {
		elem, path = elem.Elem, path+"[0]"
	}
	if elem.Kind == model.Basic {
		m.add(subject, "kind", kinds[elem.Go], "KIND("+path+")", "proofKind("+value(d, f)+")")
	}
	// The front end loses the const of what a function in a record returns a pointer to.
	if elem.Kind != model.Named || !elem.Decl.Nested && !elem.Decl.Inline {
		m.sameType(subject, pathOf(d)+"."+f.C, f.Type)
	}
}

// sameType compares a member's type in C. The parser does not keep whether
// what a member points to is const, and nothing printed depends on it.
func (m *measurer) sameType(subject, path string, t *model.Type) {
	same := "SAME(__typeof__(" + path + "), " + t.CDecl("") + ")"
	if t.Kind == model.Pointer {
		toConst, elem := *t, *t.Elem
		elem.Const, toConst.Elem = true, &elem
		same = "(" + same + " | SAME(__typeof__(" + path + "), " + toConst.CDecl("") + "))"
	}
	m.add(subject, "type", 1, same, "")
}

// promoted measures what lies in an unnamed record, as a member of d.
func (m *measurer) promoted(d, in *model.Decl, base int64) {
	for _, f := range in.Fields {
		if f.C == "" {
			m.promoted(d, f.Type.Decl, base+f.Offset)
			continue
		}
		inD := *f
		inD.Offset += base
		if f.Bits > 0 {
			m.bitField(in.C+"."+f.C, " in "+d.C, d, &inD)
			continue
		}
		m.place(in.C+"."+f.C, " in "+d.C, d, &inD, true)
	}
}

// place measures where a member of d lies.
func (m *measurer) place(subject, in string, d *model.Decl, f *model.Field, accessor bool) {
	if d.Apart(f) {
		m.add(subject, "offset"+in, f.Offset, m.offset(d, f.C), "")
		m.add(subject, "size"+in, f.Type.Size, "sizeof("+pathOf(d)+"."+f.C+")", "")
		m.add(subject, "bytes"+in, 1_000_000*f.Offset+f.Type.Size, "", "proofBytes((*"+d.Go+")."+f.Go+", (*"+d.Go+").Set"+f.Go+")")
		return
	}
	at, size := "unsafe.Offsetof("+d.Go+"{}."+f.Go+")", "unsafe.Sizeof("+d.Go+"{}."+f.Go+")"
	if accessor {
		at, size = "proofPlace((*"+d.Go+")."+f.Go+")", "unsafe.Sizeof(*new("+d.Go+")."+f.Go+"())"
	}
	m.add(subject, "offset"+in, f.Offset, m.offset(d, f.C), at)
	m.add(subject, "size"+in, f.Type.Size, "sizeof("+pathOf(d)+"."+f.C+")", size)
}

// bitField measures where a bit field lies, how long it is, and whether it has a sign, by
// setting all of it.
func (m *measurer) bitField(subject, in string, d *model.Decl, f *model.Field) {
	want := 2 * (1_000_000*(8*f.Offset+f.Bit) + f.Bits)
	if t := f.Type; t.Kind == model.Basic && strings.HasPrefix(t.Go, "int") || t.Kind == model.Named && t.Decl.Signed {
		want++
	}
	c := ""
	if !m.unnamed[d.C] {
		c = "BITS(" + typeOf(d) + ", " + f.C + ")"
	}
	function := "proofBits"
	if isBool(f.Type) {
		function = "proofBool"
	}
	m.add(subject, "bits"+in, want, c, function+"((*"+d.Go+")."+f.Go+", (*"+d.Go+").Set"+f.Go+")")
}

func isBool(t *model.Type) bool {
	for t.Kind == model.Named && t.Decl.Underlying != nil {
		t = t.Decl.Underlying
	}
	return t.Go == "bool"
}

// offset is the C expression of a member's offset in d. Where C has no name for
// d, it is counted from d's first member.
func (m *measurer) offset(d *model.Decl, member string) string {
	at := "offsetof(" + typeOf(d) + ", " + member + ")"
	if m.unnamed[d.C] {
		at += " - offsetof(" + typeOf(d) + ", " + first(d) + ")"
	}
	return at
}

func (m *measurer) alias(al *model.Alias, d *model.Decl) {
	if d.Kind != model.Incomplete {
		m.add(al.C, "size as "+d.C, d.Size, "sizeof("+al.C+")", "unsafe.Sizeof("+zero(al.Go)+")")
	}
	m.add(al.C, "type as "+d.C, 1, "SAME("+al.C+", "+d.C+")", "")
}

func (m *measurer) consts(a *model.API) {
	values := map[string]string{}
	for _, d := range a.Decls {
		for _, e := range d.Enumerators {
			values[e.Go] = e.Value
		}
	}
	for _, c := range a.Consts {
		want := c.Value
		if v, ok := values[want]; ok { // another name of an enumerator
			want = v
		}
		values[c.Go] = want
		switch {
		case strings.HasPrefix(want, `"`):
			m.add(c.C, "text", 1, "strcmp("+c.C+", "+want+") == 0", "proofTrue("+c.Go+" == "+want+")")
			continue
		case strings.ContainsAny(want, ".e"):
			m.add(c.C, "fraction", 1, c.C+" == "+want, "proofTrue("+c.Go+" == "+want+")")
			continue
		}
		m.add(c.C, "value", want, c.C, c.Go)
	}
}

// kinds are numbers of package reflect, which the programs count by too.
var kinds = map[string]int{
	"byte": int(reflect.Uint8), "int8": int(reflect.Int8), "uint8": int(reflect.Uint8),
	"int16": int(reflect.Int16), "uint16": int(reflect.Uint16), "int32": int(reflect.Int32), "uint32": int(reflect.Uint32),
	"int64": int(reflect.Int64), "uint64": int(reflect.Uint64), "float32": int(reflect.Float32), "float64": int(reflect.Float64),
	"complex64": int(reflect.Complex64), "complex128": int(reflect.Complex128), "bool": int(reflect.Bool),
}

// first is the first named member of a record, at its beginning.
func first(d *model.Decl) string {
	if f := d.Fields[0]; f.C == "" {
		return first(f.Type.Decl)
	}
	return d.Fields[0].C
}

// pathOf is a C expression of type d.
func pathOf(d *model.Decl) string {
	if d.CPath != "" {
		return d.CPath
	}
	return "(*(" + d.C + "*)0)"
}

// typeOf is d in C.
func typeOf(d *model.Decl) string {
	if d.CPath != "" {
		return "__typeof__(" + d.CPath + ")"
	}
	return d.C
}

// zero is a Go expression of a type.
func zero(typ string) string { return "*new(" + typ + ")" }

// value is a Go expression of a member.
func value(d *model.Decl, f *model.Field) string {
	switch {
	case d.Apart(f):
		return "new(" + d.Go + ")." + f.Go + "()"
	case d.Kind == model.Union:
		return "*new(" + d.Go + ")." + f.Go + "()"
	}
	return d.Go + "{}." + f.Go
}

// writeLayoutTest writes the test of what Go makes of the package.
func (p *proof) writeLayoutTest(t *testing.T) (numbers int) {
	facts := goFacts(layoutFacts(p.api))
	p.render(t, filepath.Join(p.pkg, "layout_test.go"), "layout_test.go.tmpl", map[string]any{"Facts": facts})
	return len(facts)
}
