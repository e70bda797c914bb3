package doc

import (
	"errors"
	docparse "go/doc/comment"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
)

// leftover is what a converted comment must not hold: commands, tags, entities
// and marks.
var leftover = regexp.MustCompile(`[\\@](?:p|c|e|b|n|ref|param|brief|return|returns|sa|see|note\w*|code|endcode|li|par|deprecated|xmlonly|endxmlonly|link\w*|cond|section|details|warning)\b` +
	`|</?(?:b|i|small|tt|em|br|p|ul|ol|li|table|tr|td|th|thead|tbody|tgroup|row|entry|colspec)\b[^>]*>|&[a-z]+;|\x01|\x02|/\*\*|\*/|(?:^|\s)::\w`)

// TestHeaderDocs converts every comment of every pinned version and looks for
// what was not understood.
func TestHeaderDocs(t *testing.T) {
	used := map[string]bool{}
	releases := headers.Releases()
	if testing.Short() {
		releases = releases[len(releases)-1:]
	}
	for _, r := range releases {
		dir, err := r.Find()
		if err != nil {
			t.Skipf("needs the headers that make generate fetches: %v", err)
		}
		all := map[string]*model.API{}
		for _, api := range model.APIs() {
			if model.RowOf(api).Own != nil && r.Version != releases[len(releases)-1].Version {
				continue // of libraries the newest suffices
			}
			a, err := parse.Parse(os.DirFS(dir), api)
			if errors.Is(err, fs.ErrNotExist) {
				continue // this version has no such library
			}
			require.NoError(t, err)
			all[api] = a
		}
		for _, api := range slices.Sorted(maps.Keys(all)) {
			a := all[api]
			t.Run(r.Version+"/"+api, func(t *testing.T) { headerDocs(t, a, all[a.Row.Other], used) })
		}
	}
	if testing.Short() {
		return // older headers refer to more
	}
	for name := range danglingRefs {
		assert.Truef(t, used[name], "no pinned header refers to %s any more: take it off the list", name)
	}
}

func headerDocs(t *testing.T, a, other *model.API, used map[string]bool) {
	require.NoError(t, model.Complete(a, model.Options{}))
	dangling, err := fillHeader(a, other)
	require.NoError(t, err)
	for name := range dangling {
		used[name] = true
		if a.Row.Only != nil && strings.HasPrefix(strings.ToLower(name), a.Row.Prefix) {
			continue // it is declared, but not bound
		}
		assert.Containsf(t, danglingRefs, name, "the comments refer to %s, which nothing declares: list it in danglingRefs with the reason", name)
	}
	known := goNames(a)
	exists := map[string]bool{"LibraryError": true, "SymbolError": true}
	for _, g := range known {
		exists[g] = true
	}
	for _, d := range a.Decls {
		if d.Align > 8 {
			exists["New"+d.Go] = true
		}
		exists[d.Go] = true
	}
	n := 0
	check := func(what, comment string, doc []string) {
		text := strings.Join(doc, "\n")
		n++
		if m := leftover.FindString(text); m != "" {
			t.Errorf("%s: %q is left over", what, m)
		}
		p := docparse.Parser{LookupSym: func(_, name string) bool { return exists[name] }}
		parsed := p.Parse(text)
		for _, l := range parsed.Links {
			assert.Truef(t, l.Used, "%s: the link %s is not used", what, l.Text)
		}
		codes := ""
		for _, b := range parsed.Content {
			if code, ok := b.(*docparse.Code); ok {
				codes += code.Text
			}
		}
		for _, b := range readDoxygen(comment) {
			line, _, _ := strings.Cut(strings.TrimSpace(b.text), "\n")
			assert.Truef(t, b.kind != codeBlock || strings.Contains(codes, line), "%s: the line %q of a code block is no code", what, line)
		}
	}
	for _, f := range a.Funcs {
		require.NotEmpty(t, f.Doc, f.Symbol)
		check(f.Symbol, f.Comment, f.Doc)
	}
	for _, al := range a.Aliases {
		check(al.C, "", al.Doc)
	}
	for _, d := range a.Decls {
		check(d.C, d.Comment, d.Doc)
		for _, e := range d.Enumerators {
			check(e.C, e.Comment, e.Doc)
		}
		for _, f := range d.Fields {
			check(d.C+"."+f.C, f.Comment, f.Doc)
		}
	}
	for _, c := range a.Consts {
		check(c.C, c.Comment, c.Doc)
	}
	t.Logf("%d comments", n)
}
