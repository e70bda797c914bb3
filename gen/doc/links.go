package doc

import (
	"path"
	"regexp"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// links knows what a name in a comment can lead to: a declaration of the same
// package, or one of the other API's published package.
type links struct {
	here    map[string]string // Go name, by C name; of another package's status codes with that package
	status  map[string]bool   // C names of the status codes that functions return
	there   map[string]bool   // C names of the other API
	url     string            // of the other API's package, "" where none is published
	codes   map[string]string // this API's status code, by the other's of the same number
	twins   map[string]string // the runtime's function or type, by the driver's name
	goNames map[string]bool   // what the package declares beside these

	chapters map[string]bool // of the headers: they have no place in a package
	dangling map[string]bool // names of CUDA's that lead nowhere
}

// published is where the packages of this module can be read.
const published = "https://pkg.go.dev/github.com/cudabind/cudabind/cuda/generated/"

func newLinks(a, other *model.API, all map[string]*entry) *links {
	l := &links{here: goNames(a), status: map[string]bool{}, there: map[string]bool{}, dangling: map[string]bool{}, chapters: map[string]bool{}, codes: map[string]string{}, twins: map[string]string{},
		goNames: map[string]bool{"LibraryError": true, "SymbolError": true, "Open": true, "Library": true, "Find": true, "Missing": true, "Status": true}}
	for _, g := range l.here {
		l.goNames[g] = true
	}
	for _, f := range a.Funcs { // the names that older symbols keep beside a plain name
		l.goNames[f.Go] = true
	}
	l.statuses(a)
	for _, d := range a.Decls {
		l.goNames[d.Go] = true // of a record inside another, too
		if d.Align > 8 {
			l.goNames["New"+d.Go] = true
		}
	}
	for _, api := range []*model.API{a, other} {
		if api != nil {
			for _, g := range api.Groups {
				l.chapters[g.Name] = true
			}
		}
	}
	for key, e := range all {
		for _, twin := range e.keys {
			if apiOf(key) == a.Row.Other && apiOf(twin) == a.Row.API && a.Row.Reading > 0 { // the entry is filed under the other's name
				l.twins[key] = twin
			}
		}
	}
	if other == nil {
		return l
	}
	for c := range cNames(other) {
		l.there[c] = true
	}
	if name := other.Row.PackageFor(a.Version); name != "" {
		l.url = published + name
	}
	if other.Row.Other != a.Row.API { // their codes have no numbers in common
		return l
	}
	byValue := map[string]string{}
	for _, c := range statusCodes(a) {
		if byValue[c.Value] == "" {
			byValue[c.Value] = c.C
		}
	}
	for _, c := range statusCodes(other) {
		l.codes[c.C] = byValue[c.Value]
	}
	return l
}

func statusCodes(a *model.API) []*model.Const {
	if d := a.Status(); d != nil {
		return d.Enumerators
	}
	return nil
}

// statuses collects the codes that a's functions return. Those of another package's type are
// linked to there.
func (l *links) statuses(a *model.API) {
	for _, c := range statusCodes(a) {
		l.status[c.C] = true
	}
	for _, f := range a.Funcs {
		if f.Result.Kind != model.Named || !f.Result.Decl.Error || f.Result.Decl.Package == "" {
			continue
		}
		for _, c := range f.Result.Decl.Enumerators {
			l.status[c.C] = true
			l.here[c.C] = path.Base(f.Result.Decl.Package) + "." + model.GoName(c.C)
		}
	}
}

// goNames are the Go names of a, by C name.
func goNames(a *model.API) map[string]string {
	m := map[string]string{}
	for _, f := range a.Funcs {
		m[f.Symbol] = f.Go
	}
	for _, d := range a.Decls {
		if !d.Nested {
			m[model.BareName(d.C)] = d.Go
			if d.Tag != "" && d.Kind != model.Handle {
				m[d.Tag] = d.Go
			}
		}
		for _, e := range d.Enumerators {
			m[e.C] = e.Go
		}
	}
	for _, c := range a.Consts {
		m[c.C] = c.Go
	}
	for _, al := range a.Aliases { // last: a plain name means its alias, not the old symbol
		m[model.BareName(al.C)] = al.Go
	}
	for _, d := range a.Decls { // a type whose plain name is its own
		if plain, _, _ := model.Base(d.C); model.GoName(plain) == d.Go {
			m[plain] = d.Go
		}
	}
	return m
}

// cNames are the C names of what a declares.
func cNames(a *model.API) map[string]bool {
	m := map[string]bool{}
	for _, f := range a.Funcs {
		m[f.Symbol] = true
	}
	for _, d := range a.Decls {
		m[model.BareName(d.C)], m[d.Tag] = true, true
		for _, e := range d.Enumerators {
			m[e.C] = true
		}
	}
	for _, al := range a.Aliases {
		m[model.BareName(al.C)] = true
	}
	for _, c := range a.Consts {
		m[c.C] = true
	}
	return m
}

// path splits a path such as "CUx.member" into the name that a link can lead
// to, the last one that is declared, and the members after it as Go writes
// them.
func (l *links) path(c string) (name, members string) {
	parts := strings.Split(c, ".")
	for i := len(parts) - 1; i > 0; i-- {
		if l.here[parts[i]] != "" || l.isOther(parts[i]) {
			return parts[i], members
		}
		members = "." + model.GoName(parts[i]) + members
	}
	return parts[0], members
}

// apiName is a name that CUDA would declare.
var apiName = regexp.MustCompile(`^(cu[A-Z]|CU[A-Z_a-z]|cuda[A-Z])\w+$`)

// own is a link to a declaration of this package, "" where there is none.
func (l *links) own(c string) string {
	if g := l.here[c]; g != "" {
		return "[" + g + "]"
	}
	return ""
}

// isOther tells whether c is a declaration of the other API that a reader can
// be sent to.
func (l *links) isOther(c string) bool { return l.url != "" && l.there[c] }

// code is this API's status code for a code of either API, "" where it has
// none.
func (l *links) code(c string) string {
	if l.here[c] != "" {
		return c
	}
	return l.codes[c]
}

// goLink is a link to a declaration by its Go name.
var goLink = regexp.MustCompile(`\[\*?(\w+)\]`)

// unlink takes the brackets off names that this version's package does not declare.
func (l *links) unlink(text string) string {
	return goLink.ReplaceAllStringFunc(text, func(m string) string {
		if name := goLink.FindStringSubmatch(m)[1]; !l.goNames[name] {
			return name
		}
		return m
	})
}

// resolve turns a C name in brackets into a link, or into plain text where it
// leads nowhere. Or it says that the name is one of the other API.
func (l *links) resolve(c string) (text string, other bool) {
	for _, name := range []string{l.twins[c], c, l.codes[c]} {
		if name == "" {
			continue
		}
		if own := l.own(name); own != "" {
			return own, false
		}
	}
	if l.isOther(c) {
		return "", true
	}
	if t := l.twins[c]; t != "" {
		return t, false
	}
	if apiName.MatchString(c) && !l.there[c] && !l.chapters[c] {
		l.dangling[c] = true
	}
	return c, false
}
