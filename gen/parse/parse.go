// Package parse reads NVIDIA's headers into the model. It alone knows the C
// front end.
package parse

import (
	"bytes"
	"cmp"
	"errors"
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
	all.collect(a)
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

	decls    map[string]*model.Decl // by each C name, aliases too
	aliases  []*model.Alias
	order    []*model.Decl
	funcs    []*model.Func
	consts   []*model.Const
	vars     []*model.Var
	inlines  []model.Inline
	beside   map[string][]string           // functions with the library's prefix in headers that are not its own, by header
	pending  []func()                      // members of records, resolved last
	handles  map[string]*model.Decl        // by the tag of what they point to
	nested   map[*model.Decl][]*model.Decl // records defined inside a record
	untagged map[any]*model.Decl           // records and enums without a tag that a typedef names, by untaggedKey
	members  map[string]*string            // places of members' comments
	last     *model.Decl                   // the type declared last

	file    string                 // of the declaration being read
	pos     string                 // where it stands
	foreign map[*model.Decl]bool   // types of headers that are not the row's own
	shared  map[string]*model.Decl // types of other packages, by C name and by tag
	void    map[string]bool        // names of void
	system  map[string]bool        // types of the headers that take the place of the system's, such as "struct tm"

	declared map[string]bool           // functions: a header may declare one again
	leftOut  map[string]bool           // declarations that cannot be bound, by name
	unbound  []model.Unbound           // those of the row's own headers, and why
	bodies   map[string]bool           // functions that the headers define
	defined  map[*cc.Field]*definition // records, by their first member
	packed   map[*cc.Enumerator]int64  // the sizes of packed enums, by their first value
	unlike   map[string]bool           // names of records with another layout than the front end and all systems have, and of packed enums
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
	u := &unit{row: row, ast: ast, files: files, decls: map[string]*model.Decl{}, handles: map[string]*model.Decl{}, beside: map[string][]string{}, nested: map[*model.Decl][]*model.Decl{}, untagged: map[any]*model.Decl{}, members: map[string]*string{}, foreign: map[*model.Decl]bool{}, declared: map[string]bool{}, leftOut: map[string]bool{}, bodies: map[string]bool{}, defined: map[*cc.Field]*definition{}, packed: map[*cc.Enumerator]int64{}, unlike: map[string]bool{}, void: map[string]bool{}, system: map[string]bool{}, ownAlias: map[string]bool{}}
	u.definitions()
	return u, nil
}

// collect takes every declaration of the internal parse into the model.
func (u *unit) collect(a *model.API) {
	u.walk()
	for _, d := range u.order {
		a.Decls = append(append(a.Decls, d), u.inside(d)...)
	}
	a.Aliases, a.Funcs, a.Consts, a.Vars, a.Unbound, a.Beside = u.aliases, u.funcs, u.consts, u.vars, u.unbound, u.beside
	u.comments()
	a.Notice = notice(u.files["cuda/"+a.Header])
	for _, name := range a.HeaderNames() {
		for _, g := range groups(name, u.files["cuda/"+name]) { // in place of one that an earlier header merely names
			a.Groups = slices.DeleteFunc(a.Groups, func(old model.Group) bool { return old.Name == g.Name && old.Header != name })
			a.Groups = append(a.Groups, g)
		}
	}
}

// inside are the records defined inside d, inner ones after outer ones.
func (u *unit) inside(d *model.Decl) []*model.Decl {
	var out []*model.Decl
	for _, n := range u.nested[d] {
		out = append(append(out, n), u.inside(n)...)
	}
	return out
}

// walk visits the external declarations in order. What cannot be bound is left out.
func (u *unit) walk() {
	for l := u.ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		d := l.ExternalDeclaration
		if d == nil || !u.ours(d) {
			continue
		}
		u.at(d)
		if err := u.measured(d); err != nil {
			u.leaveAll(d, err)
			continue
		}
		u.external(d)
	}
	for _, resolve := range u.pending {
		resolve()
	}
	u.funcs = slices.DeleteFunc(u.funcs, u.unpassable)
}

// at notes which declaration is being read.
func (u *unit) at(n cc.Node) {
	u.pos = where(n)
	u.file = path.Base(n.Position().Filename)
}

// ours tells whether something stands in a header of the folder, not in one that takes the place of the system's.
func (u *unit) ours(n cc.Node) bool {
	name := n.Position().Filename
	_, ok := u.files[name]
	return ok
}

