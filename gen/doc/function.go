package doc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// function is the comment of a function that has its symbol's name.
func (w *writer) function(f *model.Func) []string {
	base, _, thread := model.Base(f.Symbol)
	if w.main[base] == f.Go {
		return w.full(f, f.Go, w.texts[base], "")
	}
	own := w.texts[f.Symbol]
	if f.Symbol == base {
		own = nil // the text under this key is about what the plain name means
	}
	if own != nil {
		return w.full(f, f.Go, own, "")
	}
	return w.variant(f, base, thread)
}

// plainName is the comment of a plain name.
func (w *writer) plainName(al *model.Alias) []string {
	base, _, _ := model.Base(al.Target)
	return w.full(w.target(al), al.Go, cmp.Or(w.texts[al.C], w.texts[base]), w.means(al))
}

// target is the function a plain name means, nil for a type's second name.
func (w *writer) target(al *model.Alias) *model.Func {
	for _, f := range w.api.Funcs {
		if al.Func && f.Symbol == al.Target {
			return f
		}
	}
	return nil
}

// means says which function a plain name means.
func (w *writer) means(al *model.Alias) string {
	if al.Newer == "" {
		return fmt.Sprintf("The name means [%s].", al.GoRef)
	}
	return fmt.Sprintf("The name means [%s] and stays that; the header%s maps %s to %s, which is [%s] here.",
		al.GoRef, w.release(" of"), al.C, al.Newer, model.GoName(al.Newer))
}

// full is a whole comment: what the function does, its C prototype, what there
// is to know, and where it comes from.
func (w *writer) full(f *model.Func, name string, e *entry, about string) []string {
	if e == nil {
		e = &entry{summary: fmt.Sprintf("calls %s.", f.Symbol)}
	}
	c := &comment{links: w.links, api: w.api.Row.API}
	c.text(name + " " + e.summary)
	c.code(f.Prototype())
	c.blocks(e.body)
	c.paragraphs(needed(f.Comment, e))
	c.items("Parameters", w.params(f.Params, e))
	c.label("Ordering", e.order)
	c.label("Capture", e.capture)
	c.label("From Go", e.golang)
	for _, cb := range f.Callbacks {
		c.text(w.callback(cb))
	}
	w.errors(c, f, e)
	w.see(c, f, name)
	c.safe(e)
	c.text(strings.TrimSpace(about + " " + w.origin(f)))
	w.deprecated(c, f)
	return c.done()
}

// params are the entry's words about these parameters, in their order.
func (w *writer) params(params []*model.Param, e *entry) []item {
	var out []item
	for _, p := range params {
		for _, i := range e.params {
			if forAPI(i.name, w.api.Row.API) == p.C {
				out = append(out, item{p.Go, i.text})
			}
		}
	}
	return out
}

// errors lists what a function returns: first the codes that mean something
// special here, then the others that the header names.
func (w *writer) errors(c *comment, f *model.Func, e *entry) {
	if !f.Result.Is(model.Enum) && (f.Result.Kind != model.Named || !f.Result.Decl.Error) {
		c.text("The error says that the function could not be called.")
		return
	}
	var special []item
	for _, i := range e.errors {
		if code := w.links.code(forAPI(i.name, w.api.Row.API)); code != "" { // else this version has no such code
			special = append(special, item{w.links.own(code), i.text})
		}
	}
	rest := strings.Join(w.unsaid(e, w.codes(f)), ", ")
	if openings[w.api.Row.API].earlier && rest != "" {
		rest += ", or the error of earlier work"
	}
	c.items("Errors", special)
	switch {
	case rest == "":
	case len(special) == 0:
		c.text("Returns nil, " + rest + ".")
	default:
		c.text("Also " + rest + ".")
	}
	if codes := w.unsaid(e, setUp(f.Comment)); len(codes) > 0 {
		c.text("A call that has to set up the runtime may also return " + alternatives(codes) + ".")
	}
}

// codes are the codes for failures that the header names for a function.
func (w *writer) codes(f *model.Func) []string {
	return slices.DeleteFunc(references(f.Comment).returns, func(name string) bool {
		return !w.links.status[name] || name == w.api.Row.Success
	})
}

// unsaid links to those of the codes that an entry says nothing of.
func (w *writer) unsaid(e *entry, codes []string) []string {
	said := map[string]bool{}
	for _, i := range e.errors {
		said[w.links.code(forAPI(i.name, w.api.Row.API))] = true
	}
	var out []string
	for _, code := range codes {
		if !said[code] {
			out = append(out, w.links.own(code))
		}
	}
	return out
}

