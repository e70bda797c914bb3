package doc

import (
	"html"
	"regexp"
	"strings"
)

// A header's comment is Doxygen. This reads it into blocks that a Go doc
// comment can be made of.

// blockKind is what a block is.
type blockKind int

const (
	paragraph blockKind = iota
	listItem
	codeBlock
	tableRow
	parameter // name is the parameter's
	seeAlso
	returned
	remark // \note and \warning
	obsolete
)

// block is a piece of a Doxygen comment.
type block struct {
	kind  blockKind
	name  string
	text  string   // with ::name and \ref marked
	cells []string // tableRow
}

// readDoxygen reads a comment. The first paragraph is the brief one.
func readDoxygen(comment string) []block {
	r := doxygen{}
	for _, line := range stripMarkers(comment) {
		r.line(line)
	}
	r.flush()
	return r.out
}

type doxygen struct {
	out   []block
	now   block
	open  bool // now holds something
	code  bool
	skip  string // the command that ends the skipped lines
	table *tableReader
}

var (
	marker   = regexp.MustCompile(`^\s*\*( |$)?`)
	bullet   = regexp.MustCompile(`^(?:[-*+]|-#|\d+\.|\\li|[\\@]arg)\s+`)
	doxyLine = regexp.MustCompile(`^[\\@](\w+)(\[[a-z, ]*\])?\s*(.*)$`)
)

// stripMarkers takes the comment's marks off its lines.
func stripMarkers(comment string) []string {
	comment = strings.ReplaceAll(comment, "\u00a0", " ") // one header indents with it
	comment = strings.TrimSuffix(strings.TrimSpace(comment), "*/")
	for _, start := range []string{"/**<", "/*!<", "/**", "/*!", "/*"} {
		if rest, ok := strings.CutPrefix(comment, start); ok {
			comment = rest
			break
		}
	}
	var lines []string
	for line := range strings.Lines(comment) {
		line = strings.TrimRight(line, " \t\r\n")
		if m := marker.FindString(line); m != "" {
			line = line[len(m):]
		}
		lines = append(lines, line)
	}
	return lines
}

func (r *doxygen) line(line string) {
	trimmed := strings.TrimSpace(line)
	switch {
	case r.skip != "":
		if strings.Contains(trimmed, r.skip) {
			r.skip = ""
		}
	case r.code:
		if strings.Contains(trimmed, `\endcode`) || strings.Contains(trimmed, "@endcode") {
			r.code = false
			r.flush()
			return
		}
		r.now.text += line + "\n"
	case strings.Index(trimmed, `\code`) > 0: // in the middle of a line
		before, _, _ := strings.Cut(trimmed, `\code`)
		r.command(strings.TrimSpace(before))
		r.command(`\code`)
	case r.table != nil || strings.HasPrefix(trimmed, "<table"):
		r.tableLine(trimmed)
	case trimmed == "":
		r.flush()
	default:
		r.command(trimmed)
	}
}

// command handles a line that may begin with a Doxygen command.
func (r *doxygen) command(line string) {
	m := doxyLine.FindStringSubmatch(line)
	if m == nil {
		r.words(line)
		return
	}
	name, rest := m[1], m[3]
	if text, ok := aliases[name]; ok && strings.HasPrefix(name, "note") {
		r.flush()
		r.out = append(r.out, block{kind: remark, text: text})
		r.words(rest)
		return
	}
	switch name {
	case "brief", "details", "short":
		r.start(paragraph, "")
		r.words(rest)
	case "param":
		param, text, _ := strings.Cut(rest, " ")
		r.start(parameter, strings.Trim(param, "*,"))
		r.words(strings.TrimLeft(strings.TrimSpace(text), "-– "))
	case "return", "returns":
		r.start(returned, "")
		r.words(rest)
	case "sa", "see":
		r.start(seeAlso, "")
		r.words(rest)
	case "note", "notes", "warning", "attention", "remark":
		r.start(remark, "")
		r.now.text = map[string]string{"warning": "Warning: ", "attention": "Attention: "}[name]
		if r.now.text == "" {
			r.now.text = "Note: "
		}
		r.words(rest)
	case "deprecated":
		r.start(obsolete, "")
		r.words(rest)
	case "par":
		r.start(paragraph, "")
		if rest != "" {
			r.words(strings.TrimSuffix(rest, ":") + ":")
			r.flush()
		}
	case "section", "subsection":
		_, title, _ := strings.Cut(rest, " ")
		r.start(paragraph, "")
		r.words(title + ":")
		r.flush()
	case "code":
		r.flush()
		r.now, r.open, r.code = block{kind: codeBlock}, true, true
	case "xmlonly", "endxmlonly", "cond", "endcond", "struct", "typedef", "enum", "union", "file", "ingroup",
		"defgroup", "addtogroup", "internal", "endlatexonly":
		r.flush()
	case "latexonly":
		r.skip = `\endlatexonly`
	default:
		r.words(line)
	}
}

