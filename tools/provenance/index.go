package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// runLength is how many words in a row make a copy.
const runLength = 8

// A shingle is that many words in a row, by their numbers in an index. It is
// compared whole, so there are no collisions of hashes to rule out.
type shingle [runLength]uint32

// A header is one file of one CUDA version.
type header struct{ version, name string }

// An index knows all runs of prose in the comments of headers.
type index struct {
	headers []header
	words   map[string]uint32 // number of each folded word
	runs    map[shingle]int   // which of headers has the run; the first that came
	seen    map[[sha256.Size]byte]bool
	buf     []byte
}

func newIndex() *index {
	return &index{
		words: map[string]uint32{},
		runs:  map[shingle]int{},
		seen:  map[[sha256.Size]byte]bool{},
	}
}

// add indexes the comments of a header.
func (x *index) add(h header, source []byte) {
	x.headers = append(x.headers, h)
	for comment := range comments(source) {
		// The versions of CUDA share most of their comments.
		if sum := sha256.Sum256(comment); !x.seen[sum] {
			x.seen[sum] = true
			x.addComment(comment)
		}
	}
}

func (x *index) addComment(comment []byte) {
	var ids []uint32
	var prose []bool
	for _, word := range words(comment) {
		ids = append(ids, x.number(word))
		prose = append(prose, isProse(word))
	}
	for end := runLength; end <= len(ids); end++ {
		if !mostly(prose[end-runLength : end]) {
			continue
		}
		r := shingle(ids[end-runLength : end])
		if _, known := x.runs[r]; !known {
			x.runs[r] = len(x.headers) - 1
		}
	}
}

// number returns the number of a word, a new one if there is none yet.
func (x *index) number(word []byte) uint32 {
	x.buf = fold(x.buf[:0], word)
	n, known := x.words[string(x.buf)]
	if !known {
		n = uint32(len(x.words))
		x.words[string(x.buf)] = n
	}
	return n
}

// A passage is text of ours that the headers have too.
type passage struct {
	line  int    // where it begins
	start string // its first words
	more  bool   // it is longer than that
	header
}

func (p passage) String() string {
	dots := ""
	if p.more {
		dots = " ..."
	}
	return fmt.Sprintf("shares \"%s%s\" with %s of CUDA %s", p.start, dots, p.name, p.version)
}

// find returns the passages of text that are in the index, the longest there
// are: of runs that overlap it makes one.
func (x *index) find(text []byte) []passage {
	var (
		found []passage
		known []token // the last words, as far as the headers know them all
		pos   int     // number of the word
		end   int     // number of the word after the last passage
		buf   []byte
	)
	for line, word := range words(text) {
		pos++
		buf = fold(buf[:0], word)
		id, ok := x.words[string(buf)]
		if !ok {
			known = known[:0]
			continue
		}
		known = append(known, token{id, line, word})
		if len(known) < runLength {
			continue
		}
		last := known[len(known)-runLength:]
		h, ok := x.runs[runOf(last)]
		if !ok {
			continue
		}
		if pos-runLength < end {
			found[len(found)-1].more = true
		} else {
			found = append(found, passage{line: last[0].line, start: join(last), header: x.headers[h]})
		}
		end = pos
	}
	return found
}

// A token is a word of ours that is in the index.
type token struct {
	id   uint32
	line int
	word []byte
}

func runOf(tokens []token) (r shingle) {
	for i, t := range tokens {
		r[i] = t.id
	}
	return r
}

func join(tokens []token) string {
	var s []string
	for _, t := range tokens {
		s = append(s, string(t.word))
	}
	return strings.Join(s, " ")
}
