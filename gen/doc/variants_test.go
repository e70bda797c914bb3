package doc

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cudabind/cudabind/gen/model"
)

// isName tells whether a parameter's name is no word of English.
var isName = regexp.MustCompile(`[a-z_][A-Z_0-9]|^[a-z]+_`)

var tooOld = regexp.MustCompile(`drivers before (?:CUDA )?(\d+\.\d+) lack`)

// TestVariants: a plain name means another function in the package of another version. No comment
// speaks of a parameter that only another variant has, or of drivers that lack a newer one.
func TestVariants(t *testing.T) {
	all := slices.DeleteFunc(slices.Clone(pinned(t)), func(a *model.API) bool { return a.Row.Own != nil })
	params := map[string]map[string]bool{} // of all variants of a function, by base name
	for _, a := range all {
		for _, f := range a.Funcs {
			base, _, _ := model.Base(f.Symbol)
			for _, p := range f.Params {
				if params[base] == nil {
					params[base] = map[string]bool{}
				}
				params[base][p.C] = true
			}
		}
	}
	for _, a := range all {
		check := func(f *model.Func, name string, doc []string) {
			text := ""
			for _, line := range doc {
				if !strings.HasPrefix(line, "\t") { // the prototype
					text += line + " "
				}
			}
			base, _, _ := model.Base(f.Symbol)
			own := map[string]bool{}
			for _, p := range f.Params {
				own[p.C] = true
			}
			for p := range params[base] {
				if !own[p] && isName.MatchString(p) {
					assert.NotRegexp(t, `\b`+p+`\b`, text, "%s %s: %s has no parameter %s", a.Row.API, a.Version, name, p)
				}
			}
			for _, m := range tooOld.FindAllStringSubmatch(text, -1) {
				assert.LessOrEqual(t, model.CompareVersions(m[1], a.Version), 0, "%s %s: %s is there before CUDA %s", a.Row.API, a.Version, name, m[1])
			}
		}
		for _, f := range a.Funcs {
			check(f, f.Go, f.Doc)
		}
		for _, al := range a.Aliases {
			for _, f := range a.Funcs {
				if al.Func && f.Symbol == al.Target {
					check(f, al.Go, al.Doc)
				}
			}
		}
	}
}
