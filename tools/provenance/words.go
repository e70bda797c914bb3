package main

import (
	"bytes"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// words yields every word of text, as written, with the line it stands on.
//
// Whatever is not a word vanishes: punctuation, and with it the gutters of
// comments, the quotes that join Go strings and the signs of Markdown; Doxygen
// commands, HTML and DocBook tags, link targets, \n in a string. Header
// comments and our files go through this one function, so the same sentence
// is the same words however it is wrapped or dressed.
func words(text []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for line := 1; len(text) > 0; {
			n := wordLen(text)
			if n > 0 {
				if !yield(line, text[:n]) {
					return
				}
			} else {
				n = gapLen(text)
				line += bytes.Count(text[:n], []byte{'\n'})
			}
			text = text[n:]
		}
	}
}

// wordLen is the length of the word that text begins with, 0 if it begins with
// none. A word begins and ends with a letter or a digit, and may have
// underscores and apostrophes inside.
func wordLen(text []byte) int {
	end := 0
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
		}
		switch {
		case isLetter(r) || isDigit(r):
			end = i + size
		case i == 0 || r != '_' && !isApostrophe(r):
			return end
		}
		i += size
	}
	return end
}

// gapLen is how much of text, which does not begin with a word, to pass over.
func gapLen(text []byte) int {
	n := 0
	switch text[0] {
	case '\\', '@':
		n = commandLen(text)
	case '<':
		n = tagLen(text)
	case '&':
		n = entityLen(text)
	case ']':
		n = linkLen(text)
	}
	if n > 0 {
		return n
	}
	_, n = utf8.DecodeRune(text)
	return n
}

// commandLen is the length of a Doxygen command, with its option as in
// \param[in], or of an escape as in "\n": only the list of commands tells
// "\note" from "\n" and "ote".
func commandLen(text []byte) int {
	n := 1 + letters(text[1:])
	if !commands[string(text[1:n])] {
		if text[0] == '\\' && n > 1 && strings.IndexByte("nrt", text[1]) >= 0 {
			return 2
		}
		return 0
	}
	if n < len(text) && text[n] == '[' {
		return n + spanLen(text[n:], ']')
	}
	return n
}

// tagLen is the length of a tag of HTML or DocBook: <b>, </li>, <br/>,
// <td colspan="2">. Other text in angle brackets is code, and stays.
func tagLen(text []byte) int {
	start := 1
	if len(text) > 1 && text[1] == '/' {
		start = 2
	}
	name := start + letters(text[start:])
	if !tags[strings.ToLower(string(text[start:name]))] {
		return 0
	}
	n := spanLen(text, '>')
	if n == 0 {
		return 0
	}
	rest := bytes.TrimSpace(bytes.TrimSuffix(text[name:n-1], []byte{'/'}))
	if len(rest) > 0 && bytes.IndexByte(rest, '=') < 0 {
		return 0
	}
	return n
}

// entityLen is the length of &lt; and the like.
func entityLen(text []byte) int {
	if n := 1 + letters(text[1:]); n > 1 && n < len(text) && text[n] == ';' {
		return n + 1
	}
	return 0
}

// linkLen is the length of the "](target)" of a Markdown link.
func linkLen(text []byte) int {
	if len(text) < 2 || text[1] != '(' {
		return 0
	}
	n := spanLen(text, ')')
	if bytes.ContainsAny(text[:n], " \t\n\"") {
		return 0 // a call in code
	}
	return n
}

// spanLen is the length of text up to end, 0 if that is not near.
func spanLen(text []byte, end byte) int {
	const near = 300
	return 1 + bytes.IndexByte(text[:min(len(text), near)], end)
}

func letters(text []byte) int {
	for i, c := range text {
		if (c|0x20) < 'a' || (c|0x20) > 'z' {
			return i
		}
	}
	return len(text)
}

// fold appends word in the form in which words are compared: lower case,
// without apostrophes.
func fold(dst, word []byte) []byte {
	for i := 0; i < len(word); {
		r, size := utf8.DecodeRune(word[i:])
		if !isApostrophe(r) {
			dst = utf8.AppendRune(dst, unicode.ToLower(r))
		}
		i += size
	}
	return dst
}

func isLetter(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r >= utf8.RuneSelf && unicode.IsLetter(r)
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

func isApostrophe(r rune) bool { return r == '\'' || r == '’' }

func set(names string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}

var commands = set(`
	a addtogroup anchor attention author b brief bug c class code cond copydoc
	date def defgroup deprecated details dir dontinclude e else em endcode
	endcond endhtmlonly endif endinternal endlatexonly endlink endverbatim
	endxmlonly enum example exception file fn hideinitializer htmlonly if ifnot
	image include ingroup interface internal invariant latexonly li link
	mainpage name namespace nosubgrouping note notefnerr overload p package
	page par paragraph param post pre private protected public ref relates
	remark remarks result retval return returns sa section see short since
	snippet struct subpage subsection test throw throws todo tparam typedef
	union until var verbatim version warning weakgroup xmlonly xrefitem`)

var tags = set(`
	a abbr address align b blockquote body br caption center cite code col
	colspec dd del dfn div dl dt em entry font h hr i img informaltable ins
	itemizedlist kbd li link listitem math note ol orderedlist p para pre q row
	s samp section small span strike strong sub sup table tbody td tfoot tgroup
	th thead title tr tt u ul ulink var xref`)
