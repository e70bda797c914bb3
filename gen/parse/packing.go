package parse

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// A pack is where a header packs records: a line, or several between two pragmas. The front
// end takes no notice of packing.
type pack struct {
	file        string
	first, last int
	align       int64 // of the records
	seen        bool  // one lies there
}

// packs finds them. A pragma counts until the next one.
func packs(files map[string][]byte) (all []*pack) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		n, open := 0, (*pack)(nil)
		for line := range bytes.Lines(files[name]) {
			n++
			if !bytes.Contains(line, []byte("pack")) { // all but a few: the expressions are slow
				continue
			}
			switch {
			case pragma.Match(line) && open != nil:
				open.last, open = n, nil
			case pragma.Match(line):
				open = &pack{name, n, 1 << 30, number(pragma, line), false}
				all = append(all, open)
			case macro.Match(line) && attribute.Match(line):
				all = append(all, uses(files, string(macro.FindSubmatch(line)[1]), alignment(files, line))...)
			case attribute.Match(line):
				all = append(all, &pack{name, n, n, alignment(files, line), false})
			}
		}
	}
	return all
}

// uses are the lines that name a macro.
func uses(files map[string][]byte, name string, align int64) (all []*pack) {
	word := regexp.MustCompile(`\b` + name + `\b`)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		n := 0
		for line := range bytes.Lines(files[file]) {
			if n++; bytes.Contains(line, []byte(name)) && word.Match(line) && !directive.Match(line) {
				all = append(all, &pack{file, n, n, align, false})
			}
		}
	}
	return all
}

var (
	attribute = regexp.MustCompile(`__attribute__[^;{}\n]*\b(__)?packed(__)?\b`)
	aligned   = regexp.MustCompile(`\baligned(?:__)?[ \t]*\([ \t]*(\w+)`)
	macro     = regexp.MustCompile(`^[ \t]*#[ \t]*define[ \t]+(\w+)`)
	directive = regexp.MustCompile(`^[ \t]*#`)
	pragma    = regexp.MustCompile(`#[ \t]*pragma[ \t]+pack\b\D*(\d+)?`)
)

// alignment is the one that an attribute gives to packed records. It may be a macro.
func alignment(files map[string][]byte, line []byte) int64 {
	m := aligned.FindSubmatch(line)
	if m == nil || m[1][0] >= '0' && m[1][0] <= '9' {
		return number(aligned, line)
	}
	value := regexp.MustCompile(`#[ \t]*define[ \t]+` + string(m[1]) + `[ \t]+(\d+)`)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if found := value.Find(files[name]); found != nil {
			return number(value, found)
		}
	}
	return 1
}

// number is the alignment in a line, 1 for none.
func number(form *regexp.Regexp, line []byte) int64 {
	if m := form.FindSubmatch(line); m != nil {
		if n, err := strconv.Atoi(string(m[1])); err == nil {
			return int64(n)
		}
	}
	return 1
}

// packing is the alignment to which a declaration, or a part of it, is packed, 0 for none.
func (u *unit) packing(d *cc.ExternalDeclaration) (align int64) {
	if len(u.packs) == 0 {
		return 0
	}
	toks := cc.NodeTokens(d)
	if len(toks) == 0 {
		return 0
	}
	first, last := toks[0].Position().Line, toks[len(toks)-1].Position().Line
	for _, p := range u.packs {
		if p.file == d.Position().Filename && p.first <= last && first <= p.last {
			p.seen, align = true, p.align
		}
	}
	return align
}

// unpacked reports packing that no declaration lies in.
func (u *unit) unpacked() error {
	for _, p := range u.packs {
		if !p.seen && p.last == p.first {
			return fmt.Errorf("%s:%d: unhandled packing", p.file, p.first)
		}
	}
	return nil
}

// unchanged reports a packed record of which packing changes the layout.
func unchanged(d *model.Decl, align int64) error {
	if d.Align > align {
		return fmt.Errorf("%s: unhandled packing: it would have an alignment of %d, and not %d", d.C, align, d.Align)
	}
	end := int64(0) // in bits
	for _, f := range d.Fields {
		start, length := 8*f.Offset+f.Bit, f.Bits
		if f.Bits == 0 {
			length = 8 * f.Type.Size
			end = (end + 7) / 8 * 8
		}
		if d.Kind == model.Struct && start > end {
			return fmt.Errorf("%s.%s: unhandled packing: it closes the gap in front of this member", d.C, f.C)
		}
		end = max(end, start+length)
	}
	return nil
}
