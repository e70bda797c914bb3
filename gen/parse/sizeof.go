package parse

import (
	"fmt"
	"slices"

	"modernc.org/cc/v4"
)

// The front end computes sizeof and its like by its own layouts. Where these are others than
// ours, or those of all systems, what it computes is not to be had.

// alike notes that a record has another name.
func (u *unit) alike(name, other string) {
	if u.unlike[other] {
		u.unlike[name] = true
	}
}

var measures = []string{"sizeof", "_Alignof", "alignof", "__alignof__", "offsetof", "__builtin_offsetof"}

// measured is an error for a declaration that depends on the layout of such a record.
func (u *unit) measured(d *cc.ExternalDeclaration) error {
	if len(u.unlike) == 0 || d.Case != cc.ExternalDeclarationDecl || d.Declaration.Case == cc.DeclarationAssert {
		return nil
	}
	used, name := false, ""
	for _, t := range cc.NodeTokens(d) {
		used = used || slices.Contains(measures, t.SrcStr())
		if u.unlike[t.SrcStr()] {
			name = t.SrcStr()
		}
	}
	if used && name != "" {
		return fmt.Errorf("it depends on the layout of %s, which is another one on some system", name)
	}
	return nil
}

// measuredMacro tells whether a macro depends on one. A name that is put together can be that
// of any record.
func (u *unit) measuredMacro(m *cc.Macro) bool {
	return len(u.unlike) > 0 &&
		u.mentions(m, func(name string) bool { return slices.Contains(measures, name) }) &&
		u.mentions(m, func(name string) bool { return u.unlike[name] || name == "##" })
}

// mentions tells whether a macro, or one that it uses, has a token in its body.
func (u *unit) mentions(m *cc.Macro, is func(token string) bool) bool {
	seen := map[*cc.Macro]bool{}
	var look func(*cc.Macro) bool
	look = func(m *cc.Macro) bool {
		if m == nil || seen[m] {
			return false
		}
		seen[m] = true
		return slices.ContainsFunc(m.ReplacementList(), func(t cc.Token) bool {
			return is(t.SrcStr()) || look(u.ast.Macros[t.SrcStr()])
		})
	}
	return look(m)
}
