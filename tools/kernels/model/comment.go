package model

import (
	"regexp"
	"strings"

	"github.com/cudabind/cudabind/tools/kernels/read"
)

var (
	decoration = regexp.MustCompile(`^\s*(//+!?<?|/\*+!?|\*+/?)?[ \t]?`)
	blockEnd   = regexp.MustCompile(`[\s*=/-]*\*/\s*$`)
	doxygen    = regexp.MustCompile(`^[\\@](brief|short|details?)\s+`)
	doxyParam  = regexp.MustCompile(`^[\\@]t?param(\[[\w,]+\])?\s+(\w+)\s*`)
)

// comment returns the lines of the comment directly above a declaration of the user's, without
// C++'s and Doxygen's signs.
func (p *Package) comment(where read.Position) []string {
	lines := p.sources[where.File]
	last := commentEnd(lines, where.Line-2)
	if last < 0 {
		return nil
	}
	first := last
	if strings.HasPrefix(strings.TrimSpace(lines[last]), "//") {
		for first > 0 && strings.HasPrefix(strings.TrimSpace(lines[first-1]), "//") {
			first--
		}
	} else {
		for first > 0 && !strings.Contains(lines[first], "/*") {
			first--
		}
		if !strings.HasPrefix(strings.TrimSpace(lines[first]), "/*") { // it stands behind code
			return nil
		}
	}
	var doc []string
	for _, line := range lines[first : last+1] {
		line = decoration.ReplaceAllString(blockEnd.ReplaceAllString(strings.TrimRight(line, "\r"), ""), "")
		line = doxyParam.ReplaceAllString(doxygen.ReplaceAllString(line, ""), "$2: ")
		doc = append(doc, strings.TrimRight(line, " \t"))
	}
	return strings.Split(strings.Trim(strings.Join(doc, "\n"), "\n"), "\n")
}

// commentEnd returns the line from which a comment reaches up, from the line above a declaration on; -1 without
// one. Lines between the two that end no statement, such as template<class T>, belong to the declaration.
func commentEnd(lines []string, i int) int {
	const most = 8 // lines of a declaration before its name
	for n := 0; n < most && i >= 0 && i < len(lines); n, i = n+1, i-1 {
		line := strings.TrimSpace(lines[i])
		if strings.HasPrefix(line, "//") || strings.HasSuffix(line, "*/") {
			return i
		}
		if line == "" || line[0] == '#' || strings.ContainsAny(line[len(line)-1:], ";}{") {
			return -1
		}
	}
	return -1
}
