package parse

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"modernc.org/cc/v4"
)

// The front end drops pragmas. A line that packs records is shown to it as an assertion in
// its place, which the syntax tree keeps.
var pragma = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*pragma[ \t]+pack[ \t]*\(([^)"\n]*)\)`)

// packed finds out fast that a header has no such line, as it begins with a word.
var packed = regexp.MustCompile(`pragma[ \t]+pack`)

func packsMarked(header []byte) []byte {
	if !packed.Match(header) {
		return header
	}
	return pragma.ReplaceAll(header, []byte(`_Static_assert(1, "pragma pack $1");`))
}

// notMarked is an error for a pragma in a form that packsMarked does not see, and for others that change layouts.
func notMarked(pragma []cc.Token) error {
	if len(pragma) == 0 {
		return nil
	}
	name, usual := pragma[0].SrcStr(), false
	for _, t := range pragma[1:] {
		usual = usual || slices.Contains([]string{"default", "little", "off", "reset"}, t.SrcStr())
	}
	if name == "pack" || !usual && (name == "scalar_storage_order" || name == "ms_struct") {
		return fmt.Errorf("%s: unhandled pragma %s", where(pragma[0]), name)
	}
	return nil
}

// packs follows the pragmas.
type packs struct {
	align int64 // the most that members are aligned to, 0 for any
	saved []int64
	err   error
}

// mark takes an assertion, which may stand for a pragma.
func (p *packs) mark(assertion cc.Node) {
	_, what, ok := strings.Cut(cc.NodeSource(assertion), `"pragma pack `)
	if !ok {
		return
	}
	what, _, _ = strings.Cut(what, `"`)
	what = strings.Join(strings.Fields(what), "")
	first, rest, _ := strings.Cut(what, ",")
	switch {
	case first == "push":
		p.saved = append(p.saved, p.align)
	case first == "pop" && len(p.saved) > 0:
		p.align, p.saved = p.saved[len(p.saved)-1], p.saved[:len(p.saved)-1]
	case first == "":
		p.align = 0
		return
	case first != "pop":
		rest = first
	}
	if rest == "" {
		return
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || n < 0 || n > 16 || n&(n-1) != 0 {
		p.err = fmt.Errorf("%s: unhandled pragma pack(%s)", where(assertion), what)
		return
	}
	p.align = n
}
