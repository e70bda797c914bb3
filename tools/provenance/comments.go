package main

import (
	"bytes"
	"iter"
)

// comments yields the comments of C source. Those with nothing but white space
// between them come as one, so that a sentence over several lines of // is
// whole.
func comments(source []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		start, end := -1, 0 // of the comment at hand
		for i := 0; i < len(source); {
			n := commentLen(source[i:])
			switch {
			case n > 0:
				if start < 0 {
					start = i
				}
				end = i + n
			case isBlank(source[i]):
				n = 1
			default:
				if start >= 0 && !yield(source[start:end]) {
					return
				}
				start = -1
				n = codeLen(source[i:])
			}
			i += n
		}
		if start >= 0 {
			yield(source[start:end])
		}
	}
}

// commentLen is the length of the comment that text begins with, 0 if it
// begins with none.
func commentLen(text []byte) int {
	switch {
	case bytes.HasPrefix(text, []byte("//")):
		if n := bytes.IndexByte(text, '\n'); n >= 0 {
			return n
		}
		return len(text)
	case bytes.HasPrefix(text, []byte("/*")):
		if n := bytes.Index(text[2:], []byte("*/")); n >= 0 {
			return n + 4
		}
		return len(text)
	}
	return 0
}

// codeLen is the length of the string or character literal that text begins
// with, which may hold what looks like a comment, else 1. A quote left open
// ends with its line.
func codeLen(text []byte) int {
	quote := text[0]
	if quote != '"' && quote != '\'' {
		return 1
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case quote:
			return i + 1
		case '\n':
			return i
		}
	}
	return len(text)
}

// isBlank says whether c may stand between comments that belong together: the
// backslash is a macro's line end.
func isBlank(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', '\\':
		return true
	}
	return false
}
