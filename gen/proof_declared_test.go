package main

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// complete compares what the C compiler sees declared in NVIDIA's headers with
// the model: functions and macros by the preprocessed text, types by
// the debugging information. So the other proofs are about everything.
func (p *proof) complete(t *testing.T) {
	source := filepath.Join(p.work, "declared.c")
	include := ""
	for _, name := range p.includes() {
		include += "#include \"" + name + "\"\n"
	}
	require.NoError(t, os.WriteFile(source, []byte(include), 0o666))
	object := filepath.Join(p.work, "declared.o")
	p.cc(t, "-g", "-fno-eliminate-unused-debug-types", "-c", "-o", object, source)

	types := p.declaredTypes(t, object)
	p.same(t, "member or value", modelTypes(p.api), p.bound(types.own), types.out)
	p.knownTypes(t, p.bound(types.typedefs))
	funcs, macros := p.preprocessed(t, source)
	p.same(t, "function", symbolsOf(p.api), p.bound(funcs), funcs)
	p.knownMacros(t, p.bound(macros))
	t.Logf("%d members and values, %d names of types, %d functions, %d macros", len(types.out), len(types.typedefs), len(funcs), len(macros))
}

// bound are those of names, with members or values, that the row binds.
func (p *proof) bound(names []string) []string {
	if p.api.Row.Only == nil {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !p.api.Row.Only.MatchString(strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == ' ' })[0])
	})
}

// knownTypes checks that every typedef is in the model or is a number of C.
func (p *proof) knownTypes(t *testing.T, typedefs []string) {
	known := map[string]bool{}
	for _, d := range p.api.Decls {
		known[d.C] = true
	}
	for _, al := range p.api.Aliases {
		known[al.C] = true
	}
	for _, name := range p.api.Skipped {
		known[name] = true
	}
	for _, name := range typedefs {
		_, number := model.BasicName(name)
		assert.True(t, known[name] || number, "CUDA %s: type %s of the header is not in the model", p.api.Version, name)
	}
}

// same compares names in the model with those in C, in any order: everything that is
// the API's own must be in the model, which may have more that its functions use.
func (p *proof) same(t *testing.T, what string, inModel, own, inC []string) {
	require.NotEmpty(t, own)
	for _, c := range without(own, slices.Concat(inModel, p.api.Skipped)) {
		t.Errorf("CUDA %s: %s %s of the header is not in the model", p.api.Version, what, c)
	}
	for _, m := range without(inModel, inC) {
		t.Errorf("CUDA %s: %s %s of the model is not in the header", p.api.Version, what, m)
	}
}

// owns tells whether the declarations of a header are the API's own.
func (p *proof) owns(file string) bool {
	return p.api.Row.Own == nil || slices.Contains(p.api.Row.Own, filepath.Base(file))
}

// without are the entries of a that are not in b.
func without(a, b []string) []string {
	in := map[string]bool{}
	for _, s := range b {
		in[s] = true
	}
	var out []string
	for _, s := range a {
		if !in[s] {
			out = append(out, s)
		}
	}
	return out
}

// modelTypes spells every member with its offset, and every enumerator with
// its value.
func modelTypes(a *model.API) []string {
	var out []string
	var walk func(path string, d *model.Decl, base int64)
	walk = func(path string, d *model.Decl, base int64) {
		for _, f := range d.Fields {
			at := path
			if f.C != "" {
				at += "." + f.C
				out = append(out, fmt.Sprint(at, " ", base+f.Offset))
			}
			if t := f.Type.Element(); t.Kind == model.Named && t.Decl.Nested {
				walk(at, t.Decl, base+f.Offset)
			}
		}
	}
	for _, d := range a.Decls {
		for _, e := range d.Enumerators {
			out = append(out, e.C+" "+e.Value)
		}
		if d.Nested {
			continue
		}
		name := d.C
		if d.Tag != "" {
			name = d.Kind.String() + " " + d.Tag
		}
		walk(name, d, 0)
	}
	return out
}

// declaredTypes spells the same from the debugging information of an object
// file, as far as it is about NVIDIA's headers.
func (p *proof) declaredTypes(t *testing.T, object string) debugInfo {
	f, err := elf.Open(object)
	require.NoError(t, err)
	defer f.Close()
	data, err := f.DWARF()
	require.NoError(t, err)
	r := data.Reader()
	unit, err := r.Next()
	require.NoError(t, err)
	lines, err := data.LineReader(unit)
	require.NoError(t, err)
	d := debugInfo{data: data, files: lines.Files(), headers: p.headers, owns: p.owns, named: map[string]bool{}, inside: map[string]bool{}}
	for _, decl := range p.api.Decls {
		d.named[decl.Kind.String()+" "+decl.Tag] = decl.Tag != ""
	}
	for {
		e, err := r.Next()
		require.NoError(t, err)
		if e == nil {
			break
		}
		require.NoError(t, d.entry(e))
		r.SkipChildren()
	}
	for name, found := range d.inside {
		assert.True(t, found, "CUDA %s: %s of the header is not in the model", p.api.Version, name)
	}
	return d
}

