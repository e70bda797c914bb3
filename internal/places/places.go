// Package places has what tables of libraries share: they say once where libraries are looked for, not in each row.
package places

import (
	"regexp"
	"slices"
	"strings"
)

// A List has the places of the errors that it has read.
type List struct{ all []string }

var (
	looked = regexp.MustCompile(`; looked in ([^;]*?)(: |;|$)`)
	own    = regexp.MustCompile(`([/\\]cudabind[/\\]libs[/\\])[^/\\]+`) // a library's folder in the cache
)

// Cut returns the error of a raw package that has found no library without the places where it has looked, and notes these.
func (l *List) Cut(err string) string {
	m := looked.FindStringSubmatchIndex(err)
	if m == nil {
		return err
	}
	for _, place := range strings.Split(own.ReplaceAllString(err[m[2]:m[3]], "${1}*"), ", ") {
		if !slices.Contains(l.all, place) {
			l.all = append(l.all, place)
		}
	}
	return err[:m[0]] + err[m[4]:]
}

// String is a line with the places, "" for none.
func (l *List) String() string {
	if len(l.all) == 0 {
		return ""
	}
	return "looked in " + strings.Join(l.all, ", ") + "\n"
}
