package compile

import (
	"slices"
	"strings"
)

// A text that is compiled depends on files by #include, #import, #embed, __has_include and its
// relatives. scan finds the names of these files without being a preprocessor: it reads comments,
// strings and what an #if leaves out like all else. So it finds more names than the compiler does,
// and what could hide a name from it makes the image one that is not cached: a macro in the place
// of the name, an operator by another word or pasted from pieces, a trigraph, a lone carriage
// return, the date and the time.

// include is the name of a file in a directive or an operator of the preprocessor.
type include struct {
	name   string
	quoted bool // "name" and not <name>
}

// blanks may stand between the words of a directive. NVRTC takes a lone carriage return for one.
const blanks = " \t\v\f\r"

// longestName is the limit of a file name on Linux.
const longestName = 4096

// scanner holds a text with its lines joined, and what is found in it.
type scanner struct {
	text   string
	all    []include
	unsure bool // the text may name other files, too
	// the comment that ends next: where it was looked for, and where it ends
	from, end int
}

// scan returns the files that a text names, and whether it may name others, too.
func scan(text string) (all []include, unsure bool) {
	s := &scanner{}
	s.text, s.unsure = joined(text)
	s.unsure = s.unsure || strings.Contains(text, "??=") || strings.Contains(text, "??/")
	for _, word := range []string{"include", "embed", "import"} {
		s.from, s.end = 0, -1
		for at := 0; ; at += len(word) {
			n := strings.Index(s.text[at:], word)
			if n < 0 {
				break
			}
			at += n
			s.word(at, word)
		}
	}
	return s.all, s.unsure
}

// joined joins the lines that end with a backslash. It is unsure about blanks after a backslash,
// which compilers take for the end of the line or not, and about carriage returns that end none.
func joined(text string) (_ string, unsure bool) {
	for at := 0; ; at++ {
		n := strings.IndexByte(text[at:], '\r')
		if n < 0 {
			break
		}
		if at += n; !strings.HasPrefix(text[at:], "\r\n") {
			unsure = true
		}
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "\\")
		if !found {
			break
		}
		b.WriteString(before)
		line := strings.TrimLeft(after, blanks)
		if !strings.HasPrefix(line, "\n") {
			b.WriteByte('\\')
			text = after
			continue
		}
		// Compilers may join once more if there is another backslash before this one.
		unsure = unsure || strings.Trim(after[:len(after)-len(line)], "\r") != "" || strings.HasSuffix(b.String(), "\\")
		text = line[1:]
	}
	if b.Len() == 0 {
		return text, unsure
	}
	return b.String() + text, unsure
}

// word looks at a place where include, embed or import stands.
func (s *scanner) word(at int, word string) {
	before, end := s.text[:at], at+len(word)
	if strings.HasPrefix(s.text[end:], "_next") {
		end += len("_next")
	}
	if end < len(s.text) && named(s.text[end]) {
		return // a longer word
	}
	if operator, found := strings.CutSuffix(before, "has_"); found {
		s.operator(strings.TrimRightFunc(operator, func(r rune) bool { return r == '_' }), end)
		return
	}
	left := strings.TrimRight(before, blanks)
	switch {
	case strings.HasSuffix(left, "#"), strings.HasSuffix(left, "%:"):
		s.unsure = !s.literal(s.skip(end)) || s.unsure
	case strings.HasSuffix(left, "*/"):
		s.literal(s.skip(end))
		s.unsure = true // there may be a # before the comment
	case word == "import" && (left == "" || strings.HasSuffix(left, "\n") || strings.HasSuffix(left, "export")):
		s.unsure = !s.literal(s.skip(end)) || s.unsure // C++20
	}
}

// operator looks at __has_include or __has_embed, which ends at end. Whether it is defined is no
// question about a file.
func (s *scanner) operator(before string, end int) {
	if at := s.skip(end); at < len(s.text) && s.text[at] == '(' && s.literal(s.skip(at+1)) {
		return
	}
	left := strings.TrimRight(strings.TrimSuffix(strings.TrimRight(before, blanks), "("), blanks)
	if !strings.HasSuffix(left, "defined") && !strings.HasSuffix(left, "ifdef") && !strings.HasSuffix(left, "ifndef") {
		s.unsure = true
	}
}

// literal reads "name" or <name>.
func (s *scanner) literal(at int) bool {
	if at == len(s.text) || s.text[at] != '"' && s.text[at] != '<' {
		return false
	}
	quoted, last := s.text[at] == '"', ">\n"
	if quoted {
		last = "\"\n"
	}
	rest := s.text[at+1 : min(len(s.text), at+1+longestName)]
	end := strings.IndexAny(rest, last)
	if end <= 0 || rest[end] == '\n' {
		return false
	}
	s.all = append(s.all, include{rest[:end], quoted})
	return true
}

// skip returns the place after blanks and comments. It skips a few comments only, for a text may
// consist of nothing else.
func (s *scanner) skip(at int) int {
	for comments := 0; at < len(s.text); {
		switch {
		case strings.IndexByte(blanks, s.text[at]) >= 0:
			at++
		case strings.HasPrefix(s.text[at:], "/*") && comments < 4:
			end := s.commentEnd(at + 2)
			if end < 0 {
				return at
			}
			at = end
			comments++
		default:
			return at
		}
	}
	return at
}

// commentEnd returns where the comment at a place ends, -1 if it does not. It looks at each part of
// the text once, if the places ascend.
func (s *scanner) commentEnd(at int) int {
	if at < s.from || s.end >= 0 && at > s.end-2 || s.from == 0 {
		s.from, s.end = at, strings.Index(s.text[at:], "*/")
		if s.end >= 0 {
			s.end += at + 2
		}
	}
	return s.end
}

// named tells whether a byte can be part of an identifier.
func named(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c-'0' < 10 || c|0x20-'a' < 26
}

// operators are words that ask for a file or for the time. A macro can paste them from pieces.
var operators = []string{"__has_include_next", "__has_include", "__has_embed"}
var clocks = []string{"__DATE__", "__TIME__", "__TIMESTAMP__"}

// depends tells whether a text may depend on files or on the time by words that scan does not see:
// the clock's own, the first piece of a word that a macro pastes, or a macro of another's header.
func depends(text string) bool {
	text, _ = joined(text)
	if strings.Contains(text, "HAS_INCLUDE") || strings.Contains(text, "HAS_EMBED") {
		return true
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '_' || i > 0 && named(text[i-1]) {
			continue
		}
		end := i + 1
		for end < len(text) && named(text[end]) {
			end++
		}
		word := text[i:end]
		begins := func(whole string) bool { return len(word) < len(whole) && strings.HasPrefix(whole, word) }
		if slices.ContainsFunc(operators, begins) && !slices.Contains(operators, word) || slices.ContainsFunc(clocks, begins) || slices.Contains(clocks, word) {
			return true
		}
		i = end
	}
	return false
}
