package main

import "bytes"

// declarationWords are English to look at, but C when they stand in a
// declaration.
var declarationWords = set(`
	bool char const double enum extern float inline int long null register
	short signed sizeof static struct typedef union unsigned void volatile`)

// isProse says whether a word of a header is one of English rather than one
// of a program. The package comment has the reasons.
func isProse(word []byte) bool {
	lower := bytes.ToLower(word)
	switch {
	case len(word) == 1:
		return lower[0] == 'a'
	case declarationWords[string(lower)]:
		return false
	}
	for _, c := range lower {
		if (c < 'a' || c > 'z') && c != '\'' {
			return false
		}
	}
	return bytes.Equal(word[1:], lower[1:]) || bytes.Equal(word, bytes.ToUpper(word))
}

// mostly says whether more than half of the flags are set.
func mostly(flags []bool) bool {
	n := 0
	for _, set := range flags {
		if set {
			n++
		}
	}
	return n > len(flags)/2
}
