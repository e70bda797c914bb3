package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// folded returns the words of text as they are compared.
func folded(text string) string {
	var all []string
	for _, word := range words([]byte(text)) {
		all = append(all, string(fold(nil, word)))
	}
	return strings.Join(all, " ")
}

func TestWords(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"punctuation", "One, two; (three) – four!", "one two three four"},
		{"case", "MiXed CASE Ärger", "mixed case ärger"},
		{"identifiers", "bed_t gardenWater2 __host__ v1.2", "bed_t gardenwater2 host v1 2"},
		{"apostrophes", "don't the bed’s 'quoted'", "dont the beds quoted"},
		{"hyphen", "per-bed", "per bed"},

		{"C gutter", "/**\n * one\n * two\n */", "one two"},
		{"Go comment", "// one\n\t// two", "one two"},
		{"other gutters", "# one\n> two\n| three | four |\n- five\n-- six", "one two three four five six"},

		{"joined strings", "\"one \" +\n\t\"two\"", "one two"},
		{"escapes", `"one\n\ttwo\"three\nnote"`, "one two three note"},
		{"backslash at the end", `one \`, "one"},

		{"emphasis", "**one** _two_ `three`", "one two three"},
		{"link", "see [the bed](https://example.org/bed#rose) there", "see the bed there"},
		{"call that looks like a link", "f[T](one, two)", "f t one two"},
		{"link without end", "[one](two", "one two"},

		{"commands", `\brief One \p two \ref three ::four @param five \a six`, "one two three four five six"},
		{"command with option", `\param[in,out] bed - the bed`, "bed the bed"},
		{"option without end", `\param[in bed`, "in bed"},
		{"no command", `\garden @garden`, "garden garden"},

		{"tags", `<b>one</b> <br/>two<td colspan="2">three</TD >`, "one two three"},
		{"tag over lines", "one <ulink\nurl=\"x\">two</ulink>", "one two"},
		{"no tags", "#include <garden.h> if a <b && c> d; x<", "include garden h if a b c d x"},
		{"entities", "one&nbsp;two &lt;three&gt; &x", "one two three x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, folded(tt.text))
		})
	}
}

func TestWordsLines(t *testing.T) {
	var lines []int
	for line := range words([]byte("one\n\ntwo <td\nalign=\"left\">three\r\nfour\\nfive")) {
		lines = append(lines, line)
	}
	assert.Equal(t, []int{1, 3, 4, 5, 5}, lines)
}

func TestWordsStop(t *testing.T) {
	for range words([]byte("one two")) {
		break
	}
}

func FuzzWords(f *testing.F) {
	f.Add("/** \\param[in] bed the <b>bed</b> of [roses](x) &amp; don't */")
	f.Add("\\@<&]'_\xff")
	f.Fuzz(func(t *testing.T, text string) {
		last := 1
		for line, word := range words([]byte(text)) {
			assert.NotEmpty(t, fold(nil, word))
			assert.GreaterOrEqual(t, line, last)
			last = line
		}
		assert.LessOrEqual(t, last, 1+strings.Count(text, "\n"))
	})
}
