package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/headers"
)

// readRow is the library to bind: the row of a file, or one of the generator's own.
func readRow(c config) (*model.Row, error) {
	if c.row == "" {
		return using(model.RowOf(c.api), c.uses)
	}
	data, err := os.ReadFile(c.row)
	if err != nil {
		return nil, fmt.Errorf("-row: %w", err)
	}
	row, err := model.ReadRow(c.row, data)
	if err != nil {
		return nil, fmt.Errorf("-row: %w", err)
	}
	row.Release = cmp.Or(c.version, row.Release)
	return using(row, c.uses)
}

// using is the row of a library that takes types from packages at the import paths of -uses.
func using(row *model.Row, at map[string]string) (*model.Row, error) {
	with := *row
	with.At = at
	for api, importPath := range at {
		if !slices.Contains(row.Uses, api) {
			return nil, fmt.Errorf("-uses %s: %s takes types from %s alone", api, row.API, cmp.Or(strings.Join(row.Uses, ", "), "no other library"))
		}
		if row.Example != "" && model.RowOf(api).Status == row.Status {
			with.Example = path.Base(importPath) + "." + row.Example[strings.LastIndex(row.Example, ".")+1:]
		}
	}
	return &with, nil
}

// includeFolders are the folders of headers to read, each on top of the next. Those of a pinned
// version are fetched when they are not there.
func includeFolders(c config, row *model.Row, stderr io.Writer) ([]string, error) {
	if c.headers == "" {
		cuda, err := fetch(c, row, stderr)
		return []string{cuda}, err
	}
	main := "cuda.h"
	if c.row != "" {
		main = row.Headers[0]
	}
	folders, err := foldersOf(c.headers, main)
	if err != nil {
		return nil, err
	}
	if c.row == "" || c.cuda == "" {
		return folders, nil
	}
	cuda, err := fetch(c, row, stderr)
	return append(folders, cuda), err
}

// foldersOf are the include folders of a list, one of which has the header.
func foldersOf(list, header string) ([]string, error) {
	folders := filepath.SplitList(list)
	found := false
	for i, folder := range folders {
		if _, err := os.Stat(folder); err != nil && len(folders) > 1 {
			return nil, fmt.Errorf("-headers: %w", err)
		}
		if dir, err := folderOf(folder, header); err == nil {
			folders[i], found = dir, true
		}
	}
	if !found {
		_, err := folderOf(list, header)
		return nil, err
	}
	return folders, nil
}

// folderOf is the include folder that dir names.
func folderOf(dir, header string) (string, error) {
	if in, ok := headers.IncludeFolder(dir, header); ok {
		return in, nil
	}
	what := "of a CUDA toolkit"
	if header != "cuda.h" {
		what = "of the library"
	}
	return "", fmt.Errorf("-headers %s: no %s there: name the include folder %s", dir, header, what)
}

// fetch gets the headers of a pinned version.
func fetch(c config, row *model.Row, stderr io.Writer) (string, error) {
	release, err := lookup(c, row)
	if err != nil {
		return "", fmt.Errorf("%w; for another version name an include folder with -headers", err)
	}
	return release.Fetch(context.Background(), stderr)
}

// lookup is the pinned release for the versions that the command line asks for, as far as the row needs it. A library that
// CUDA does not come with may include any of its headers.
func lookup(c config, row *model.Row) (headers.Release, error) {
	release, err := headers.Lookup(c.cuda)
	if c.row == "" && row.Fetch == "" {
		return release.Having(headersOf(row)), err
	}
	if row.Fetch != "" {
		release, err = headers.LookupRequested(row.Fetch, c.cuda, c.version)
	}
	for _, api := range row.Uses {
		if used := model.RowOf(api).Fetch; used != "" && err == nil {
			release, err = release.WithRequested(used)
		}
	}
	return release, err
}

// headersOf are the headers of a row, and of all whose types it uses or to which its comments link.
func headersOf(row *model.Row) []string {
	var names []string
	rows := []*model.Row{row}
	for i := 0; i < len(rows); i++ {
		names = append(names, rows[i].Headers...)
		for _, also := range rows[i].Also {
			names = append(names, also.Header)
		}
		for _, api := range append(slices.Clone(rows[i].Uses), rows[i].Other) {
			if of := model.RowOf(api); of != nil && !slices.Contains(rows, of) {
				rows = append(rows, of)
			}
		}
	}
	return names
}

// notPinned says which versions are pinned with the headers of a library that another version lacks.
func notPinned(c config, row *model.Row, err error) error {
	var with []string
	for _, r := range headers.Releases() {
		if slices.ContainsFunc(r.Libraries, func(l headers.Library) bool {
			return slices.ContainsFunc(l.Headers, func(f headers.File) bool { return f.Path == row.Headers[0] })
		}) {
			with = append(with, r.Version)
		}
	}
	if len(with) == 0 {
		return err
	}
	return fmt.Errorf("%s is not pinned for CUDA %s, but for %s: give -cuda with one of these, or name an include folder with -headers", row.Headers[0], c.cuda, strings.Join(with, ", "))
}

// checkVersion looks for the function of a user's row that tells the version of the library, and says how its result
// will be read.
func checkVersion(row *model.Row, api *model.API, stderr io.Writer) error {
	l := row.Library
	if l.Version == "" {
		return nil
	}
	i := slices.IndexFunc(api.Funcs, func(f *model.Func) bool { return f.Symbol == l.Version })
	if i < 0 {
		return fmt.Errorf(`"library.version" is %s, a function that %s does not declare`, l.Version, strings.Join(row.Headers, ", "))
	}
	if want := versionParams(l); want != "" && want != paramKinds(api.Funcs[i]) {
		return fmt.Errorf(`"library.version" is %s, whose parameters are not as "library.form" says; a function that takes the address of an int needs no form, "size" is for one without parameters, "property" for one of a number and an address, and "none" calls none`, l.Version)
	}
	if l.Form == "" && !l.Pair {
		fmt.Fprintf(stderr, "gen: the result of %s will be read as CUDA's versions are, 12030 as 12.3: \"form\": \"parts\" reads 10203 as 1.2.3\n", l.Version)
	}
	return nil
}

// versionParams are the parameters of the function that tells a version, a letter each: n for a number, p for a pointer.
// They are "-" for none, and "" where no function is called.
func versionParams(l model.Library) string {
	if l.Pair {
		return "pp"
	}
	return map[string]string{"": "p", "parts": "p", "size": "-", "property": "np", "none": ""}[l.Form]
}

// paramKinds are the parameters of a function as versionParams gives them, "-" for none.
func paramKinds(f *model.Func) string {
	kinds := ""
	for _, p := range f.Params {
		if p.Type.Kind == model.Pointer {
			kinds += "p"
		} else {
			kinds += "n"
		}
	}
	return cmp.Or(kinds, "-")
}

// overlay is folders of headers on top of each other.
type overlay []string

func (o overlay) Open(name string) (fs.File, error) {
	for _, folder := range o {
		f, err := os.DirFS(folder).Open(name)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// apis are the names that -api takes.
func apis() string {
	return strings.Join(model.APIs(), ", ") + "; on request " + strings.Join(model.RequestedAPIs(), ", ")
}
