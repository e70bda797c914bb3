package doc

import (
	"strings"
	"unicode"

	"github.com/cudabind/cudabind/gen/model"
)

// FillHeader writes the doc comments of a from the header's own comments. The
// text is NVIDIA's: what comes out must stay private.
func FillHeader(a, other *model.API) error {
	_, err := fillHeader(a, other)
	return err
}

// fillHeader also returns the names that the comments refer to and that
// nothing declares.
func fillHeader(a, other *model.API) (dangling map[string]bool, err error) {
	w := &writer{api: a, links: newLinks(a, other, nil), main: mainNames(a)}
	for _, f := range a.Funcs {
		f.Doc = w.headerFunc(f, f.Go, "")
	}
	for _, al := range a.Aliases {
		if f := w.target(al); f != nil {
			al.Doc = w.headerFunc(f, al.Go, w.means(al))
		} else {
			al.Doc = wrap(al.Go + " is another name of [" + al.GoRef + "].")
		}
	}
	for _, d := range a.Decls {
		w.headerDecl(d)
	}
	for _, c := range a.Consts {
		c.Doc = w.headerMember(c.Comment)
	}
	w.status()
	return w.links.dangling, nil
}

// headerFunc is the comment of a function: the brief sentence, the prototype,
// the rest in the header's order, and what the generator adds.
func (w *writer) headerFunc(f *model.Func, name, about string) []string {
	c := &comment{links: w.links, verbatim: true}
	blocks := readDoxygen(f.Comment)
	if brief, rest := takeBrief(blocks); brief != "" {
		c.text(name + ": " + lowerFirst(brief))
		blocks = rest
	} else {
		c.text(name + " calls " + f.Symbol + ".")
	}
	c.code(f.Prototype())
	obsolete := c.doxygen(blocks)
	for _, cb := range f.Callbacks {
		c.text(w.callback(cb))
	}
	w.see(c, f, name)
	c.text(strings.TrimSpace(about + " " + w.origin(f)))
	if obsolete != "" {
		c.text("Deprecated: " + obsolete)
	} else {
		w.deprecated(c, f)
	}
	return c.done()
}

// takeBrief takes the first paragraph.
func takeBrief(blocks []block) (string, []block) {
	if len(blocks) > 0 && blocks[0].kind == paragraph {
		return blocks[0].text, blocks[1:]
	}
	return "", blocks
}

// lowerFirst begins a sentence that goes on after a colon. Names and
// abbreviations stay.
func lowerFirst(s string) string {
	r := []rune(s)
	if len(r) > 1 && unicode.IsUpper(r[0]) && unicode.IsLower(r[1]) {
		r[0] = unicode.ToLower(r[0])
	}
	return string(r)
}

// doxygen adds blocks. What it returns is why the thing is deprecated.
func (c *comment) doxygen(blocks []block) (obsoleted string) {
	for i, b := range blocks {
		first := i == 0 || blocks[i-1].kind != b.kind
		if b.kind == listItem && besideCode(blocks, i) {
			c.text("• " + b.text)
			continue
		}
		switch b.kind {
		case codeBlock:
			c.code(b.text)
		case tableRow:
			if first {
				c.gap()
			}
			c.lines = append(c.lines, "\t"+c.plain(strings.Join(b.cells, " | ")))
		case listItem:
			if first {
				c.gap()
			}
			c.item(b.text)
		case parameter:
			if first {
				c.text("Parameters:")
			}
			c.item(b.name + ": " + b.text)
		case returned:
			c.returned(b.text)
		case seeAlso: // the list of related functions comes at the end
		case obsolete:
			obsoleted = b.text
		default:
			c.text(b.text)
		}
	}
	return obsoleted
}

// besideCode tells whether a list item stands in one run with code or a table.
// Go's lists can hold neither, and would swallow them.
func besideCode(blocks []block, i int) bool {
	isCode := func(b block) bool { return b.kind == codeBlock || b.kind == tableRow }
	for _, step := range []int{-1, 1} {
		for j := i + step; j >= 0 && j < len(blocks) && (blocks[j].kind == listItem || isCode(blocks[j])); j += step {
			if isCode(blocks[j]) {
				return true
			}
		}
	}
	return false
}

// returned adds what a function returns: a list where it is codes, else a
// sentence.
func (c *comment) returned(text string) {
	if !marked.MatchString(text) {
		c.text("Returns: " + text)
		return
	}
	c.text("Returns:")
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			c.item(part)
		}
	}
}

// plain is text without links, for where Go's comments have none.
func (c *comment) plain(text string) string { return marked.ReplaceAllString(text, "$1") }

// headerDecl writes the comments of a type, its values and its members.
func (w *writer) headerDecl(d *model.Decl) {
	c := &comment{links: w.links, verbatim: true}
	if brief, rest := takeBrief(readDoxygen(d.Comment)); brief != "" {
		c.text(d.Go + ": " + brief)
		if why := c.doxygen(rest); why != "" {
			c.text("Deprecated: " + why)
		}
	} else {
		c.text(d.Go + " is " + w.fallback(d))
	}
	w.kind(c, d)
	d.Doc = c.done()
	for _, e := range d.Enumerators {
		e.Doc = w.headerMember(e.Comment)
	}
	for _, f := range d.Fields {
		f.Doc = w.headerMember(f.Comment)
	}
}

// headerMember is the comment of a value or member.
func (w *writer) headerMember(text string) []string {
	blocks := readDoxygen(text)
	if len(blocks) == 0 {
		return nil
	}
	c := &comment{links: w.links, verbatim: true}
	if why := c.doxygen(blocks); why != "" {
		c.text("Deprecated: " + why)
	}
	return c.done()
}
