package model

import (
	"cmp"
	"errors"
	"fmt"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/cudabind/cudabind/tools/kernels/read"
)

// Options are what the user says about names.
type Options struct {
	Skip   []string          // kernels and variables to leave out, by their names in C++
	Rename map[string]string // Go names by names in C++, or by "NAME@LINE" for a type
}

// A Package is the Go package of some sources, which share types and names.
type Package struct {
	options      Options
	types        map[string]*Type
	taken        map[string]string // what each Go name is for
	sources      map[string][]string
	unit         *Unit
	hint         string // a name for a type without one
	bits, copies *Unit  // which has the functions, or nil
	used         map[string]bool
}

// NewPackage returns an empty package.
func NewPackage(o Options) *Package {
	return &Package{options: o, types: map[string]*Type{}, taken: map[string]string{}, used: map[string]bool{}}
}

// Add models one source. Sources has the lines of those files of which the program's author is the
// author: comments are taken from there, and variables that others declare are left out.
func (p *Package) Add(file string, f *read.File, sources map[string][]string) (*Unit, error) {
	base := filepath.Base(file)
	p.sources = sources
	p.unit = &Unit{Source: base}
	p.unit.Go = p.renamed(base, 0, Camel(strings.TrimSuffix(base, filepath.Ext(base))))
	for _, name := range []string{p.unit.Go, "Load" + p.unit.Go, p.unit.Go + "Doubles"} {
		if err := p.take(name, "the type of "+base, base, read.Position{}); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	var all []error
	names := map[string]int{}
	for _, k := range f.Kernels {
		names[k.Name]++
	}
	members := map[string]bool{"Module": true, "Close": true, "Register": true} // Register is one of doubles
	for _, k := range f.Kernels {
		if p.skip(k.Name) {
			continue
		}
		made, err := p.kernel(k, names[k.Name] > 1)
		if err == nil && members[made.Go] {
			err = at(k.At, "kernel %s: another member is called %s in Go: rename one by -rename '%s=NAME'", k.Name, made.Go, k.Name)
		}
		if err == nil {
			err = p.take(p.unit.Go+made.Go, "kernel "+k.Name, k.Name, k.At)
		}
		if err != nil {
			all = append(all, err)
			continue
		}
		members[made.Go] = true
		p.unit.Kernels = append(p.unit.Kernels, made)
	}
	for _, v := range f.Variables {
		if sources[v.At.File] == nil || p.skip(v.Name) {
			continue
		}
		made, err := p.variable(v)
		for err == nil && members[made.Go] {
			made.Go += "Variable"
		}
		if err != nil {
			all = append(all, err)
			continue
		}
		members[made.Go] = true
		p.unit.Variables = append(p.unit.Variables, made)
	}
	return p.unit, errors.Join(all...)
}

// Unused returns the names in Options.Skip and Options.Rename that named nothing.
func (p *Package) Unused() (all []string) {
	for _, s := range p.options.Skip {
		if !p.used[s] {
			all = append(all, "-skip "+s)
		}
	}
	for from := range p.options.Rename {
		if !p.used[from] {
			all = append(all, "-rename "+from)
		}
	}
	slices.Sort(all)
	return all
}

func at(where read.Position, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", where.File, where.Line, fmt.Sprintf(format, args...))
}

func (p *Package) skip(name string) bool {
	found := slices.Contains(p.options.Skip, name)
	p.used[name] = p.used[name] || found
	return found
}

// renamed returns the name that the user has chosen for a name in C++, or the usual one.
func (p *Package) renamed(name string, line int, usual string) string {
	for _, key := range []string{fmt.Sprintf("%s@%d", name, line), name} {
		if to, ok := p.options.Rename[key]; ok {
			p.used[key] = true
			return to
		}
	}
	return usual
}

// take takes a Go name at package level for something, whose name in C++ is key.
func (p *Package) take(name, what, key string, where read.Position) error {
	if other, ok := p.taken[name]; ok {
		if where.Line > 0 {
			what = fmt.Sprintf("%s of %s:%d", what, where.File, where.Line)
			key = fmt.Sprintf("%s@%d", key, where.Line)
		}
		return fmt.Errorf("%s would be called %s in Go, as %s is: rename it by -rename '%s=NAME'", what, name, other, key)
	}
	if !token.IsIdentifier(name) || !token.IsExported(name) {
		return fmt.Errorf("%s cannot be called %s in Go, which is no exported name: rename it by -rename '%s=NAME'", what, name, key)
	}
	p.taken[name] = what
	return nil
}

// typeName chooses and takes the Go name of a type.
func (p *Package) typeName(t *read.Type) (string, error) {
	name := p.hint
	cpp := cmp.Or(t.Name, p.hint)
	if t.Name != "" {
		name = Camel(t.Name)
	}
	name = p.renamed(cpp, t.At.Line, name)
	return name, p.take(name, "type "+cpp, cpp, t.At)
}

// kernel models a kernel. Of overloaded ones the names have the parameters' types.
func (p *Package) kernel(k *read.Kernel, overloaded bool) (*Kernel, error) {
	made := &Kernel{Symbol: k.Symbol, Expression: k.Name, Doc: p.comment(k.At), Line: k.At.Line, MaxThreads: k.MaxThreads, Cluster: k.Cluster}
	name := Camel(k.Name)
	if k.Symbol == k.Name || overloaded {
		made.Expression = ""
	}
	if made.Expression == "" && local(k.Symbol) {
		return nil, at(k.At, "kernel %s: it is overloaded in an unnamed namespace, or by a type of one, and its symbol is another one in each compilation: give it a name of its own, or make it static", k.Name)
	}
	p.unit.Long = p.unit.Long || k.LongName || made.Expression == "" && k.Long
	names := map[string]bool{"k": true, "stream": true, "config": true, "batch": true, "grid": true, "uses": true, "room": true, "err": true}
	for _, parameter := range k.Parameters {
		if t := parameter.Type; t.Kind == read.Struct && p.pointers(t) {
			names[parameter.Name+"Device"] = true // what is passed for it
		}
	}
	var c []string
	for i, parameter := range k.Parameters {
		a, err := p.argument(parameter.Type, parameterName(parameter.Name, i, names))
		if err != nil {
			return nil, at(k.At, "kernel %s, parameter %s: %v; or leave the kernel out by -skip '%s'", k.Name, parameterText(parameter, i), err, k.Name)
		}
		made.Arguments = append(made.Arguments, a)
		if t := parameter.Type; t.Kind == read.Pointer && t.Elem.Const {
			made.ReadOnly = append(made.ReadOnly, a.Name)
		}
		c = append(c, declaration(parameter))
		if overloaded {
			name += Camel(CName(parameter.Type))
		}
	}
	made.Signature = k.Name + "(" + strings.Join(c, ", ") + ")"
	made.Go = p.renamed(k.Name, k.At.Line, name)
	if !token.IsExported(made.Go) {
		return nil, at(k.At, "kernel %s: %q is no exported name of Go: choose one by -rename '%s=NAME'", k.Name, made.Go, k.Name)
	}
	return made, nil
}

// shares returns whether this unit is to have functions that several use: the first one that needs them has them.
func (p *Package) shares(has **Unit) bool {
	if *has == nil {
		*has = p.unit
	}
	p.unit.Long = p.unit.Long || (*has).Long // else it would lack them on Windows
	return *has == p.unit
}

// local tells whether a symbol is one of an unnamed namespace: NVRTC writes the number of its process into it.
func local(symbol string) bool { return strings.Contains(symbol, "_GLOBAL__N_") }

func parameterText(parameter read.Parameter, i int) string {
	if parameter.Name == "" {
		return fmt.Sprint(i + 1)
	}
	return parameter.Name
}

func declaration(parameter read.Parameter) string {
	s := strings.TrimSpace(CName(parameter.Type) + " " + parameter.Name)
	return strings.NewReplacer("* ", "*", "& ", "&").Replace(s)
}

func (p *Package) argument(t *read.Type, name string) (Argument, error) {
	a := Argument{Name: name, Size: t.Size}
	if t.Handle != "" {
		a.Type, a.Pass = &Go{Name: string(t.Handle), Package: Safe, Object: object(t), Size: 8}, Object
		return a, nil
	}
	switch {
	case t.Kind == read.Pointer && t.Elem.Kind == read.Function: // a number
	case t.Kind == read.Pointer && opaque(t.Elem):
		a.Type, a.Pass = &Go{Name: "VoidPointer", Package: Safe}, VoidPointer
		return a, nil
	case t.Kind == read.Pointer:
		elem, err := p.goType(t.Elem)
		a.Type, a.Pass, a.Elem = &Go{Name: "Pointer", Package: Safe, Elem: elem}, Pointer, elem
		return a, err
	case t.Kind == read.Number && t.Bool:
		a.Type = &Go{Name: "bool", Size: 1}
		return a, nil
	}
	g, err := p.goType(t)
	a.Type = g
	switch {
	case err != nil:
		return a, err
	case t.Kind == read.Struct && p.pointers(t):
		a.Pass = View
		return a, p.view(t)
	case g.Size > 16:
		a.Pass = ByRef
	}
	return a, nil
}

// view gives a struct with pointers, and those inside of it, a form for the host.
func (p *Package) view(t *read.Type) error {
	n, err := p.named(t)
	if err != nil || n.View {
		return err
	}
	n.View = true
	if err := p.take(n.Go+"Arg", "the form of "+n.C+" for the host", n.C, t.At); err != nil {
		return err
	}
	for _, f := range flat(t, 0) {
		if f.Type.Kind == read.Struct && p.pointers(f.Type) {
			if err := p.view(f.Type); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Package) variable(v *read.Variable) (*Variable, error) {
	made := &Variable{Symbol: v.Symbol, Name: v.Name, What: v.Space.String(), Doc: p.comment(v.At), Len: 1}
	if v.Space != read.Managed {
		made.Expression = "&" + v.Name
	} else if local(v.Symbol) {
		return nil, at(v.At, "variable %s: it is managed and in an unnamed namespace, and its symbol is another one in each compilation: move it out", v.Name)
	}
	t := v.Type
	if t.Kind == read.Array {
		t, made.Len = t.Elem, t.Len
	}
	p.hint = Camel(v.Name) + "Value"
	elem, err := p.goType(t)
	if err != nil {
		return nil, at(v.At, "variable %s: %v; or leave it out by -skip '%s'", v.Name, err, v.Name)
	}
	made.Elem = elem
	made.Go = p.renamed(v.Name, v.At.Line, Camel(v.Name))
	return made, nil
}

var word = regexp.MustCompile(`[A-Za-z0-9]+`)

// Camel is an exported Go name for a name in C++.
func Camel(s string) string {
	b := ""
	for _, w := range word.FindAllString(s, -1) {
		b += strings.ToUpper(w[:1]) + w[1:]
	}
	if b == "" || !unicode.IsLetter(rune(b[0])) {
		b = "X" + b
	}
	return b
}

var builtin = regexp.MustCompile(`^((u?int|float|complex)(8|16|32|64|128)?|safe|driver|vector|dtype|sim|unsafe|append|nil|bool|string|byte|error|true|false|len|cap|min|max|new|make|copy|any|panic)$`)

// parameterName is a name for a parameter in Go that hides nothing that generated code uses.
func parameterName(s string, i int, taken map[string]bool) string {
	if s == "" || strings.Trim(s, "_") == "" {
		s = fmt.Sprint("arg", i+1)
	}
	for token.IsKeyword(s) || taken[s] || builtin.MatchString(s) || !token.IsIdentifier(s) {
		if !token.IsIdentifier(s) && !token.IsKeyword(s) {
			s = fmt.Sprint("arg", i+1)
			continue
		}
		s += "_"
	}
	taken[s] = true
	return s
}
