package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// writeText prints the changes, a line each.
func writeText(w io.Writer, changes []change) error {
	var b strings.Builder
	last := ""
	for _, c := range changes {
		if head := c.API + ", " + c.Kind + " " + c.What; head != last {
			fmt.Fprintf(&b, "%s:\n", head)
			last = head
		}
		fmt.Fprintf(&b, "  %s\n", c.line())
	}
	if len(changes) == 0 {
		b.WriteString("no changes\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c change) line() string {
	switch {
	case c.What == "changed" || c.What == "remapped":
		return c.Name + ": " + c.Old + " -> " + c.New
	case c.Old+c.New == "":
		return c.Name
	case c.Kind == "function":
		return c.Old + c.New // the prototype has the name
	}
	return c.Name + ": " + c.Old + c.New
}

//go:embed page.html.tmpl
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// section is the changes of one kind.
type section struct {
	API, Kind string
	Changes   []change
}

// writeHTML writes a page that needs nothing beside it.
func writeHTML(w io.Writer, from, to string, changes []change) error {
	var sections []section
	counts := map[string]int{}
	for _, c := range changes {
		counts[c.What]++
		if n := len(sections); n == 0 || sections[n-1].API != c.API || sections[n-1].Kind != c.Kind {
			sections = append(sections, section{API: c.API, Kind: c.Kind})
		}
		last := &sections[len(sections)-1]
		last.Changes = append(last.Changes, c)
	}
	return page.Execute(w, map[string]any{"From": from, "To": to, "Sections": sections, "Counts": counts})
}
