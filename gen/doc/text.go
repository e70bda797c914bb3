package doc

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cudabind/cudabind/gen/model"
)

// Our own text lies in text/, a file a group of functions or types. An entry
// begins with the C names it is for, unindented: one name, or a driver function
// and its runtime twin when they mean the same. Everything below is indented by
// a tab:
//
//	cuStreamWaitEvent cudaStreamWaitEvent
//		makes work that is enqueued on a stream later wait for an event.
//
//		More paragraphs. [cuEventRecord] is a link, by C name. {hStream|stream}
//		reads hStream for the driver and stream for the runtime.
//
//		param {hStream|stream}: the stream that waits
//		param Flags: how
//		error CUDA_ERROR_INVALID_HANDLE: when, and what to do about it
//		order: what it is ordered with, and what the default stream means
//		capture: what it means while the stream captures
//		go: threads, contexts, lifetime, callbacks, what must be pinned
//
// The first paragraph continues the sentence that the Go name begins. A
// paragraph that starts with "- " is a list item, one that is indented by a
// second tab is code. Types have "value NAME:" for enumerators and "field
// NAME:" for members. An entry for cuX serves its variants cuX_v2 and
// cuX_ptsz too, unless they have one of their own. In a runtime package a link
// to a driver function goes to its twin, and a driver status code becomes the
// runtime's code of the same number. Lines that begin with # are notes.
//
//go:embed text
var textFS embed.FS

// entry is our own text about one declaration, or about two twins.
type entry struct {
	keys []string
	pos  string // file:line

	summary string
	body    []string // paragraphs, list items and code
	params  []item
	errors  []item
	order   []string
	capture []string
	golang  []string
	values  []item
	fields  []item
}

// item is the text about one name.
type item struct{ name, text string }

// texts are all entries, by C name.
var texts = sync.OnceValues(func() (map[string]*entry, error) {
	all := map[string]*entry{}
	files, err := fs.Glob(textFS, "text/*.txt")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		data, err := textFS.ReadFile(name)
		if err != nil {
			return nil, err
		}
		entries, err := parseText(path.Base(name), string(data))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			for _, key := range e.keys {
				if other := all[key]; other != nil {
					return nil, fmt.Errorf("%s: %s has an entry at %s already", e.pos, key, other.pos)
				}
				all[key] = e
			}
		}
	}
	return all, nil
})

var (
	keyLine = regexp.MustCompile(`^[A-Za-z_]\w*( [A-Za-z_]\w*)*$`)
	section = regexp.MustCompile(`^(?:(param|error|value|field) ([^:]+)|(order|capture|go)):\s*(.*)$`)
)

// parseText reads one file of entries.
func parseText(file, text string) ([]*entry, error) {
	var entries []*entry
	var e *entry
	var blocks []string
	flush := func() error {
		if e == nil {
			return nil
		}
		err := e.take(blocks)
		blocks = nil
		return err
	}
	n, gap := 0, true
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, " \t\n")
		pos := fmt.Sprintf("%s:%d", file, n)
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "":
			gap = true
		case line[0] != '\t':
			if err := flush(); err != nil {
				return nil, err
			}
			if !keyLine.MatchString(line) {
				return nil, fmt.Errorf("%s: want the C names of an entry, or indented text: %q", pos, line)
			}
			e = &entry{keys: strings.Fields(line), pos: pos}
			entries = append(entries, e)
			gap = true
		case e == nil:
			return nil, fmt.Errorf("%s: text before the first entry", pos)
		default:
			blocks = appendLine(blocks, line[1:], gap)
			gap = false
		}
	}
	return entries, flush()
}

// appendLine adds a line to the last block, or begins a new one.
func appendLine(blocks []string, line string, gap bool) []string {
	if gap || len(blocks) == 0 || section.MatchString(line) || strings.HasPrefix(line, "- ") {
		return append(blocks, line)
	}
	last := &blocks[len(blocks)-1]
	if strings.HasPrefix(*last, "\t") {
		*last += "\n" + line
	} else {
		*last += " " + strings.TrimSpace(line)
	}
	return blocks
}

// take sorts an entry's blocks into its parts.
func (e *entry) take(blocks []string) error {
	if len(blocks) == 0 || section.MatchString(blocks[0]) {
		return fmt.Errorf("%s: %s has no first sentence", e.pos, e.keys[0])
	}
	e.summary = blocks[0]
	var into *[]string // where further paragraphs go
	into = &e.body
	for i, b := range blocks[1:] {
		m := section.FindStringSubmatch(b)
		if m == nil {
			if strings.HasPrefix(b, "- ") && (i == 0 || strings.HasPrefix(blocks[i], "\t")) {
				return fmt.Errorf("%s: %s: a list after code, or after the prototype, becomes part of it: begin %q with a sentence", e.pos, e.keys[0], b)
			}
			*into = append(*into, b)
			continue
		}
		text := m[4]
		if text == "" {
			return fmt.Errorf("%s: %s: %q says nothing", e.pos, e.keys[0], b)
		}
		items := map[string]*[]item{"param": &e.params, "error": &e.errors, "value": &e.values, "field": &e.fields}[m[1]]
		if items != nil {
			if slices.ContainsFunc(*items, func(i item) bool { return i.name == m[2] }) {
				return fmt.Errorf("%s: %s says twice: %s %s", e.pos, e.keys[0], m[1], m[2])
			}
			*items = append(*items, item{m[2], text})
			continue
		}
		into = map[string]*[]string{"order": &e.order, "capture": &e.capture, "go": &e.golang}[m[3]]
		*into = append(*into, text)
	}
	return nil
}

var choice = regexp.MustCompile(`\{([^{}|]*)\|([^{}|]*)\}`)

// forAPI picks the reading of {driver|runtime}.
func forAPI(text, api string) string {
	reading := 0
	if row := model.RowOf(api); row != nil {
		reading = row.Reading
	}
	return choice.ReplaceAllString(text, [...]string{"$1", "$2"}[reading])
}

// link is a reference to a declaration by its C name.
var link = regexp.MustCompile(`\[(\w+)\]`)

// all is every piece of text of the entry.
func (e *entry) all() []string {
	out := slices.Concat([]string{e.summary}, e.body, e.order, e.capture, e.golang)
	for _, items := range [][]item{e.params, e.errors, e.values, e.fields} {
		for _, i := range items {
			out = append(out, i.text)
		}
	}
	return out
}

// apiOf tells from a C name which API it belongs to: that with the longest
// prefix.
func apiOf(c string) string {
	best := model.Rows[0]
	for _, r := range model.Rows {
		if strings.HasPrefix(c, r.Prefix) && len(r.Prefix) > len(best.Prefix) || r.Types != nil && r.Types.MatchString(c) {
			best = r
		}
	}
	return best.API
}
