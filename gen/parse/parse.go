// Package parse reads NVIDIA's headers into the model. It alone knows the C
// front end.
package parse

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// internal is the macro under which the headers declare every symbol their
// library exports, older variants too.
const internal = "__CUDA_API_VERSION_INTERNAL"

// Parse reads the header of an API from an include folder.
//
// It parses the header twice: as programs see it, for the plain names, the
// macros and the comments, and as the library itself does, for every exported
// symbol and type.
func Parse(headers fs.FS, api string) (*model.API, error) {
	row := model.RowOf(api)
	if row == nil {
		return nil, fmt.Errorf("unknown API %q: it is one of %s", api, strings.Join(model.APIs(), ", "))
	}
	return Row(headers, row)
}

// Row is Parse for a row that may not be one of the table.
func Row(headers fs.FS, row *model.Row) (*model.API, error) {
	version, err := versionOf(headers, row)
	if err != nil {
		return nil, err
	}
	for _, name := range row.Headers {
		if _, err := fs.Stat(headers, name); err != nil {
			return nil, fmt.Errorf("no %s in the include folder: %w", name, err)
		}
	}
	header := row.Headers[0]
	a := &model.API{Row: row, Header: header, Version: version}
	for _, also := range row.Also {
		if _, err := fs.Stat(headers, also.Header); err == nil {
			a.Also = append(a.Also, also)
		}
	}

	shared, err := sharedTypes(headers, row, version)
	if err != nil {
		return nil, err
	}
	all, err := load(headers, row, a.HeaderNames(), internalDefine(row))
	if err != nil {
		return nil, err
	}
	all.shared = shared
	if err := all.collect(a); err != nil {
		return nil, err
	}
	public, err := load(headers, row, a.HeaderNames(), "")
	if err != nil {
		return nil, err
	}
	if err := public.complete(a); err != nil {
		return nil, err
	}
	if row.Typedefs != "" {
		if err := typedefs(headers, a); err != nil {
			return nil, err
		}
	}
	maps.Copy(all.ownAlias, public.ownAlias)
	all.prune(a)
	return a, nil
}

func internalDefine(row *model.Row) string {
	return "#define " + cmp.Or(row.Internal, internal) + " 1\n"
}

// unit is one parsed header.
type unit struct {
	row   *model.Row
	ast   *cc.AST
	files map[string][]byte

	decls   map[string]*model.Decl // by each C name, aliases too
	aliases []*model.Alias
	order   []*model.Decl
	funcs   []*model.Func
	consts  []*model.Const
	vars    []*model.Var
	inlines []model.Inline
	pending []func() error                // members of records, resolved last
	handles map[string]*model.Decl        // by the tag of what they point to
	nested  map[*model.Decl][]*model.Decl // records defined inside a record
	members map[string]*string            // places of members' comments
	last    *model.Decl                   // the type declared last

	file    string                 // of the declaration being read
	foreign map[*model.Decl]bool   // types of headers that are not the row's own
	shared  map[string]*model.Decl // types of other packages, by C name and by tag
	opaque  map[string]bool        // names of records that no header defines

	declared map[string]bool           // functions: a header may declare one again
	leftOut  map[string]bool           // those that cannot be called from Go
	reasons  []string                  // why
	defined  map[*cc.Field]*definition // records, by their first member
	unlike   map[string]bool           // names of records with another layout than the front end and all systems have
	packs    packs

	ownAlias map[string]bool // second names of types in the row's own headers
}

func load(headers fs.FS, row *model.Row, names []string, defs string) (*unit, error) {
	for _, name := range row.Before {
		defs += "#include <" + name + ">\n"
	}
	ast, files, err := translate(headers, row, names, defs)
	if err != nil {
		return nil, err
	}
	u := &unit{row: row, ast: ast, files: files, decls: map[string]*model.Decl{}, handles: map[string]*model.Decl{}, nested: map[*model.Decl][]*model.Decl{}, members: map[string]*string{}, foreign: map[*model.Decl]bool{}, declared: map[string]bool{}, leftOut: map[string]bool{}, defined: map[*cc.Field]*definition{}, unlike: map[string]bool{}, opaque: map[string]bool{}, ownAlias: map[string]bool{}}
	u.definitions()
	return u, nil
}

// collect takes every declaration of the internal parse into the model.
func (u *unit) collect(a *model.API) error {
	if err := u.walk(); err != nil {
		return err
	}
	for _, d := range u.order {
		a.Decls = append(append(a.Decls, d), u.inside(d)...)
	}
	a.Aliases, a.Funcs, a.Consts, a.Vars, a.LeftOut = u.aliases, u.funcs, u.consts, u.vars, u.reasons
	u.comments()
	a.Notice = notice(u.files["cuda/"+a.Header])
	for _, name := range a.HeaderNames() {
		for _, g := range groups(name, u.files["cuda/"+name]) { // in place of one that an earlier header merely names
			a.Groups = slices.DeleteFunc(a.Groups, func(old model.Group) bool { return old.Name == g.Name && old.Header != name })
			a.Groups = append(a.Groups, g)
		}
	}
	return nil
}

