// Package doc writes the doc comments of a model: our own text, and what the
// generator knows of each declaration.
package doc

import (
	"fmt"

	"github.com/cudabind/cudabind/gen/model"
)

// Fill writes the doc comments of everything a declares. Comments link to
// other, the other API of the same CUDA version, which may be nil.
func Fill(a, other *model.API) error {
	all, err := texts()
	if err != nil {
		return err
	}
	w := &writer{api: a, texts: all, links: newLinks(a, other, all), main: mainNames(a)}
	for _, f := range a.Funcs {
		f.Doc = w.function(f)
	}
	for _, al := range a.Aliases {
		if al.Func {
			al.Doc = w.plainName(al)
		} else {
			al.Doc = wrap(fmt.Sprintf("%s is another name of [%s].", al.Go, al.GoRef))
		}
	}
	w.decls()
	w.consts()
	w.status()
	return nil
}

type writer struct {
	api   *model.API
	texts map[string]*entry
	links *links
	main  map[string]string // Go name of what a base name means first, by base name
}

// mainNames finds for each function the name that programs use: the plain one
// where there is one, else the oldest symbol. It carries the whole text; the
// variants refer to it.
func mainNames(a *model.API) map[string]string {
	main := map[string]string{}
	for _, al := range a.Aliases {
		if al.Func {
			main[al.C] = al.Go
		}
	}
	oldest := map[string]int{}
	for _, f := range a.Funcs {
		base, version, thread := model.Base(f.Symbol)
		if thread != "" {
			continue
		}
		if v, seen := oldest[base]; main[base] == "" || seen && version < v {
			main[base], oldest[base] = f.Go, version
		}
	}
	return main
}