// words adds a line of text to the open block.
func (r *doxygen) words(line string) {
	for _, tag := range []string{"<ul>", "</ul>", "<ol>", "</ol>", "</li>", "<p>", "</p>", "<li>"} {
		line = strings.ReplaceAll(line, tag, "\n"+tag+"\n")
	}
	for _, part := range strings.Split(line, "\n") {
		part = strings.TrimSpace(part)
		switch {
		case part == "":
			continue
		case part == "<li>":
			r.start(listItem, "")
			r.open = true
			continue
		case strings.HasPrefix(part, "<") && listTag[part]:
			r.flush()
			continue
		}
		if b := bullet.FindString(part); b != "" {
			r.start(listItem, "")
			part = part[len(b):]
		}
		ends := strings.HasSuffix(part, `\n`) || strings.HasSuffix(part, "<br>")
		part = inline(strings.TrimSuffix(strings.TrimSuffix(part, `\n`), "<br>"))
		if r.now.text != "" && !strings.HasSuffix(r.now.text, " ") {
			r.now.text += " "
		}
		r.now.text += part
		r.open = true
		if ends {
			r.flush()
		}
	}
}

var listTag = map[string]bool{"<ul>": true, "</ul>": true, "<ol>": true, "</ol>": true, "</li>": true, "<p>": true, "</p>": true}

// start ends the open block and begins another.
func (r *doxygen) start(kind blockKind, name string) {
	r.flush()
	r.now = block{kind: kind, name: name}
}

func (r *doxygen) flush() {
	if r.open && (strings.TrimSpace(r.now.text) != "" || len(r.now.cells) > 0) {
		if r.now.kind != codeBlock {
			r.now.text = strings.TrimSpace(r.now.text)
		}
		r.out = append(r.out, r.now)
	}
	r.now, r.open = block{}, false
}

var (
	inlineCommand = regexp.MustCompile(`[\\@](?:p|c|e|b|a|em)\s+`)
	refCommand    = regexp.MustCompile(`[\\@]ref\s+(?:::)?(\w+(?:::\w+)*)(\s+"([^"]*)")?`)
	qualified     = regexp.MustCompile(`(\w*)((?:::[A-Za-z_]\w*)+)`)
	otherCommand  = regexp.MustCompile(`\\([A-Za-z]\w*)`)
	tag           = regexp.MustCompile(`</?(?:b|i|small|tt|em|strong|br|p|ul|ol|li|sup|sub|code|pre|td|tr|th|table|thead|tbody|tgroup|row|entry|colspec)\b[^>]*>`)
)

// mark makes a name a link, or a path such as "CUx.member". Brackets are no
// sign for that here: headers write them for array elements.
func mark(name string) string { return "\x01" + name + "\x02" }

var marked = regexp.MustCompile("\x01([\\w.]+)\x02")

// inline turns Doxygen's marks inside a line into plain text and marks.
func inline(s string) string {
	s = refCommand.ReplaceAllStringFunc(s, func(m string) string {
		g := refCommand.FindStringSubmatch(m)
		if g[3] != "" {
			return g[3]
		}
		return mark(strings.ReplaceAll(g[1], "::", "."))
	})
	s = inlineCommand.ReplaceAllString(s, "")
	s = qualified.ReplaceAllStringFunc(s, func(m string) string {
		g := qualified.FindStringSubmatch(m)
		if g[1] != "" && !strings.HasPrefix(g[1], "cu") && !strings.HasPrefix(g[1], "CU") {
			return m // std::max
		}
		return mark(strings.ReplaceAll(strings.TrimPrefix(m, "::"), "::", "."))
	})
	s = strings.ReplaceAll(s, `\n`, " ")
	s = otherCommand.ReplaceAllStringFunc(s, func(m string) string {
		if text := aliases[m[1:]]; text != "" {
			return text
		}
		return m[1:]
	})
	s = tag.ReplaceAllString(s, " ")
	return html.UnescapeString(strings.ReplaceAll(s, "&tm;", "&trade;"))
}

// tableReader collects the rows of an HTML or DocBook table.
type tableReader struct {
	text strings.Builder
}

var (
	rowStart  = regexp.MustCompile(`<(?:tr|row)>`)
	cellStart = regexp.MustCompile(`<(?:td|th|entry)>`)
	spaces    = regexp.MustCompile(`\s+`)
)

func (r *doxygen) tableLine(line string) {
	if r.table == nil {
		r.flush()
		r.table = &tableReader{}
	}
	r.table.text.WriteString(line + " ")
	if !strings.Contains(line, "</table>") {
		return
	}
	for i, row := range rowStart.Split(r.table.text.String(), -1) {
		if i == 0 {
			continue
		}
		var cells []string
		for j, cell := range cellStart.Split(row, -1) {
			if j > 0 {
				cells = append(cells, strings.TrimSpace(spaces.ReplaceAllString(inline(cell), " ")))
			}
		}
		r.out = append(r.out, block{kind: tableRow, cells: cells})
	}
	r.table = nil
}
