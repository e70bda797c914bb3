package doc

import (
	"go/ast"
	godoc "go/doc"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// TestReturnsCommitted reads the committed packages: the comment of each function links to every
// code that the header lists for it.
func TestReturnsCommitted(t *testing.T) {
	for _, p := range committed {
		t.Run(p.Name, func(t *testing.T) {
			a := complete(t, p.API, p.Version)
			told := comments(t, filepath.Join("..", "..", "cuda", "generated", p.Name))
			checkReturns(t, a, told)
		})
	}
}

// TestParametersCommitted reads the committed packages: what the texts say of a parameter is in the
// comment of each function that has it, or in those that a variant refers to.
func TestParametersCommitted(t *testing.T) {
	all, err := texts()
	require.NoError(t, err)
	for _, p := range committed {
		t.Run(p.Name, func(t *testing.T) {
			a := complete(t, p.API, p.Version)
			told := comments(t, filepath.Join("..", "..", "cuda", "generated", p.Name))
			main := mainNames(a)
			n := 0
			for _, f := range a.Funcs {
				base, _, _ := model.Base(f.Symbol)
				e := all[base]
				if e == nil {
					continue
				}
				text := wholeComment(a, f, main, told)
				for _, i := range e.params {
					j := slices.IndexFunc(f.Params, func(q *model.Param) bool { return q.C == forAPI(i.name, p.API) })
					if j >= 0 {
						n++
						assert.Containsf(t, text, "- "+f.Params[j].Go+": ", "%s says nothing of %s", f.Go, f.Params[j].Go)
					}
				}
			}
			t.Logf("%d parameters with a text", n)
		})
	}
}

var (
	symbolAlone = regexp.MustCompile(`^\w+ calls \w+\.\n`)
	insideOf    = regexp.MustCompile(`is a (?:struct|union) inside\s+(\S+)\.`)
)

// TestCommentsSaySomething reads the committed packages: no function is told by its symbol alone,
// and a record inside another links to that.
func TestCommentsSaySomething(t *testing.T) {
	for _, p := range committed {
		t.Run(p.Name, func(t *testing.T) {
			for name, text := range comments(t, filepath.Join("..", "..", "cuda", "generated", p.Name)) {
				assert.NotRegexp(t, symbolAlone, text, name)
				for _, m := range insideOf.FindAllStringSubmatch(text, -1) {
					assert.Regexp(t, `^\[\w+\]$`, m[1], name)
				}
			}
		})
	}
}

// TestReturns looks for the codes in the comments of every pinned version.
func TestReturns(t *testing.T) {
	for _, a := range pinned(t) {
		t.Run(a.Version+"/"+a.Row.API, func(t *testing.T) {
			told := map[string]string{}
			for _, f := range a.Funcs {
				told[f.Go] = strings.Join(f.Doc, "\n")
			}
			for _, al := range a.Aliases {
				told[al.Go] = strings.Join(al.Doc, "\n")
			}
			checkReturns(t, a, told)
		})
	}
}

// comments are the comments of the functions and types of a package, by name.
func comments(t *testing.T, dir string) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "z*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	p, err := godoc.NewFromFiles(fset, files, dir)
	require.NoError(t, err)
	told := map[string]string{}
	for _, f := range p.Funcs {
		told[f.Name] = f.Doc
	}
	for _, ty := range p.Types {
		told[ty.Name] = ty.Doc
		for _, f := range ty.Funcs {
			told[f.Name] = f.Doc
		}
	}
	return told
}

var (
	returnList = regexp.MustCompile(`(?ms)(?:[\\@](?:returns?|retval)\b|^[ *]*returns?$)(.*?)(?:[\\@](?:sa|see|param|brief|details|deprecated|par|remark|warning|note\w*)\b|\*/|\z)`)
	word       = regexp.MustCompile(`\w+`)
)

// silent are the APIs whose headers list no codes.
var silent = []string{"library_types", "nccl", "cublas", "cufft"}

// checkReturns fails where a code that a's header lists for a function is not linked to in the
// function's comment, or for a variant in the comments that it refers to.
func checkReturns(t *testing.T, a *model.API, told map[string]string) {
	main := mainNames(a)
	functions, listed, missing := 0, 0, 0
	for _, f := range a.Funcs {
		codes := listedCodes(f, a.Row.Success)
		if len(codes) > 0 {
			functions++
		}
		text := wholeComment(a, f, main, told)
		for code, at := range codes {
			listed++
			if !strings.Contains(text, at) {
				missing++
				t.Errorf("%s: the header lists %s, the comment does not", f.Go, code)
			}
		}
	}
	assert.Equal(t, slices.Contains(silent, a.Row.API), listed == 0, "does the header list codes?")
	t.Logf("%s: %d functions with codes; %d codes in the header, %d in the comments", a.Row.API, functions, listed, listed-missing)
}

// listedCodes are the codes for failures that the header lists for a function, each with the
// link to it.
func listedCodes(f *model.Func, success string) map[string]string {
	if f.Result.Kind != model.Named || !f.Result.Decl.Error {
		return nil
	}
	lists := ""
	for _, list := range returnList.FindAllStringSubmatch(f.Comment, -1) {
		lists += list[1]
	}
	if strings.Contains(f.Comment, `\note_init_rt`) { // whose text the header lacks
		lists += " cudaErrorInitializationError cudaErrorInsufficientDriver cudaErrorNoDevice"
	}
	names := word.FindAllString(lists, -1)
	links := map[string]string{}
	for _, c := range f.Result.Decl.Enumerators {
		if c.C == success || !slices.Contains(names, c.C) {
			continue
		}
		links[c.C] = "[" + model.GoName(c.C) + "]"
		if pkg := f.Result.Decl.Package; pkg != "" {
			links[c.C] = "[" + path.Base(pkg) + "." + model.GoName(c.C) + "]"
		}
	}
	return links
}

// wholeComment is the comment of a function, with those that a variant refers to.
func wholeComment(a *model.API, f *model.Func, main, told map[string]string) string {
	text := told[f.Go]
	base, _, thread := model.Base(f.Symbol)
	for _, g := range a.Funcs {
		if thread != "" && g.Symbol == strings.TrimSuffix(f.Symbol, "_"+thread) && strings.Contains(text, "["+g.Go+"]") {
			text += told[g.Go]
		}
	}
	if strings.Contains(text, "["+main[base]+"]") {
		text += told[main[base]]
	}
	return text
}
