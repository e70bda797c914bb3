package parse

import (
	"strconv"
	"strings"

	"modernc.org/cc/v4"

	"github.com/cudabind/cudabind/gen/model"
)

// comments gives every member of a record or enumeration its comment.
func (u *unit) comments() {
	for l := u.ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		d := l.ExternalDeclaration
		if d == nil || !u.ours(d) || d.Case != cc.ExternalDeclarationDecl || d.Declaration.DeclarationSpecifiers == nil {
			continue
		}
		separator := ";"
		if d.Declaration.DeclarationSpecifiers.Type().Kind() == cc.Enum {
			separator = ","
		}
		memberComments(d.Declaration.DeclarationSpecifiers, separator, u.members)
	}
}

// at is where a name stands, as a key.
func at(t cc.Token) string {
	p := t.Position()
	return p.Filename + ":" + strconv.Itoa(p.Offset)
}

// memberComments gives the members of a record or enumeration their comments.
// A comment stands in front of a member, or after it and then begins with
// /**<; but headers also have lists of those in front, where a member without
// one does not take its successor's. members are the places of their comments,
// by where their names stand.
func memberComments(n cc.Node, separator string, members map[string]*string) {
	var now, before []*string // members since the last separator, and those in front of it
	var leads []string
	lead := ""
	ahead := false // the last comment with /**< stood in front of its member, on a line of its own
	give := func(to []*string, text string) bool {
		given := false
		for _, comment := range to {
			if *comment == "" {
				*comment, given = text, true
			}
		}
		return given
	}
	for _, tok := range cc.NodeTokens(n) {
		sep := string(tok.Sep())
		for _, c := range blocks(sep) {
			if !strings.HasPrefix(c, "/**<") && !strings.HasPrefix(c, "/*!<") {
				lead = c
				continue
			}
			line, _, _ := strings.Cut(sep, c)
			ahead = ahead && len(now) == 0 && strings.Contains(line, "\n")
			if !ahead && (len(now) > 0 && give(now, c) || len(now) == 0 && give(before, c)) {
				continue
			}
			if len(before) > 0 {
				lead, ahead = c, strings.Contains(line, "\n") // it stands in front of what it is about
			}
		}
		member := members[at(tok)]
		switch src := tok.SrcStr(); {
		case src == "{":
			leads, lead, now = append(leads, lead), "", nil
		case src == "}" && len(leads) > 0:
			lead, leads = leads[len(leads)-1], leads[:len(leads)-1]
			now, before = nil, nil
		case src == separator:
			before, now = now, nil
			lead = ""
		case member != nil:
			now = append(now, member)
			if lead != "" {
				*member = lead
			}
		}
	}
}

// blocks are the documentation comments in the space before a token.
func blocks(sep string) (all []string) {
	for {
		start := strings.Index(sep, "/*")
		if start < 0 {
			return all
		}
		sep = sep[start:]
		end := strings.Index(sep[2:], "*/")
		if end < 0 {
			return all
		}
		comment := sep[:end+4]
		if strings.HasPrefix(comment, "/**") && len(comment) > 4 || strings.HasPrefix(comment, "/*!") {
			all = append(all, comment)
		}
		sep = sep[len(comment):]
	}
}

// trailing is the comment that ends the line of the declaration before a token.
func trailing(sep string) string {
	if all := blocks(sep); len(all) > 0 && strings.HasPrefix(all[0], "/**<") {
		return all[0]
	}
	return ""
}

// macroComments gives constants the comments that stand above or after their
// #define.
func macroComments(text string, consts map[string]*model.Const) {
	above := ""
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		switch {
		case strings.HasPrefix(line, "/**") && !strings.HasPrefix(line, "/**<"):
			start := i
			for i < len(lines)-1 && !strings.Contains(lines[i], "*/") {
				i++
			}
			above = strings.Join(lines[start:i+1], "\n")
		case strings.HasPrefix(line, "#"):
			fields := strings.Fields(strings.TrimPrefix(line, "#"))
			if len(fields) < 2 || fields[0] != "define" {
				continue
			}
			if c := consts[fields[1]]; c != nil && c.Comment == "" {
				c.Comment = above
				if j := strings.Index(line, "/**<"); j >= 0 {
					c.Comment = line[j:]
				}
			}
			above = ""
		default:
			above = ""
		}
	}
}