// alternatives joins names to "a, b or c".
func alternatives(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func (w *writer) see(c *comment, f *model.Func, name string) {
	var here, there []string
	for _, r := range references(f.Comment).see {
		if l := w.links.own(r); l != "" {
			if l != "["+name+"]" && l != "["+f.Go+"]" {
				here = append(here, l)
			}
		} else if w.links.isOther(r) {
			there = append(there, c.external(r))
		}
	}
	other := w.api.Row.Other
	switch {
	case len(here) > 0 && len(there) > 0:
		c.text("See also " + strings.Join(here, ", ") + "; in the " + other + " API " + strings.Join(there, ", ") + ".")
	case len(here) > 0:
		c.text("See also " + strings.Join(here, ", ") + ".")
	case len(there) > 0:
		c.text("See also, in the " + other + " API, " + strings.Join(there, ", ") + ".")
	}
}

// variant is the short comment of a variant of a function.
func (w *writer) variant(f *model.Func, base, thread string) []string {
	c := &comment{links: w.links, api: w.api.Row.API}
	summary := fmt.Sprintf("calls %s.", f.Symbol)
	if e := w.texts[base]; e != nil {
		summary = e.summary
	}
	c.text(f.Go + " " + summary)
	c.code(f.Prototype())
	main := w.main[base]
	switch {
	case thread != "":
		c.text(fmt.Sprintf("It is the variant of [%s] for which stream 0 is the calling thread's own default stream, [%s], and not the legacy one.",
			w.sameWithout(f, thread, main), w.api.Row.OwnQueue))
	case w.isMeant(f.Symbol, base):
		c.text(fmt.Sprintf("It is what [%s] means; see there.", main))
	default:
		c.text(fmt.Sprintf("It is another form of [%s], where the rest is said.", main))
		w.differences(c, f, base)
	}
	c.text(w.origin(f))
	w.deprecated(c, f)
	return c.done()
}

// differences tells of a variant what the comment of the function that programs
// call by the base name does not: parameters that it has in place of others, and
// codes that the header names for it alone.
func (w *writer) differences(c *comment, f *model.Func, base string) {
	main := w.named(base)
	e := cmp.Or(w.texts[base], &entry{})
	has := func(p *model.Param) bool {
		return slices.ContainsFunc(main.Params, func(q *model.Param) bool { return q.C == p.C })
	}
	c.items("Other parameters", w.params(slices.DeleteFunc(slices.Clone(f.Params), has), e))
	said := w.unsaid(e, w.codes(main))
	codes := slices.DeleteFunc(w.unsaid(e, w.codes(f)), func(code string) bool { return slices.Contains(said, code) })
	if len(codes) > 0 {
		c.text("It may also return " + alternatives(codes) + ".")
	}
}

// named is the function that programs call by a base name.
func (w *writer) named(base string) *model.Func {
	i := slices.IndexFunc(w.api.Funcs, func(f *model.Func) bool { return f.Go == w.main[base] || w.isMeant(f.Symbol, base) })
	return w.api.Funcs[i]
}

// sameWithout is the function that a per-thread variant is the variant of.
func (w *writer) sameWithout(f *model.Func, thread, main string) string {
	symbol := strings.TrimSuffix(f.Symbol, "_"+thread)
	for _, g := range w.api.Funcs {
		if g.Symbol == symbol {
			return g.Go
		}
	}
	return main
}

// isMeant tells whether the plain name base means the function.
func (w *writer) isMeant(symbol, base string) bool {
	return slices.ContainsFunc(w.api.Aliases, func(al *model.Alias) bool { return al.Func && al.Target == symbol && al.C == base })
}

// callback says what may be passed as a callback: cgo was promised that no
// call runs Go code on its own thread.
func (w *writer) callback(cb *model.Decl) string {
	if !cb.GoAllowed {
		return fmt.Sprintf("The callback is the address of a C function, or 0. %s runs it on %s: it must not be a Go function exported to C, and must not call one, or the process dies.", w.caller(), cb.Thread)
	}
	rule := ""
	if w.api.Row.OfCUDA() { // of other libraries nobody has said so
		rule = "; it must call no CUDA function"
	}
	return fmt.Sprintf("The callback is the address of a C function. %s runs it on %s, so it may also be a Go function exported to C%s. "+
		"What it is handed is passed on as a number: pass a runtime/cgo.Handle, not a pointer to Go memory.", w.caller(), cb.Thread, rule)
}

// origin is where a function comes from: version, chapter, NVIDIA's page.
func (w *writer) origin(f *model.Func) string {
	if w.api.Row.Manual == "" {
		return ""
	}
	page := strings.ReplaceAll(w.api.Row.Manual, "{group}", strings.ReplaceAll(f.Group, "_", "__"))
	if f.Since == "" {
		return "NVIDIA describes it at " + page + "."
	}
	return "Since " + model.SinceText(f.Since) + ". NVIDIA describes it at " + page + "."
}

// owner says whose header it is.
func (w *writer) owner() string {
	if w.api.Row.OfCUDA() {
		return "NVIDIA"
	}
	return w.api.Header
}

// deprecated says in the form that Go's tools know that NVIDIA deprecates f, or
// announces to.
func (w *writer) deprecated(c *comment, f *model.Func) {
	if f.Deprecated {
		c.text("Deprecated: " + w.owner() + " marks it as deprecated" + w.release(" in") + ".")
		return
	}
	successor, ok := announced(f.Comment)
	if !ok {
		return
	}
	text := "Deprecated: " + w.owner() + " announces that a release" + w.release(" after") + " will deprecate it"
	if l := w.links.own(successor); l != "" {
		text += ". Use " + l
		if since := w.since(successor); since != "" && !strings.HasPrefix(since, "<=") {
			text += ", which needs " + model.SinceText(since)
		}
	}
	c.text(text + ".")
}

// release is what the header is of after a word, "" for a library whose versions are not CUDA's.
func (w *writer) release(word string) string {
	if w.api.Row.Apart || w.api.Of() == "" {
		return ""
	}
	return word + " " + w.api.Of()
}

// since is the CUDA version that introduced the function that a name means.
func (w *writer) since(name string) string {
	for _, al := range w.api.Aliases {
		if al.C == name {
			return al.Since
		}
	}
	for _, f := range w.api.Funcs {
		if f.Symbol == name {
			return f.Since
		}
	}
	return ""
}
