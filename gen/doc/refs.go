package doc

import (
	"regexp"
	"slices"
	"strings"
)

// refs are the names that a header's comment lists, whatever they are of.
type refs struct {
	returns []string // status codes among them
	see     []string // related functions among them
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
	command   = regexp.MustCompile(`^[\\@](\w+)|^(returns?)$`)                 // some lists have lost their mark
	inText    = regexp.MustCompile(`^[\\@](?:a|arg|b|c|e|em|li|link|p|ref)\b`) // commands that a section goes on after
	arguments = regexp.MustCompile(`\([^)]*\)`)
	reference = regexp.MustCompile(`[A-Za-z]\w*[A-Z_]\w*`)
)

// references reads the names after \return, \retval and \sa; nothing else of
// the text is used.
func references(comment string) refs {
	var r refs
	section := ""
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(strings.TrimLeft(line, " \t*/!\u00a0"))
		if m := command.FindStringSubmatch(line); m != nil && !inText.MatchString(line) {
			section = m[1] + m[2]
		}
		var to *[]string
		switch section {
		case "return", "returns", "retval":
			to = &r.returns
		case "sa", "see":
			to, line = &r.see, arguments.ReplaceAllString(line, "")
		default:
			continue
		}
		for _, name := range reference.FindAllString(line, -1) {
			if !slices.Contains(*to, name) {
				*to = append(*to, name)
			}
		}
	}
	return r
}

// setUp are the codes of a runtime that cannot be set up, if a header's comment
// bears the mark of functions that may have to do so. The headers lack its text.
func setUp(comment string) []string {
	if !initializes.MatchString(comment) {
		return nil
	}
	return []string{"cudaErrorInitializationError", "cudaErrorInsufficientDriver", "cudaErrorNoDevice"}
}

var initializes = regexp.MustCompile(`[\\@]note_init_rt\b`)
