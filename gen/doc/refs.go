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

var (
	command   = regexp.MustCompile(`^\s*[\\@](\w+)`)
	reference = regexp.MustCompile(`(?:::|\b)(cu[a-zA-Z]\w+|CU[A-Z_]\w+)`)
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
