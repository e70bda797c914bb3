package doc

import (
	"fmt"

	"github.com/cudabind/cudabind/gen/model"
)

// Package is the package comment.
func Package(a *model.API, name string) []string {
	doc := &comment{links: newLinks(a, nil, nil), api: a.Name}
	doc.text(fmt.Sprintf("Package %s binds the CUDA %s API as %s of CUDA %s declares it.", name, a.Name, a.Header, a.Version))
	doc.text("Functions carry the names of the symbols they call, first letter in upper case. They return nil on success and otherwise " +
		"the status code itself, which is an error: compare it with errors.Is. A function that the installed library lacks returns a " +
		"[*SymbolError], and where there is no library every function returns a [*LibraryError]; both match [errors.ErrUnsupported].")
	doc.text("Nothing of CUDA is needed to build a program, and nothing happens when it starts: the library is opened at the first call, or by [Open].")
	return doc.done()
}
