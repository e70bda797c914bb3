package doc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReadDoxygen(t *testing.T) {
	link := func(name string) string { return "\x01" + name + "\x02" }
	tests := []struct {
		name, in string
		want     []block
	}{
		{"brief and details", "/**\n * \\brief Does it\n *\n * Goes on\n * here.\n */", []block{
			{text: "Does it"}, {text: "Goes on here."},
		}},
		{"after a member", "/**< Counts ::cuThings */", []block{{text: "Counts " + link("cuThings")}}},
		{"parameters", "/**\n * \\param a - First\n * \\param[out] b Second,\n *   longer\n */", []block{
			{kind: parameter, name: "a", text: "First"}, {kind: parameter, name: "b", text: "Second, longer"},
		}},
		{"codes", "/**\n * \\return\n * ::CU_A,\n * ::CU_B\n * \\notefnerr\n *\n * \\sa ::cuB\n */", []block{
			{kind: returned, text: link("CU_A") + ", " + link("CU_B")}, {kind: remark, text: aliases["notefnerr"]}, {kind: seeAlso, text: link("cuB")},
		}},
		{"inline marks", "/** The \\p arg, <b>bold</b>, 2 &times; 3, \\ref cuC \"see\", ::CUenum::CU_V, std::max and x[0] */", []block{
			{text: "The arg,  bold , 2 × 3, see, " + link("CUenum.CU_V") + ", std::max and x[0]"},
		}},
		{"lists", "/**\n * Either\n * - one,\n *   or\n * - two\n * <ul><li>three</li>\n * </ul>\n */", []block{
			{text: "Either"}, {kind: listItem, text: "one, or"}, {kind: listItem, text: "two"}, {kind: listItem, text: "three"},
		}},
		{"code", "/**\n * \\code\n * if (x) {\n *   y();\n * }\n * \\endcode\n * After.\n */", []block{
			{kind: codeBlock, text: "if (x) {\n  y();\n}\n"}, {text: "After."},
		}},
		{"code with at signs", "/**\n * @code\n * if (x) {\n *   y();\n * }\n * @endcode\n * After.\n */", []block{
			{kind: codeBlock, text: "if (x) {\n  y();\n}\n"}, {text: "After."},
		}},
		{"code that begins in a line", "/**\n * Do so: \\code\n y();\n * \\endcode\n * After.\n */", []block{
			{text: "Do so:"}, {kind: codeBlock, text: " y();\n"}, {text: "After."},
		}},
		{"members", "/** ::CUx::a::b and CUx::c::d. */", []block{{text: link("CUx.a.b") + " and " + link("CUx.c.d") + "."}}},
		{"HTML table", "/**\n * <table>\n * <tr><td><b>A</b></td><td>B</td></tr>\n * <tr><td>1</td><td>2 <br> 3</td></tr></table>\n */", []block{
			{kind: tableRow, cells: []string{"A", "B"}}, {kind: tableRow, cells: []string{"1", "2 3"}},
		}},
		{"DocBook table", "/**\n * \\xmlonly\n * <table outputclass=\"xmlonly\"><tgroup><row><entry>A</entry><entry>B</entry></row></tgroup>\n * </table>\n * \\endxmlonly\n */", []block{
			{kind: tableRow, cells: []string{"A", "B"}},
		}},
		{"deprecated, note, warning", "/**\n * \\deprecated Use ::cuN\n * \\note Mind it\n * \\warning Beware\n */", []block{
			{kind: obsolete, text: "Use " + link("cuN")}, {kind: remark, text: "Note: Mind it"}, {kind: remark, text: "Warning: Beware"},
		}},
		{"forced line ends", "/** One\\n\n * Two */", []block{{text: "One"}, {text: "Two"}}},
		{"odd spaces", "/**\n\u00a0* \\brief B\n\u00a0*\n\u00a0* C\n */", []block{{text: "B"}, {text: "C"}}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, readDoxygen(tt.in)) })
	}
}

func FuzzReadDoxygen(f *testing.F) {
	f.Add("/** \\brief a ::b \\p c <td>&lt; \\code\n x \\endcode */")
	f.Add("/**\n * <table><tr><td>\n * \\param\n */")
	f.Fuzz(func(t *testing.T, in string) {
		for _, b := range readDoxygen(in) {
			if b.kind != tableRow {
				assert.NotEmpty(t, strings.TrimSpace(b.text))
			}
		}
	})
}
