package doc

import (
	"regexp"
	"slices"
	"strings"
)

// refs are the names that a header's comment lists.
type refs struct {
	returns []string // status codes
	see     []string // related functions
}

// announcement is how headers say that a later release will deprecate a
// function.
var announcement = regexp.MustCompile(`will be deprecated in a future|slated for eventual deprecation`)

// announced tells whether a header's comment announces the deprecation of what
// it is about, and the function that it names for the purpose, "" if none.
func announced(comment string) (successor string, ok bool) {
	for _, b := range readDoxygen(comment) {
		if at := announcement.FindStringIndex(b.text); at != nil {
			if m := marked.FindStringSubmatch(b.text[at[1]:]); m != nil {
				successor = m[1]
			}
			return successor, true
		}
	}
	return "", false
}

var (
	command   = regexp.MustCompile(`^\s*[\\@](\w+)`)
	reference = regexp.MustCompile(`(?:::|\b)(cu[a-zA-Z]\w+|CU[A-Z_]\w+|nvml[A-Z]\w+|NVML_\w+)`)
)

// references reads the names after \return and \sa; nothing else of the text
// is used.
func references(comment string) refs {
	var r refs
	section := ""
	for line := range strings.Lines(comment) {
		line = strings.TrimLeft(line, " \t*/!\u00a0")
		if m := command.FindStringSubmatch(line); m != nil {
			section = m[1]
		}
		var to *[]string
		switch section {
		case "return", "returns":
			to = &r.returns
		case "sa", "see":
			to = &r.see
		default:
			continue
		}
		for _, m := range reference.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(*to, m[1]) {
				*to = append(*to, m[1])
			}
		}
	}
	return r
}
