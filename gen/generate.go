package main

import (
	"bytes"
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
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(tmp, name), files[name], 0o666); err != nil {
			return fmt.Errorf("writing the package: %w", err)
		}
	}
	stale, err := replaceable(dir, files)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Rename(filepath.Join(tmp, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for name := range stale {
		if files[name] == nil {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceable returns the files in dir that an earlier run wrote and files may replace. It returns an error if
// one belongs to the package of another header, or if a file that is not generated would be overwritten.
func replaceable(dir string, files map[string][]byte) (stale map[string]string, err error) {
	stale, err = generated(dir)
	if err != nil {
		return nil, err
	}
	header := "" // all files name the same
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil && stale[name] == "" {
			return nil, fmt.Errorf("%s is not generated code and would be overwritten: give it another name", filepath.Join(dir, name))
		}
		header = headerOf(files[name])
	}
	for _, old := range slices.Sorted(maps.Keys(stale)) {
		if stale[old] != header {
			return nil, fmt.Errorf("%s is of a package from %s, which one from %s would replace: give -out another folder, or remove that package first", filepath.Join(dir, old), stale[old], header)
		}
	}
	return stale, nil
}

// generated returns the files in dir that an earlier run wrote, and the header of each.
func generated(dir string) (headers map[string]string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	headers = map[string]string{}
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name()[0] != 'z' {
			continue
		}
		text, err := beginning(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if header := headerOf(text); header != "" {
			headers[e.Name()] = header
		}
	}
	return headers, nil
}

// headerOf returns the header that the first line of a generated file names, and "" for other files.
func headerOf(text []byte) string {
	rest, ok := bytes.CutPrefix(text, []byte(emit.Marker+" from "))
	if !ok {
		return ""
	}
	end := bytes.IndexAny(rest, " ;\n")
	return string(rest[:max(end, 0)])
}

// beginning reads enough of a file for headerOf.
func beginning(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	return head[:n], nil
}