func (u *unit) external(d *cc.ExternalDeclaration) {
	switch d.Case {
	case cc.ExternalDeclarationFuncDef:
		f := d.FunctionDefinition.Declarator
		switch {
		case !u.owns(u.file):
		case u.row.Inline && !u.skips(f.Name()):
			if err := u.function(d.FunctionDefinition.DeclarationSpecifiers, f, u.leading(cc.NodeTokens(d))); err != nil {
				u.leave(f.Name(), err)
			}
		case f.IsStatic() || f.IsInline():
			u.inlines = append(u.inlines, inline(d.FunctionDefinition)) // the library has no such symbol
		default:
			u.leave(f.Name(), errors.New("the header defines it"))
		}
	case cc.ExternalDeclarationDecl:
		u.declaration(d)
	}
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

func (u *unit) declaration(e *cc.ExternalDeclaration) {
	d := e.Declaration
	if d.Case == cc.DeclarationAuto {
		u.leave(d.Declarator.Name(), errors.New("a variable that the header defines"))
		return
	}
	if d.Case == cc.DeclarationAssert || d.DeclarationSpecifiers == nil {
		return
	}
	tokens := cc.NodeTokens(d)
	comment := u.leading(tokens)
	if err := resized(d, tokens); err != nil {
		u.leaveAll(e, err)
		return
	}
	if d.InitDeclaratorList == nil {
		if err := u.tagged(d.DeclarationSpecifiers.Type(), comment); err != nil {
			u.leaveAll(e, err)
		}
		return
	}
	for _, l := range initDeclarators(d) {
		dd := l.Declarator
		var err error
		switch {
		case dd.IsTypename():
			if err = u.typedef(d, dd, comment); err != nil {
				u.leaveType(dd.Name(), dd.Type(), err)
			}
			continue
		case !u.owns(u.file):
			u.notOwn(dd)
		case labelled(tokens) && labelled(cc.NodeTokens(l)):
			err = errors.New("its symbol has another name")
		case dd.IsThreadLocal():
			err = errors.New("each thread has its own")
		case dd.Type().Kind() == cc.Function && u.bodies[dd.Name()] && (dd.IsStatic() || dd.IsInline()):
		case dd.Type().Kind() == cc.Function && dd.IsStatic():
			err = errors.New("the library does not export it, as it is static")
		case dd.Type().Kind() == cc.Function:
			err = u.function(d.DeclarationSpecifiers, dd, comment)
		default:
			err = u.variable(dd, l.Initializer)
		}
		if err != nil {
			u.leave(dd.Name(), err)
		}
	}
}

// initDeclarators are what a declaration declares: the names of its type first, of which pointers and arrays are made.
func initDeclarators(d *cc.Declaration) (out []*cc.InitDeclarator) {
	var made []*cc.InitDeclarator
	for l := d.InitDeclaratorList; l != nil; l = l.InitDeclaratorList {
		if dd := l.InitDeclarator.Declarator; dd.IsTypename() && !isName(dd) {
			made = append(made, l.InitDeclarator)
		} else {
			out = append(out, l.InitDeclarator)
		}
	}
	return append(out, made...)
}

// isName tells whether a declarator is a name alone.
func isName(dd *cc.Declarator) bool {
	return dd.Pointer == nil && dd.DirectDeclarator.Case == cc.DirectDeclaratorIdent
}

// labelled tells whether a declaration gives what it declares another symbol.
func labelled(tokens []cc.Token) bool {
	return slices.ContainsFunc(tokens, func(t cc.Token) bool { return strings.Trim(t.SrcStr(), "_") == "asm" })
}

// variable takes a constant with a value, or a variable that the library exports.
func (u *unit) variable(dd *cc.Declarator, init *cc.Initializer) error {
	if init != nil && init.Case == cc.InitializerExpr && dd.Type().Attributes().IsConst() {
		if c := u.initialized(dd, init.AssignmentExpression.Value()); c != nil {
			u.consts = append(u.consts, c)
			return nil
		}
	}
	if init != nil || dd.IsStatic() {
		return errors.New("a variable that the header defines")
	}
	t, err := u.value(dd.Type())
	if err != nil {
		return err
	}
	qualify(t, dd.Pointer)
	t.Const = false
	if !slices.ContainsFunc(u.vars, func(v *model.Var) bool { return v.C == dd.Name() }) {
		u.vars = append(u.vars, &model.Var{C: dd.Name(), Type: t})
	}
	return nil
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
	return u.row.Skip != nil && u.row.Skip.MatchString(symbol) || !u.binds(symbol)
}

// errVariable is about functions with ... and those with a va_list.
var errVariable = errors.New("it takes a variable number of arguments")

// signature resolves the type of a function, or of a pointer to one, that dd
// declares.
func (u *unit) signature(ft *cc.FunctionType, dd *cc.Declarator) ([]*model.Param, *model.Type, error) {
	if ft.IsVariadic() {
		return nil, nil, errVariable
	}
	result, err := u.result(ft.Result())
	if err != nil {
		return nil, nil, fmt.Errorf("its result: %w", err)
	}
	qualify(result, dd.Pointer)
	var params []*model.Param
	for i, p := range ft.Parameters() {
		if p.Type().Kind() == cc.Void {
			continue // f(void)
		}
		t, err := u.parameter(p, dd.Name())
		if errors.Is(err, errVariable) {
			return nil, nil, err
		}
		if err != nil {
			return nil, nil, fmt.Errorf("its parameter %s: %w", cmp.Or(p.Name(), strconv.Itoa(i)), err)
		}
		switch {
		case p.Declarator != nil:
			qualify(t, p.Declarator.Pointer)
		case p.AbstractDeclarator != nil:
			qualify(t, p.AbstractDeclarator.Pointer)
		}
		t.Const = false // of the parameter itself: says nothing to the caller
		params = append(params, &model.Param{C: p.Name(), Type: t, Function: u.spellFunction(p)})
	}
	return params, result, nil
}

// parameter resolves a parameter's type. A pointer to a function that is spelled in place
// becomes a type named after the function and the parameter.
func (u *unit) parameter(p *cc.Parameter, function string) (*model.Type, error) {
	ptr, _ := p.Type().(*cc.PointerType)
	if ptr == nil || ptr.Typedef() != nil {
		return u.value(p.Type())
	}
	fn, ok := ptr.Elem().(*cc.FunctionType)
	if !ok || fn.Typedef() != nil || p.Declarator == nil {
		return u.value(p.Type())
	}
	return u.inlineCallback(function+"_"+p.Name(), fn, p.Declarator), nil
}

// spellFunction spells a parameter that is a pointer to a function, where the header gives neither of them a name; "" for others.
func (u *unit) spellFunction(p *cc.Parameter) string {
	ptr, _ := p.Type().(*cc.PointerType)
	if ptr == nil || ptr.Typedef() != nil || p.Declarator != nil || p.AbstractDeclarator == nil {
		return ""
	}
	fn, ok := ptr.Elem().(*cc.FunctionType)
	if !ok || fn.Typedef() != nil {
		return ""
	}
	result, err := u.result(fn.Result())
	if err != nil {
		return ""
	}
	text, before := "", cc.Token{}
	for _, t := range cc.NodeTokens(p.AbstractDeclarator.DirectAbstractDeclarator) {
		word := before.Ch == rune(cc.IDENTIFIER) || len(before.SrcStr()) > 1
		if t.SrcStr() != "," && (before.SrcStr() == "," || word && t.SrcStr() == "*" || text != "" && len(t.Sep()) > 0) {
			text += " "
		}
		text += t.SrcStr()
		before = t
	}
	return result.CDecl(text)
}

// inlineCallback is the type of a pointer to a function that dd spells in place, a number if
// that function cannot be described.
func (u *unit) inlineCallback(name string, fn *cc.FunctionType, dd *cc.Declarator) *model.Type {
	if d := u.decls[name]; d != nil {
		return named(d)
	}
	params, result, err := u.signature(fn, dd)
	if err != nil {
		u.leave(name, err)
		return foreign("", "")
	}
	d := &model.Decl{Kind: model.Callback, C: name, Params: params, Result: result, Size: 8, Align: 8, Inline: true}
	u.add(d)
	return named(d)
}

// leading is the comment in front of a declaration. One that ends the line
// before it is the comment of the type declared there.
func (u *unit) leading(tokens []cc.Token) string {
	if len(tokens) == 0 {
		return ""
	}
	sep := string(tokens[0].Sep())
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
