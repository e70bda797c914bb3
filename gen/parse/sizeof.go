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
	if len(u.unlike) == 0 {
		return false
	}
	used, name := false, false
	seen := map[*cc.Macro]bool{}
	var look func(*cc.Macro)
	look = func(m *cc.Macro) {
		if m == nil || seen[m] {
			return
		}
		seen[m] = true
		for _, t := range m.ReplacementList() {
			used = used || slices.Contains(measures, t.SrcStr())
			name = name || u.unlike[t.SrcStr()] || t.SrcStr() == "##"
			look(u.ast.Macros[t.SrcStr()])
		}
	}
	look(m)
	return used && name
}
