package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cudabind/cudabind/gen/doc"
	"github.com/cudabind/cudabind/gen/emit"
	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
)

// generate runs the pipeline. It returns the package's files and what its plain
// names mean.
func generate(c config, frozen map[string]string, stderr io.Writer) (files map[string][]byte, names map[string]string, err error) {
	row, err := readRow(c)
	if err != nil {
		return nil, nil, err
	}
	quirks, err := readQuirks(c.quirks, row)
	if err != nil {
		return nil, nil, err
	}
	dirs, err := includeFolders(c, row, stderr)
	if err != nil {
		return nil, nil, err
	}
	dir := overlay(dirs)
	api, err := parse.Row(dir, row)
	if errors.Is(err, fs.ErrNotExist) && c.headers == "" {
		return nil, nil, notPinned(c, row, err)
	}
	if err != nil {
		return nil, nil, err
	}
	if c.row != "" {
		if err := checkVersion(row, api, stderr); err != nil {
			return nil, nil, err
		}
	}
	if row.OfCUDA() && c.headers != "" && c.cuda != "" && api.Version != c.cuda {
		return nil, nil, fmt.Errorf("%s is of CUDA %s, not of %s: give -cuda %s, or another folder", c.headers, api.Version, c.cuda, api.Version)
	}
	if _, err := headers.Lookup(api.Version); err != nil && row.OfCUDA() {
		fmt.Fprintf(stderr, "gen: CUDA %s is not among the versions these bindings were tested with\n", api.Version)
	}
	if err := model.Complete(api, model.Options{Frozen: frozen, Quirks: quirks, Partial: c.partial}); err != nil {
		return nil, nil, err
	}
	if len(api.Dropped) > 0 {
		fmt.Fprintf(stderr, "gen: left out, as they are no constants: %s\n", list(api.Dropped))
	}
	for _, reason := range api.Reasons() {
		fmt.Fprintf(stderr, "gen: left out: %s\n", reason)
	}
	if c.row != "" {
		for _, header := range slices.Sorted(maps.Keys(api.Beside)) {
			fmt.Fprintf(stderr, "gen: left out, as %s is not in \"own\": %s\n", header, list(api.Beside[header]))
		}
	}
	if longs := model.Longs(api); len(longs) > 0 {
		fmt.Fprintf(stderr, "gen: otherwise in C on Windows, where long has 32 bits and wchar_t 16: %s\n", list(longs))
	}
	if len(api.Inlines) > 0 {
		fmt.Fprintf(stderr, "gen: left out, as the header defines them and no library exports them: %s\n", list(inlines(api)))
	}
	other, err := otherAPI(dir, api.Row)
	if err != nil {
		return nil, nil, err
	}
	pkg := emit.Package{Name: c.pkg, Import: c.importPath, Doc: doc.Package(api, c.pkg)}
	fill := doc.Fill
	if c.docs == "header" {
		whose := "NVIDIA's text: keep it within your own program"
		if !row.OfCUDA() {
			whose = "the header's text: its licence says where it may be published"
		}
		fmt.Fprintf(stderr, "gen: the comments of %s are %s\n", c.importPath, whose)
		fill, pkg.Notice = doc.FillHeader, api.Notice
	}
	if err := fill(api, other); err != nil {
		return nil, nil, err
	}
	files, err = emit.Files(api, pkg)
	if err == nil {
		err = check(api, c.out, files)
	}
	if err == nil {
		err = prove(api, c, dirs, stderr)
	}
	if err != nil {
		return nil, nil, err
	}
	return files, model.PlainNames(api), nil
}

// inlines are the names of the functions that the header defines.
func inlines(a *model.API) []string {
	var names []string
	for _, in := range a.Inlines {
		names = append(names, in.C)
	}
	return names
}

// readQuirks reads the user's quirks, none if there is no file.
func readQuirks(file string, row *model.Row) ([]model.Quirk, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-quirks: %w", err)
	}
	return model.ReadQuirks(file, data, row)
}

// otherAPI parses the API that comments link to, nil where there is none or
// the folder lacks its header.
func otherAPI(dir fs.FS, row *model.Row) (*model.API, error) {
	if row.Other == "" {
		return nil, nil
	}
	a, err := parse.Parse(dir, row.Other)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return a, err
}

// write puts files into dir and removes generated files of an earlier run that
// are not among them. What was generated before stays whole until everything
// new is on disk.
func write(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, ".gen-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(tmp, name), files[name], 0o666); err != nil {
			return fmt.Errorf("writing the package: %w", err)
		}
	}
	stale, err := generated(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil && !slices.Contains(stale, name) {
			return fmt.Errorf("%s is not generated code and would be overwritten: give it another name", filepath.Join(dir, name))
		}
	}
	for _, name := range names {
		if err := os.Rename(filepath.Join(tmp, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, name := range stale {
		if files[name] == nil {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// generated lists the files in dir that an earlier run wrote.
func generated(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name()[0] != 'z' {
			continue
		}
		ours, err := startsWith(filepath.Join(dir, e.Name()), emit.Marker+" from ")
		if err != nil {
			return nil, err
		}
		if ours {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func startsWith(path, prefix string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, len(prefix))
	n, _ := io.ReadFull(f, head)
	return string(head[:n]) == prefix, nil
}
