package doc

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cudabind/cudabind/gen/model"
)

// plainFlags are flags that stay numbers, by function: the text names the values of something else.
var plainFlags = map[string]string{
	"cuDevSmResourceSplit":   "must be 0; the values are of its groups",
	"cudaDevSmResourceSplit": "must be 0; the values are of its groups",
	"cuGraphExecGetFlags":    "points to 64 bits, which an enum does not have",
	"cudaGraphExecGetFlags":  "points to 64 bits, which an enum does not have",
	"cuMemCreate":            "must be 0; the values are of the granularity",
	"cuMemMap":               "must be 0; the values are of the granularity",
	"cuMulticastBindAddr":    "must be 0; the values are of the granularity",
	"cuMulticastBindMem":     "must be 0; the values are of the granularity",
	"cuMemcpy3DBatchAsync":   "must be 0; the values are of its copies",
	"cudaMemcpy3DBatchAsync": "must be 0; the values are of its copies",
}

// TestFlagsHaveTheirEnum: where a header's text lists the values of one enum for flags, they have the
// type of that enum in Go, so that its constants fit.
func TestFlagsHaveTheirEnum(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	for _, p := range committed {
		t.Run(p.Name, func(t *testing.T) {
			a := complete(t, p.API, p.Version)
			of := map[string]*model.Decl{}
			for _, d := range a.Decls {
				for _, e := range d.Enumerators {
					of[e.C] = d
				}
			}
			for _, f := range a.Funcs {
				base, _, _ := model.Base(f.Symbol)
				for _, param := range f.Params {
					typ := param.Type
					if typ.Kind == model.Pointer {
						typ = typ.Elem
					}
					if typ.Kind != model.Basic || !strings.Contains(strings.ToLower(param.C), "flags") {
						continue
					}
					if enum := named(f.Comment, of); typ.Enum == nil && len(enum) > 0 && plainFlags[base] == "" {
						assert.Failf(t, "a number", "%s.%s lists values of %s: give it a row in gen/model/quirk.go", f.Symbol, param.C, strings.Join(enum, ", "))
					}
				}
			}
		})
	}
}

var words = regexp.MustCompile(`\w+`)

// named are the enums called flags of which a comment names values.
func named(comment string, of map[string]*model.Decl) []string {
	enums := map[string]bool{}
	for _, word := range words.FindAllString(comment, -1) {
		if d := of[word]; d != nil && strings.Contains(strings.ToLower(d.C), "flags") {
			enums[d.C] = true
		}
	}
	return slices.Sorted(maps.Keys(enums))
}