type debugInfo struct {
	data    *dwarf.Data
	files   []*dwarf.LineFile
	headers string // folder
	owns    func(header string) bool
	named   map[string]bool // records with a tag that are a declaration of their own
	inside  map[string]bool // other records with a tag: whether one was found inside another record

	out, own []string // members and values, and those of the API's own headers
	typedefs []string
}

func (d *debugInfo) entry(e *dwarf.Entry) error {
	file, ok := e.Val(dwarf.AttrDeclFile).(int64)
	if !ok || filepath.Dir(d.files[file].Name) != d.headers {
		return nil
	}
	own := d.owns(d.files[file].Name)
	defer func(from int) {
		if own {
			d.own = append(d.own, d.out[from:]...)
		}
	}(len(d.out))
	name, _ := e.Val(dwarf.AttrName).(string)
	switch e.Tag {
	case dwarf.TagEnumerationType, dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagTypedef:
	default:
		return nil
	}
	t, err := d.data.Type(e.Offset)
	if err != nil {
		return err
	}
	if td, ok := t.(*dwarf.TypedefType); ok {
		if own {
			d.typedefs = append(d.typedefs, name)
		}
		if s, ok := td.Type.(*dwarf.StructType); ok && s.StructName == "" {
			d.walk(name, s, 0)
		}
		return nil
	}
	switch t := t.(type) {
	case *dwarf.EnumType:
		for _, v := range t.Val {
			d.out = append(d.out, fmt.Sprint(v.Name, " ", v.Val))
		}
	case *dwarf.StructType:
		switch tag := t.Kind + " " + name; {
		case d.named[tag]:
			d.walk(tag, t, 0)
		case name != "":
			if _, seen := d.inside[tag]; !seen && own {
				d.inside[tag] = false
			}
		}
	}
	return nil
}

func (d *debugInfo) walk(path string, s *dwarf.StructType, base int64) {
	for _, f := range s.Field {
		at := path
		if f.Name != "" {
			at += "." + f.Name
			d.out = append(d.out, fmt.Sprint(at, " ", base+f.ByteOffset))
		}
		t := f.Type
		for {
			a, ok := t.(*dwarf.ArrayType)
			if !ok {
				break
			}
			t = a.Type
		}
		if in, ok := t.(*dwarf.StructType); ok && !d.named[in.Kind+" "+in.StructName] {
			d.inside[in.Kind+" "+in.StructName] = true
			d.walk(at, in, base+f.ByteOffset)
		}
	}
}

// preprocessed lists the functions that NVIDIA's headers declare and the
// macros they define, from what the preprocessor prints.
func (p *proof) preprocessed(t *testing.T, source string) (funcs, macros []string) {
	var code strings.Builder
	ours := false
	for line := range strings.Lines(p.cc(t, "-E", "-dD", source)) {
		if m := lineMarker.FindStringSubmatch(line); m != nil {
			ours = filepath.Dir(m[1]) == p.headers && p.owns(m[1])
			continue
		}
		switch {
		case !ours:
		case strings.HasPrefix(line, "#define "):
			if m := constantMacro.FindStringSubmatch(line); m != nil && m[2] != "__attribute__" {
				macros = append(macros, m[1])
			}
		case strings.HasPrefix(line, "#undef "):
			undefined := strings.Fields(line)[1]
			macros = slices.DeleteFunc(macros, func(m string) bool { return m == undefined })
		default:
			code.WriteString(line)
		}
	}
	ends := ";"
	if p.api.Row.Inline {
		ends = "[;{]"
	}
	prototype := regexp.MustCompile(`\b(` + p.api.Row.Prefix + `\w+)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*` + ends)
	for _, m := range prototype.FindAllStringSubmatch(code.String(), -1) {
		if skip := p.api.Row.Skip; skip == nil || !skip.MatchString(m[1]) {
			funcs = append(funcs, m[1])
		}
	}
	slices.Sort(funcs)
	return slices.Compact(funcs), macros
}

var (
	lineMarker    = regexp.MustCompile(`^# \d+ "(.*?)"`)
	constantMacro = regexp.MustCompile(`^#define ([A-Za-z]\w*) (\S+)`)
)

// knownMacros checks that every macro with a body is in the model as a
// constant or as a name, or is said to be neither.
func (p *proof) knownMacros(t *testing.T, macros []string) {
	known := map[string]bool{}
	for _, c := range p.api.Consts {
		known[c.C] = true
	}
	for _, al := range p.api.Aliases {
		known[al.C] = true
	}
	for _, left := range slices.Concat(p.api.Dropped, p.api.Skipped) {
		known[left] = true
	}
	for _, fn := range p.api.Funcs {
		base, _, _ := model.Base(fn.Symbol)
		known[fn.Symbol], known[base] = true, true
	}
	for _, m := range macros {
		assert.True(t, known[m], "CUDA %s: macro %s of the header is not in the model", p.api.Version, m)
	}
}
