package generated_test

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxDocs bounds what the documentation of a package comes to as HTML: sites
// that show packages cut it at 20 MB.
const maxDocs = 10 << 20

// inText is something in a comment that ought to be a link.
var inText = regexp.MustCompile(`\[\*?[A-Za-z]\w+(\.\w+)?\]`)

// TestDocs reads the packages as go doc does: every link leads somewhere, and
// the whole is not too much to show.
func TestDocs(t *testing.T) {
	for _, name := range []string{
		"driver", "cudart12", "cudart13", "nvjitlink", "nvrtc", "librarytypes", "nccl", "cublas", "cublaslt", "cufft", "curand", "cupti", "nvml",
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, name)
			size, links := 0, 0
			check := func(what, text string) {
				d := p.Parser().Parse(text)
				size += len(p.Printer().HTML(d))
				links += strings.Count(text, "[")
				for _, m := range inText.FindAllString(plain(d), -1) {
					t.Errorf("%s: %s leads nowhere", what, m)
				}
				for _, l := range d.Links {
					assert.Truef(t, l.Used, "%s: the link %s is not used", what, l.Text)
				}
			}
			check("package "+name, p.Doc)
			for _, f := range p.Funcs {
				assert.NotEmpty(t, f.Doc, f.Name)
				check(f.Name, f.Doc)
			}
			for _, c := range p.Consts {
				check(c.Names[0], c.Doc)
			}
			for _, ty := range p.Types {
				assert.NotEmpty(t, ty.Doc, ty.Name)
				check(ty.Name, ty.Doc)
				for _, f := range append(ty.Methods, ty.Funcs...) {
					check(ty.Name+"."+f.Name, f.Doc)
				}
			}
			assert.Less(t, size, maxDocs)
			t.Logf("%d functions, %d types, %d links, %d KB", len(p.Funcs), len(p.Types), links, size>>10)
		})
	}
}

// plain is the text of a comment that is no link and no code.
func plain(d *comment.Doc) string {
	var b strings.Builder
	texts := func(ts []comment.Text) {
		for _, x := range ts {
			if s, ok := x.(comment.Plain); ok {
				b.WriteString(string(s))
			}
		}
	}
	var blocks func([]comment.Block)
	blocks = func(bs []comment.Block) {
		for _, x := range bs {
			switch x := x.(type) {
			case *comment.Paragraph:
				texts(x.Text)
			case *comment.Heading:
				texts(x.Text)
			case *comment.List:
				for _, i := range x.Items {
					blocks(i.Content)
				}
			}
		}
	}
	blocks(d.Content)
	return b.String()
}

func load(t *testing.T, dir string) *doc.Package {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "z*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_other.go") {
			continue
		}
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	require.NotEmpty(t, files)
	p, err := doc.NewFromFiles(fset, files, "github.com/cudabind/cudabind/cuda/generated/"+dir)
	require.NoError(t, err)
	return p
}