// inside are the records defined inside d, inner ones after outer ones.
func (u *unit) inside(d *model.Decl) []*model.Decl {
	var out []*model.Decl
	for _, n := range u.nested[d] {
		out = append(append(out, n), u.inside(n)...)
	}
	return out
}

// walk visits the external declarations in order.
func (u *unit) walk() error {
	for l := u.ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		d := l.ExternalDeclaration
		if d == nil || !u.ours(d) {
			continue
		}
		u.file = path.Base(d.Position().Filename)
		err := u.measured(d)
		if err == nil {
			err = u.external(d)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", d.Position(), err)
		}
	}
	for _, resolve := range u.pending {
		if err := resolve(); err != nil {
			return err
		}
	}
	return nil
}

// ours tells whether a declaration stands in one of NVIDIA's headers.
func (u *unit) ours(n cc.Node) bool {
	name := n.Position().Filename
	_, ok := u.files[name]
	return ok
}

func (u *unit) external(d *cc.ExternalDeclaration) error {
	switch d.Case {
	case cc.ExternalDeclarationFuncDef:
		f := d.FunctionDefinition.Declarator
		if !u.owns(u.file) {
			return nil
		}
		if u.row.Inline && !u.skips(f.Name()) {
			return u.function(d.FunctionDefinition.DeclarationSpecifiers, f, u.leading(d))
		}
		if f.IsStatic() || f.IsInline() {
			u.inlines = append(u.inlines, inline(d.FunctionDefinition))
			return nil // not exported: the library has no such symbol
		}
		return fmt.Errorf("unhandled definition of function %s", f.Name())
	case cc.ExternalDeclarationDecl:
		return u.declaration(d.Declaration)
	case cc.ExternalDeclarationEmpty:
		return nil
	}
	return fmt.Errorf("unhandled declaration: %s", cc.NodeSource(d))
}

// inline is a function that the header defines. It may call whatever its body names.
func inline(f *cc.FunctionDefinition) model.Inline {
	in := model.Inline{C: f.Declarator.Name()}
	for _, t := range cc.NodeTokens(f.CompoundStatement) {
		if name := t.SrcStr(); !slices.Contains(in.Calls, name) {
			in.Calls = append(in.Calls, name)
		}
	}
	return in
}

func (u *unit) declaration(d *cc.Declaration) error {
	switch d.Case {
	case cc.DeclarationAssert:
		return nil
	case cc.DeclarationDecl:
	default:
		return fmt.Errorf("unhandled declaration: %s", cc.NodeSource(d))
	}
	if d.DeclarationSpecifiers == nil {
		return nil // a semicolon alone
	}
	comment := u.leading(d)
	if err := resized(d); err != nil {
		return err
	}
	if d.InitDeclaratorList == nil {
		return u.tagged(d.DeclarationSpecifiers.Type(), comment)
	}
	for l := d.InitDeclaratorList; l != nil; l = l.InitDeclaratorList {
		dd := l.InitDeclarator.Declarator
		var err error
		switch {
		case dd.IsTypename():
			err = u.typedef(d, dd, comment)
		case !u.owns(u.file):
		case dd.Type().Kind() == cc.Function:
			err = u.function(d.DeclarationSpecifiers, dd, comment)
		default:
			err = u.variable(dd, l.InitDeclarator.Initializer)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", dd.Name(), err)
		}
	}
	return nil
}

// variable takes a constant with a value, or a variable that the library exports.
func (u *unit) variable(dd *cc.Declarator, init *cc.Initializer) error {
	t, err := u.typ(dd.Type())
	if err != nil {
		return err
	}
	qualify(t, dd.Pointer)
	t.Const = false
	if init == nil {
		u.vars = append(u.vars, &model.Var{C: dd.Name(), Type: t})
		return nil
	}
	if init.Case == cc.InitializerExpr && dd.Type().Attributes().IsConst() {
		if v, ok := intValue(init.AssignmentExpression.Value()); ok {
			u.consts = append(u.consts, &model.Const{C: dd.Name(), Value: strconv.FormatInt(v, 10), Type: t})
			return nil
		}
	}
	return fmt.Errorf("unhandled variable")
}

