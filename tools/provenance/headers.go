package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cudabind/cudabind/headers"
)

const fetchHint = "fetch them with: go run ./tools/headers fetch all"

// load indexes the headers in dir, or the fetched ones if dir is empty. Those
// must be complete, and no allowance may be without use.
func load(dir string) (*index, error) {
	if dir != "" {
		x, err := read(dir)
		if err != nil {
			return nil, err
		}
		_ = x.allow(allowances) // dir may be a part of what the table is for
		return x, nil
	}
	dir, err := headers.Dir()
	if err != nil {
		return nil, err
	}
	x, err := read(dir)
	if err != nil {
		return nil, err
	}
	if err := checkPinned(dir); err != nil {
		return nil, err
	}
	return x, x.allow(allowances)
}

// checkPinned reports the pinned versions whose headers have not been fetched.
func checkPinned(dir string) error {
	var missing []string
	for _, r := range headers.Releases() {
		switch _, err := r.Find(); {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, r.Version)
		case err != nil:
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks the headers of CUDA %s; %s", dir, strings.Join(missing, ", "), fetchHint)
	}
	return nil
}

// read indexes the headers in the sub-folders of dir, one a CUDA version.
func read(dir string) (*index, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	x := newIndex()
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if isHeader(name) {
			return nil, fmt.Errorf("%s is a header: -headers wants the folder above, with a sub-folder for each CUDA version", name)
		}
		if strings.HasPrefix(e.Name(), ".") {
			continue // one being fetched at this moment
		}
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			continue
		}
		if err := x.addVersion(e.Name(), os.DirFS(name)); err != nil {
			return nil, fmt.Errorf("headers of CUDA %s: %w", e.Name(), err)
		}
	}
	// Without anything to compare with, every file would pass.
	if len(x.runs) == 0 {
		return nil, fmt.Errorf("no CUDA headers with comments below %s; %s", dir, fetchHint)
	}
	return x, nil
}

// addVersion indexes all headers of a CUDA version.
func (x *index) addVersion(version string, folder fs.FS) error {
	return fs.WalkDir(folder, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !isHeader(name) {
			return err
		}
		source, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		x.add(header{version, name}, source)
		return nil
	})
}

func isHeader(name string) bool {
	ext := path.Ext(name)
	return ext == ".h" || ext == ".hpp"
}
