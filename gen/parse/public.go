package parse

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// Version reads the CUDA version of an include folder from its cuda.h.
func Version(headers fs.FS) (string, error) {
	data, err := fs.ReadFile(headers, "cuda.h")
	if err != nil {
		return "", fmt.Errorf("no cuda.h in the include folder: %w", err)
	}
	m := versionMacro.FindSubmatch(data)
	if m == nil {
		return "", fmt.Errorf("cuda.h defines no CUDA_VERSION: is it NVIDIA's?")
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return "", fmt.Errorf("cuda.h: CUDA_VERSION %s: %w", m[1], err)
	}
	return model.VersionString(n), nil
}

// versionOf is the version of CUDA, or of a library whose headers do not come with it.
func versionOf(headers fs.FS, row *model.Row) (string, error) {
	if !row.OfCUDA() {
		return row.Release, nil
	}
	return Version(headers)
}

var versionMacro = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*define[ \t]+CUDA_VERSION[ \t]+(\d+)`)

// complete adds what only the public view of the header tells: plain names,
// comments, deprecation and macros.
func (u *unit) complete(a *model.API) error {
	u.walk()
	bySymbol := map[string]*model.Func{}
	for _, f := range a.Funcs {
		bySymbol[f.Symbol] = f
	}
	lines := map[string]int{} // of the public declaration, by symbol
	headerOf := map[string]string{}
	for l := u.ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		d := l.ExternalDeclaration
		if d == nil || !u.ours(d) || !u.owns(path.Base(d.Position().Filename)) {
			continue
		}
		dd := u.bound(d)
		if dd == nil {
			continue
		}
		lines[dd.Name()] = dd.Position().Line
		headerOf[dd.Name()] = path.Base(d.Position().Filename)
		if plain := u.spelled(dd); plain != dd.Name() {
			if u.leftOut[dd.Name()] {
				continue
			}
			if bySymbol[dd.Name()] == nil {
				a.Unbound = append(a.Unbound, model.Unbound{C: plain, At: where(dd), Why: "it means " + dd.Name() + ", which the internal parse does not declare"})
				continue
			}
			a.Aliases = append(a.Aliases, &model.Alias{C: plain, Target: dd.Name(), Func: true})
		}
	}
	for _, f := range u.funcs {
		known := bySymbol[f.Symbol]
		if known == nil {
			a.Unbound = append(a.Unbound, model.Unbound{C: f.Symbol, Why: "it is declared publicly but not by the internal parse"})
			continue
		}
		known.Deprecated = f.Deprecated
		for i, p := range f.Params { // the names that the comments speak of
			known.Params[i].C = p.C
		}
		if f.Comment != "" {
			known.Comment = f.Comment
		}
	}
	a.Inlines = u.inlines
	for i, in := range a.Inlines {
		a.Inlines[i].Calls = slices.DeleteFunc(in.Calls, func(name string) bool { return bySymbol[name] == nil })
	}
	u.fromBase(a, lines, headerOf)
	if u.row.Own != nil {
		chapters(a, headerOf)
	}
	if err := u.macros(a); err != nil {
		return err
	}
	consts := map[string]*model.Const{}
	for _, c := range a.Consts {
		consts[c.C] = c
	}
	for _, text := range u.files {
		macroComments(string(text), consts)
	}
	return nil
}

// bound is the function that a declaration binds, nil for others.
func (u *unit) bound(d *cc.ExternalDeclaration) *cc.Declarator {
	var dd *cc.Declarator
	switch {
	case d.Case == cc.ExternalDeclarationFuncDef && u.row.Inline:
		dd = d.FunctionDefinition.Declarator
	case d.Case == cc.ExternalDeclarationDecl && d.Declaration.InitDeclaratorList != nil:
		dd = d.Declaration.InitDeclaratorList.InitDeclarator.Declarator
	}
	if dd == nil || dd.IsTypename() || dd.Type().Kind() != cc.Function || u.skips(dd.Name()) {
		return nil
	}
	return dd
}

// spelled is the name as the header spells it, before macros rename it.
func (u *unit) spelled(dd *cc.Declarator) string {
	tok := dd.NameTok()
	pos := tok.Position()
	text := u.files[pos.Filename]
	if pos.Offset >= len(text) {
		return dd.Name()
	}
	name := identifier.Find(text[pos.Offset:])
	if m := u.ast.Macros[string(name)]; m == nil || m.IsFnLike {
		return dd.Name() // also where a macro with parameters declares it
	}
	return string(name)
}

var identifier = regexp.MustCompile(`^[A-Za-z_]\w*`)

// fromBase gives each function its chapter, and the variants that the header
// declares without a comment that of the function they vary.
func (u *unit) fromBase(a *model.API, lines map[string]int, headerOf map[string]string) {
	groupAt := func(header string, line int) string {
		name := ""
		for _, g := range a.Groups { // inner groups come later
			if g.Header == header && g.Line <= line && line <= g.End {
				name = g.Name
			}
		}
		return name
	}
	group, comment, deprecated := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, f := range a.Funcs {
		line, ok := lines[f.Symbol]
		if !ok {
			continue
		}
		f.Group = groupAt(headerOf[f.Symbol], line)
		if m := ingroup.FindStringSubmatch(f.Comment); m != nil && slices.ContainsFunc(a.Groups, func(g model.Group) bool { return g.Name == m[1] }) {
			f.Group = m[1]
		}
		base, _, _ := model.Base(f.Symbol)
		group[base], comment[base], deprecated[base] = f.Group, f.Comment, f.Deprecated
	}
	for _, al := range a.Aliases {
		if f := find(a.Funcs, al.Target); al.Func && f != nil {
			al.Group = f.Group
			group[al.C], comment[al.C] = f.Group, f.Comment
		}
	}
	for _, f := range a.Funcs {
		base, _, thread := model.Base(f.Symbol)
		if f.Group == "" {
			f.Group = group[base]
		}
		if f.Comment == "" {
			f.Comment = comment[base]
		}
		if thread != "" {
			f.Deprecated = deprecated[base]
		}
	}
}

func find(fs []*model.Func, symbol string) *model.Func {
	for _, f := range fs {
		if f.Symbol == symbol {
			return f
		}
	}
	return nil
}

// macros takes the object-like macros. A macro is a constant when it has a
// value; empty ones, attributes, those with parameters and those that begin with
// an underscore are the header's own business, renames of functions are plain
// names.
func (u *unit) macros(a *model.API) error {
	all := map[string]*model.Decl{}
	consts := map[string]*model.Const{}
	for _, d := range a.Decls {
		all[d.C] = d
		if d.Tag != "" {
			all[d.Tag] = d
		}
		for _, e := range d.Enumerators {
			consts[e.C] = e
		}
	}
	for _, al := range a.Aliases {
		if !al.Func {
			all[al.C] = all[al.Target]
		}
	}
	declared := map[string]bool{}
	for c := range consts {
		declared[c] = true
	}
	for _, c := range a.Consts {
		declared[c.C] = true
	}
	isFunc, plain := map[string]bool{}, map[string]bool{}
	for _, al := range a.Aliases {
		plain[al.C] = true
	}
	for _, f := range a.Funcs {
		isFunc[f.Symbol] = true
	}
	for symbol := range u.leftOut {
		isFunc[symbol] = true
	}
	for _, m := range u.sortedMacros() {
		name := m.Name.SrcStr()
		repl := m.ReplacementList()
		if len(repl) > 0 && repl[0].SrcStr() == "__attribute__" || strings.HasPrefix(name, "_") {
			continue
		}
		owned := u.owns(path.Base(m.Position().Filename)) && u.binds(name)
		if m.IsFnLike && owned && strings.HasPrefix(strings.ToLower(name), strings.ToLower(u.row.Prefix)) {
			a.Dropped = append(a.Dropped, name)
		}
		if m.IsFnLike || len(repl) == 0 || !owned || declared[name] || repl[0].SrcStr() == name {
			continue // the last two tell that there is a declaration of this name
		}
		if len(repl) == 1 {
			target := repl[0].SrcStr()
			if isFunc[target] && !u.leftOut[target] && !isFunc[name] && !plain[name] && u.row.Own != nil {
				a.Aliases = append(a.Aliases, &model.Alias{C: name, Target: target, Func: true})
				plain[name] = true
			}
			if isFunc[target] || isFunc[name] {
				continue
			}
			if d := all[target]; d != nil {
				a.Aliases = append(a.Aliases, &model.Alias{C: name, Target: d.C})
				u.ownAlias[name] = true
				continue
			}
			if e := consts[target]; e != nil {
				value := model.GoName(target)
				if e.Type != nil && e.Type.Decl.Package != "" {
					value = e.Value // it is a constant of that package
				}
				a.Consts = append(a.Consts, &model.Const{C: name, Value: value, Type: e.Type})
				consts[name] = e
				continue
			}
		}
		if isFunc[name] || renames(repl, isFunc) && u.row.Own == nil {
			continue
		}
		c, err := constant(m, all)
		switch {
		case u.measuredMacro(m):
			err = errors.New("it depends on a layout")
		case u.mentions(m, dependsOnPlace):
			err = errors.New("it depends on the place where it is used")
		case u.mentions(m, misread):
			err = errors.New("the front end reads it wrongly")
		}
		if err != nil && u.row.Own != nil {
			a.Dropped = append(a.Dropped, name)
			continue
		}
		if err != nil {
			a.Consts = append(a.Consts, &model.Const{C: name}) // a quirk must say what it is
			continue
		}
		a.Consts = append(a.Consts, c)
	}
	return nil
}

// renames tells whether a macro body such as __CUDA_API_PTSZ(cuX_v2) names a
// function.
func renames(repl []cc.Token, isFunc map[string]bool) bool {
	return slices.ContainsFunc(repl, func(t cc.Token) bool { return isFunc[t.SrcStr()] })
}

func (u *unit) sortedMacros() []*cc.Macro {
	var ms []*cc.Macro
	for _, m := range u.ast.Macros {
		if _, ours := u.files[m.Position().Filename]; ours {
			ms = append(ms, m)
		}
	}
	slices.SortFunc(ms, func(x, y *cc.Macro) int {
		px, py := x.Position(), y.Position()
		return cmp.Or(strings.Compare(px.Filename, py.Filename), px.Line-py.Line)
	})
	return ms
}

// groups finds the chapters of a header by their Doxygen marks.
func groups(header string, text []byte) []model.Group {
	var out []model.Group
	var open []int
	fresh := -1 // the chapter that the next mark opens, -1 where it opens none
	for i, line := range bytes.Split(text, []byte("\n")) {
		if m := defgroup.FindSubmatch(line); m != nil {
			out = append(out, model.Group{Name: string(m[1]), Title: strings.TrimSpace(string(m[2])), Header: header, Line: i + 1, End: 1 << 30})
			fresh = len(out) - 1
		}
		for range bytes.Count(line, []byte("@{")) {
			open = append(open, fresh)
			fresh = -1
		}
		if bytes.Contains(line, []byte("@}")) && len(open) > 0 {
			if last := open[len(open)-1]; last >= 0 {
				out[last].End = i + 1
			}
			open = open[:len(open)-1]
		}
	}
	return out
}

var ingroup = regexp.MustCompile(`[\\@]ingroup\s+(\w+)`)

var defgroup = regexp.MustCompile(`[\\@](?:defgroup|addtogroup)\s+(\w+)(.*)`)

// typedefs reads the headers that spell every function again with the version
// that introduced it.
func typedefs(headers fs.FS, a *model.API) error {
	names := []string{a.Row.Typedefs}
	for _, also := range a.Also {
		if _, err := fs.Stat(headers, also.Typedefs); err == nil && also.Typedefs != "" {
			names = append(names, also.Typedefs)
		}
	}
	u, err := load(headers, a.Row, names, internalDefine(a.Row))
	if err != nil {
		return err
	}
	for l := u.ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		d := l.ExternalDeclaration
		if d == nil || !u.ours(d) || d.Case != cc.ExternalDeclarationDecl {
			continue
		}
		if !slices.Contains(names, strings.TrimPrefix(d.Position().Filename, "cuda/")) {
			u.at(d)
			u.external(d)
			continue
		}
		for il := d.Declaration.InitDeclaratorList; il != nil; il = il.InitDeclaratorList {
			dd := il.InitDeclarator.Declarator
			m := pfn.FindStringSubmatch(dd.Name())
			if m == nil {
				continue
			}
			ptr, _ := dd.Type().(*cc.PointerType)
			if ptr == nil || ptr.Elem().Kind() != cc.Function {
				continue
			}
			params, result, err := u.signature(ptr.Elem().(*cc.FunctionType), dd)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", where(dd), dd.Name(), err)
			}
			version, _ := strconv.Atoi(m[2])
			a.PFNs = append(a.PFNs, &model.PFN{Func: m[1], Version: version, Params: params, Result: result})
		}
	}
	return nil
}

var pfn = regexp.MustCompile(`^PFN_(\w+)_v(\d+)$`)