func (u *unit) function(specifiers cc.Node, dd *cc.Declarator, comment string) error {
	if u.skips(dd.Name()) || u.declared[dd.Name()] {
		return nil
	}
	u.declared[dd.Name()] = true
	params, result, err := u.signature(dd.Type().(*cc.FunctionType), dd)
	if err != nil {
		return err
	}
	for _, p := range append(params, &model.Param{Type: result}) {
		if d := p.Type.Decl; p.Type.Kind == model.Named && d.ByPointer != "" {
			u.leftOut[dd.Name()] = true
			u.reasons = append(u.reasons, fmt.Sprintf("%s passes %s by value: %s", dd.Name(), d.C, d.ByPointer))
			return nil
		}
	}
	u.funcs = append(u.funcs, &model.Func{
		Symbol: dd.Name(), Params: params, Result: result, Comment: comment,
		Deprecated: slices.ContainsFunc(cc.NodeTokens(specifiers), func(t cc.Token) bool {
			return t.SrcStr() == "deprecated"
		}),
	})
	return nil
}

// skips tells whether a function is not to be bound.
func (u *unit) skips(symbol string) bool {
	return u.row.Skip != nil && u.row.Skip.MatchString(symbol)
}

// signature resolves the type of a function, or of a pointer to one, that dd
// declares.
func (u *unit) signature(ft *cc.FunctionType, dd *cc.Declarator) ([]*model.Param, *model.Type, error) {
	if ft.IsVariadic() {
		return nil, nil, fmt.Errorf("unhandled variadic function")
	}
	result, err := u.typ(ft.Result())
	if err != nil {
		return nil, nil, fmt.Errorf("result: %w", err)
	}
	qualify(result, dd.Pointer)
	var params []*model.Param
	for i, p := range ft.Parameters() {
		if p.Type().Kind() == cc.Void {
			continue // f(void)
		}
		t, err := u.parameter(p, dd.Name())
		if err != nil {
			return nil, nil, fmt.Errorf("parameter %d %s: %w", i, p.Name(), err)
		}
		switch {
		case p.Declarator != nil:
			qualify(t, p.Declarator.Pointer)
		case p.AbstractDeclarator != nil:
			qualify(t, p.AbstractDeclarator.Pointer)
		}
		t.Const = false // of the parameter itself: says nothing to the caller
		params = append(params, &model.Param{C: p.Name(), Type: t})
	}
	return params, result, nil
}

// parameter resolves a parameter's type. A pointer to a function that is spelled in place
// becomes a type named after the function and the parameter.
func (u *unit) parameter(p *cc.Parameter, function string) (*model.Type, error) {
	ptr, _ := p.Type().(*cc.PointerType)
	if ptr == nil || ptr.Typedef() != nil {
		return u.typ(p.Type())
	}
	fn, ok := ptr.Elem().(*cc.FunctionType)
	if !ok || fn.Typedef() != nil || p.Declarator == nil {
		return u.typ(p.Type())
	}
	return u.inlineCallback(function+"_"+p.Name(), fn, p.Declarator)
}

// inlineCallback is the type of a pointer to a function that dd spells in place.
func (u *unit) inlineCallback(name string, fn *cc.FunctionType, dd *cc.Declarator) (*model.Type, error) {
	if d := u.decls[name]; d != nil {
		return named(d), nil
	}
	params, result, err := u.signature(fn, dd)
	if err != nil {
		return nil, err
	}
	d := &model.Decl{Kind: model.Callback, C: name, Params: params, Result: result, Size: 8, Align: 8, Inline: true}
	u.add(d)
	return named(d), nil
}

// leading is the comment in front of a declaration. One that ends the line
// before it is the comment of the type declared there.
func (u *unit) leading(n cc.Node) string {
	toks := cc.NodeTokens(n)
	if len(toks) == 0 {
		return ""
	}
	sep := string(toks[0].Sep())
	if c := trailing(sep); c != "" && u.last != nil && u.last.Comment == "" {
		u.last.Comment = c
	}
	u.last = nil
	return lastBlock(sep)
}

// notice is the comment that a header begins with: its owner's notice.
func notice(text []byte) string {
	if end := bytes.Index(text, []byte("*/")); end > 0 && bytes.HasPrefix(text, []byte("/*")) {
		return string(text[:end+2])
	}
	return ""
}

// lastBlock is the last documentation comment in the white space before a
// token. One that ends the line before (/**<) belongs to what stands there.
func lastBlock(sep string) string {
	i := max(strings.LastIndex(sep, "/**"), strings.LastIndex(sep, "/*!"))
	if i < 0 {
		return ""
	}
	end := strings.Index(sep[i:], "*/")
	if end < 0 {
		return ""
	}
	block := sep[i : i+end+2]
	if strings.HasPrefix(block, "/**<") || strings.Contains(block, "@{") || strings.Contains(block, "@}") {
		return ""
	}
	return block
}
