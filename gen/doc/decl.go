package doc

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/cudabind/cudabind/gen/model"
)

// decls writes the comments of types, their values and their members.
func (w *writer) decls() {
	nested := map[*model.Decl]place{}
	for _, d := range w.api.Decls { // outer records come before inner ones
		at := nested[d]
		if !d.Nested {
			at = place{top: w.entryOf(d)}
		}
		d.Doc = w.decl(d, at)
		for _, e := range d.Enumerators {
			e.Doc = w.member(at.top.value(e.C, w.api.Row.API))
		}
		for _, f := range d.Fields {
			path := at.path + f.C
			f.Doc = w.member(at.top.field(path, w.api.Row.API))
			if f.C != "" {
				path += "."
			}
			if t := f.Type.Element(); t.Kind == model.Named && t.Decl.Nested {
				nested[t.Decl] = place{at.top, path}
			}
		}
	}
}

// consts writes the comments of constants that belong to no enumeration.
func (w *writer) consts() {
	for _, k := range w.api.Consts {
		e := w.texts[k.C]
		if e == nil {
			continue
		}
		c := &comment{links: w.links, api: w.api.Row.API}
		c.text(k.Go + " " + e.summary)
		c.blocks(e.body)
		k.Doc = c.done()
	}
}

// place is where in a type with an entry a record lies.
type place struct {
	top  *entry
	path string
}

// entryOf is the entry about a type, under any of its names.
func (w *writer) entryOf(d *model.Decl) *entry {
	name := model.BareName(d.C)
	plain, _, _ := model.Base(name)
	for _, key := range []string{name, plain, d.Tag} {
		if e := w.texts[key]; e != nil {
			return e
		}
	}
	for _, al := range w.api.Aliases {
		if !al.Func && al.GoRef == d.Go {
			if e := w.texts[model.BareName(al.C)]; e != nil {
				return e
			}
		}
	}
	return nil
}

func (w *writer) member(text string) []string {
	if text == "" {
		return nil
	}
	c := &comment{links: w.links, api: w.api.Row.API}
	c.text(sentence(text))
	return c.done()
}

// sentence gives a fragment a capital and a full stop. Names such as int32 and cuFFT stay.
func sentence(text string) string {
	r := []rune(text)
	first, _, _ := strings.Cut(text, " ")
	if isWord := !strings.ContainsFunc(first, func(c rune) bool { return unicode.IsUpper(c) || unicode.IsDigit(c) }); isWord && unicode.IsLower(r[0]) {
		r[0] = unicode.ToUpper(r[0])
	}
	if last := r[len(r)-1]; !strings.ContainsRune(".!?:", last) {
		r = append(r, '.')
	}
	return string(r)
}

func (e *entry) value(name, api string) string { return e.find((*entry).valueItems, name, api) }
func (e *entry) field(name, api string) string { return e.find((*entry).fieldItems, name, api) }

func (e *entry) valueItems() []item { return e.values }
func (e *entry) fieldItems() []item { return e.fields }

func (e *entry) find(items func(*entry) []item, name, api string) string {
	if e == nil || name == "" { // an unnamed member is told by its own members
		return ""
	}
	for _, i := range items(e) {
		if forAPI(i.name, api) == name {
			return i.text
		}
	}
	return ""
}

// decl is the comment of a type.
func (w *writer) decl(d *model.Decl, at place) []string {
	c := &comment{links: w.links, api: w.api.Row.API}
	if at.top != nil && !d.Nested {
		c.text(d.Go + " " + at.top.summary)
		c.blocks(at.top.body)
		c.label("From Go", at.top.golang)
	} else {
		c.text(d.Go + " is " + w.fallback(d))
	}
	w.kind(c, d)
	return c.done()
}

// kind says what a program must know of a type of this kind.
func (w *writer) kind(c *comment, d *model.Decl) {
	switch d.Kind {
	case model.Callback:
		c.code(d.Prototype())
		may := "It must not be a Go function exported to C, and must not call one."
		if d.GoAllowed {
			may = "It may be a Go function exported to C."
		}
		c.text(fmt.Sprintf("It holds the address of a C function, or 0. %s calls it on %s. %s", w.caller(), d.Thread, may))
	case model.Union:
		size := fmt.Sprintf(" of %d bytes", d.Size)
		if len(d.Elsewhere) > 0 {
			size = ""
		}
		c.text("It is a union" + size + ": its members overlap, and a method gives the address of each.")
	}
	if d.Align > 8 {
		c.text(fmt.Sprintf("C wants it at a multiple of %d bytes, which Go does not promise: allocate it with [New%s].", d.Align, d.Go))
	}
}

// caller is who calls callbacks.
func (w *writer) caller() string {
	if w.api.Row.OfCUDA() {
		return "CUDA"
	}
	return "The library"
}

// fallback describes a type that has no entry.
func (w *writer) fallback(d *model.Decl) string {
	switch d.Kind {
	case model.Handle:
		of := ""
		if w.api.Row.OfCUDA() {
			of = " of CUDA's"
		}
		return fmt.Sprintf("a handle%s, %s in C; 0 is none.", of, d.C)
	case model.Second:
		return fmt.Sprintf("%s in C.", d.C)
	case model.Incomplete:
		return fmt.Sprintf("an incomplete type, %s in C: only the library knows its members and makes one.", d.C)
	case model.Scalar:
		return fmt.Sprintf("%s in C, a number of %d bytes.", d.C, d.Size)
	}
	if d.Nested {
		parent := d.Go[:strings.LastIndexByte(d.Go, '_')]
		return fmt.Sprintf("a %s inside [%s].", d.Kind, parent)
	}
	return fmt.Sprintf("the %s %s.", d.Kind, model.BareName(d.C))
}
