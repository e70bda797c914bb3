package doc

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// Package is the package comment: how to start, what to mind, and where what
// is, a heading a chapter of the header.
func Package(a *model.API, name string) []string {
	c := &comment{links: newLinks(a, nil, nil), verbatim: true}
	own := openings[a.Row.API]
	if len(a.Funcs) == 0 {
		c.text(fmt.Sprintf("Package %s has %s, as %s declares them.", name, a.Row.Title, header(a)))
		c.paragraphs(own.purpose)
		return c.done()
	}
	all := "every function that its library exports"
	if len(a.Unbound) > 0 {
		all = "the functions that its library exports and Go can call"
	}
	c.text(fmt.Sprintf("Package %s binds %s: %s, as %s declares them.%s", name, a.Row.Title, all, header(a), further(a)))
	c.paragraphs(own.purpose)
	for _, s := range intro(a, own) {
		if s.title == "" || strings.Join(s.text, "") == "" {
			continue // there is nothing to say
		}
		c.heading(s.title)
		for _, t := range s.text {
			c.paragraphs(c.links.unlink(t))
		}
		if program := programs()[a.Row.API]; s.title == "Start" && program != "" {
			c.heading("Example")
			c.code(program)
		}
	}
	main := mainNames(a)
	for _, g := range a.Groups {
		names, families := list(a, g, main)
		if len(names) == 0 {
			continue
		}
		c.heading(title(g))
		if len(names) > tooMany && len(families) < len(names) {
			c.text("One function of each family: " + strings.Join(families, ", ") + ".")
		} else {
			c.text(strings.Join(names, ", ") + ".")
		}
	}
	return c.done()
}

// header says which header a was read from.
func header(a *model.API) string {
	if a.Row.Apart || a.Of() == "" {
		return a.Header
	}
	return a.Header + " of " + a.Of()
}

// further says which other headers a was read from.
func further(a *model.API) string {
	names := a.HeaderNames()[1:]
	switch len(names) {
	case 0:
		return ""
	case 1:
		return " It includes the functions of " + names[0] + "."
	}
	last := len(names) - 1
	return " It includes the functions of " + strings.Join(names[:last], ", ") + " and " + names[last] + "."
}

// tooMany names in one chapter are hard to read. A chapter that stands for a whole header may
// have so many.
const tooMany = 150

// list is what a chapter's functions are called, each by its main name, and the first name of
// each family, which shares a text.
func list(a *model.API, g model.Group, main map[string]string) (names, families []string) {
	all, _ := texts() // Fill reports the error
	seen, told := map[string]bool{}, map[*entry]bool{}
	for _, f := range a.Funcs {
		base, _, _ := model.Base(f.Symbol)
		if f.Group != g.Name || seen[base] || main[base] == "" {
			continue
		}
		seen[base] = true
		names = append(names, "["+main[base]+"]")
		if e := all[base]; e == nil || !told[e] {
			families = append(families, "["+main[base]+"]")
			told[e] = true
		}
	}
	return names, families
}

// packageSection is a part of the package comment.
type packageSection struct {
	title string
	text  []string
}

// notNeeded says what a program does not need to be built.
func notNeeded(a *model.API) string {
	if a.Row.OfCUDA() {
		return "CUDA"
	}
	return "the library"
}

// returns says what functions return.
func returns(a *model.API) string {
	text := "Functions return nil on success and otherwise the status code itself, which is an error"
	switch {
	case a.Row.Status == "":
		return "The results of a function come before the error."
	case a.Row.Example != "":
		text += ": errors.Is(err, " + a.Row.Example + ")"
	}
	if d := a.Status(); d != nil && d.Kind == model.Enum {
		text += ". [Status] returns the code in an error"
	}
	return text + ". Results that are no status come before the error."
}

// intro is the part that stands in front of the list of functions.
func intro(a *model.API, own opening) []packageSection {
	var rules []string
	for _, r := range own.rules {
		rules = append(rules, a.Row.For(a.Version, r))
	}
	return []packageSection{
		{"Start", []string{
			"Nothing of " + notNeeded(a) + " is needed to build a program, and nothing happens when it starts: the library is opened at the first call, or by [Open].",
			own.start,
		}},
		{own.heading, rules},
		{"Errors", []string{
			returns(a) + own.late,
			"A function that the installed library lacks returns a [*SymbolError], and where there is no library every function returns a [*LibraryError]. Both match [errors.ErrUnsupported], as do the codes that say that something is not supported.",
		}},
		{"Versions", []string{
			a.Row.For(a.Version, own.version),
			"[Library] tells what is loaded, [Find] whether it has a function, and [Missing] which functions of this package it lacks.",
		}},
		{"Not bound", unbound(a, own)},
	}
}

// unbound says what of the headers the package lacks: declarations that cannot be bound, functions
// that they define themselves, with those that these call, and macros that are no constants.
func unbound(a *model.API, own opening) []string {
	var inlines, macros string
	if len(a.Inlines) > 0 {
		inlines = "The header defines functions that the library does not export: " + strings.Join(inlineCalls(a), ", ") + "."
	}
	if len(a.Dropped) > 0 {
		macros = "These macros are no constants: " + strings.Join(slices.Sorted(slices.Values(a.Dropped)), ", ") + "."
	}
	left := []string{"What Go cannot have is left out:"}
	for _, reason := range a.Reasons() {
		left = append(left, reason+".")
	}
	if len(left) == 1 {
		left = nil
	}
	return []string{strings.Join(left, " "), inlines, strings.TrimSpace(macros + " " + own.unbound)}
}

// inlineCalls are the functions that the header defines, each with the bound functions that it
// calls.
func inlineCalls(a *model.API) []string {
	var out []string
	for _, in := range a.Inlines {
		calls := "none that is bound"
		if len(in.Calls) > 0 {
			calls = "[" + model.GoName(in.Calls[0]) + "]"
			for _, c := range in.Calls[1:] {
				calls += " and [" + model.GoName(c) + "]"
			}
		}
		out = append(out, in.C+" calls "+calls)
	}
	return out
}

var brackets = regexp.MustCompile(`\s*\[DEPRECATED\]\s*`)

// title is a chapter's name as a heading of Go's comments: words alone.
func title(g model.Group) string {
	t := strings.TrimSpace(brackets.ReplaceAllString(g.Title, ", deprecated"))
	if t == "" {
		t = g.Name
	}
	return strings.Trim(t, ".")
}

// paragraphs adds those that say something.
func (c *comment) paragraphs(texts ...string) {
	for _, t := range texts {
		if t != "" {
			c.text(t)
		}
	}
}

// heading begins a section.
func (c *comment) heading(text string) {
	c.gap()
	c.lines = append(c.lines, "# "+text)
}
