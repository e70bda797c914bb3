package doc

import (
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// comment builds a doc comment, paragraph by paragraph.
type comment struct {
	links    *links
	api      string
	verbatim bool // the text is a header's, whose braces and names mean themselves
	lines    []string
	urls     map[string]string // links out of the package
}

// width is where comments wrap.
const width = 97

// words picks the reading for the API and resolves the links of a text.
func (c *comment) words(text string) string {
	sign := marked
	if !c.verbatim {
		text, sign = forAPI(text, c.api), link
	}
	return sign.ReplaceAllStringFunc(text, func(m string) string {
		name := m[1 : len(m)-1]
		if !c.verbatim && (c.links.isGo(name) || c.urls[name] != "") { // resolved already
			return m
		}
		members := ""
		if c.verbatim {
			name, members = c.links.path(name)
		}
		text, other := c.links.resolve(name)
		if other {
			text = c.external(name)
		}
		return text + members
	})
}

// external is a link to a declaration of the other API.
func (c *comment) external(name string) string {
	return c.linkTo(name, c.links.url+"#"+model.GoName(name))
}

// linkTo is a link out of the package.
func (c *comment) linkTo(name, url string) string {
	if c.urls == nil {
		c.urls = map[string]string{}
	}
	c.urls[name] = url
	return "[" + name + "]"
}

// isGo tells whether a name is already the Go name of a declaration.
func (l *links) isGo(name string) bool {
	return l.goNames[name] && l.here[name] == "" || l.here[name] == name
}

func (c *comment) gap() {
	if len(c.lines) > 0 {
		c.lines = append(c.lines, "")
	}
}

func (c *comment) text(text string) {
	c.gap()
	c.lines = append(c.lines, wrap(c.words(text))...)
}

// code adds lines that stay as they are.
func (c *comment) code(text string) {
	c.gap()
	for line := range strings.Lines(text) {
		c.lines = append(c.lines, "\t"+strings.TrimPrefix(strings.TrimRight(line, "\n"), "\t"))
	}
}

// blocks adds paragraphs, list items and code.
func (c *comment) blocks(blocks []string) {
	for i, b := range blocks {
		switch item, isItem := strings.CutPrefix(b, "- "); {
		case strings.HasPrefix(b, "\t"):
			c.code(forAPI(b, c.api))
		case isItem:
			if i == 0 || !strings.HasPrefix(blocks[i-1], "- ") {
				c.gap()
			}
			c.item(item)
		default:
			c.text(b)
		}
	}
}

func (c *comment) item(text string) {
	for i, line := range wrapAt(c.words(text), width-4) {
		lead := "    "
		if i == 0 {
			lead = "  - "
		}
		c.lines = append(c.lines, lead+line)
	}
}

// items adds a list under a label.
func (c *comment) items(label string, items []item) {
	if len(items) == 0 {
		return
	}
	c.text(label + ":")
	for _, i := range items {
		c.item(i.name + ": " + i.text)
	}
}

// label adds paragraphs of which the first begins with a label.
func (c *comment) label(label string, blocks []string) {
	if len(blocks) == 0 {
		return
	}
	c.text(label + ": " + blocks[0])
	c.blocks(blocks[1:])
}

// done is the finished comment, with its links out of the package at the end.
func (c *comment) done() []string {
	names := make([]string, 0, len(c.urls))
	for name := range c.urls {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i == 0 {
			c.gap()
		}
		c.lines = append(c.lines, "["+name+"]: "+c.urls[name])
	}
	return c.lines
}

func wrap(text string) []string { return wrapAt(text, width) }

// wrapAt breaks text into lines.
func wrapAt(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
