package headers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Fetch returns the folder of a version like [Find], and first downloads the
// headers with pip if they are not there. It says so on progress, which may be
// nil. The folder appears whole or not at all; several may fetch at once.
func Fetch(ctx context.Context, version string, progress io.Writer) (dir string, err error) {
	r, err := Lookup(version)
	if err != nil {
		return "", err
	}
	return r.Fetch(ctx, progress)
}

// Fetch is the function [Fetch] for this release, which need not be in the
// embedded manifest.
func (r Release) Fetch(ctx context.Context, progress io.Writer) (dir string, err error) {
	dirs, err := FetchAll(ctx, []Release{r}, progress)
	if err != nil {
		return "", err
	}
	return dirs[0], nil
}

// FetchAll is [Fetch] for several releases at once. The folders are in the order
// of the releases.
func FetchAll(ctx context.Context, releases []Release, progress io.Writer) (dirs []string, err error) {
	dirs = make([]string, len(releases))
	missing := make([][]Package, len(releases))
	var lacking []string
	for i, r := range releases {
		if dirs[i], err = r.dir(); err != nil {
			return nil, err
		}
		if missing[i], err = r.missing(dirs[i]); err != nil {
			return nil, err
		}
		if len(missing[i]) > 0 {
			lacking = append(lacking, r.Version)
		}
	}
	if progress != nil {
		progress = &lockedWriter{w: progress}
	}
	d := downloads{slots: make(chan struct{}, 8), progress: progress}
	if err := d.ask(ctx, slices.Concat(missing...)); err != nil {
		return nil, fmt.Errorf("CUDA %s: %w", strings.Join(lacking, ", "), err)
	}
	err = each(ctx, releases, func(ctx context.Context, i int, r Release) error {
		if len(missing[i]) == 0 {
			return nil
		}
		files, err := d.release(ctx, r, missing[i])
		if err == nil {
			_, err = r.install(files)
		}
		if err != nil {
			return fmt.Errorf("CUDA %s: %w", r.Version, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return dirs, nil
}

// FetchFrom is [Fetch] from an installed CUDA toolkit: from is its root or its
// include folder. The toolkit must hold the pinned patch of the version.
func FetchFrom(version, from string) (dir string, err error) {
	r, err := Lookup(version)
	if err != nil {
		return "", err
	}
	return r.FetchFrom(from)
}

// FetchFrom is the function [FetchFrom] for this release, which need not be in
// the embedded manifest.
func (r Release) FetchFrom(from string) (dir string, err error) {
	toolkit, err := openToolkit(from)
	if err != nil {
		return "", err
	}
	if err := checkVersion(toolkit, r.Version); err != nil {
		return "", fmt.Errorf("%s: %w", toolkit, err)
	}
	files := map[string][]byte{}
	for _, p := range r.packages() {
		err := p.load(toolkit, files)
		if different := (*differentError)(nil); errors.As(err, &different) {
			return "", fmt.Errorf("%s is of CUDA %s, but of another patch than the pinned %s; "+
				"gen -headers %s generates from this folder as it is",
				toolkit.path(different.path), r.Version, p.WheelVersion, toolkit)
		}
		if err != nil {
			return "", fmt.Errorf("CUDA %s: %w; gen -headers %s generates from this folder as it is", r.Version, err, toolkit)
		}
	}
	dir, err = r.install(files)
	if err != nil {
		return "", fmt.Errorf("CUDA %s: %w", r.Version, err)
	}
	return dir, nil
}

// diskFolder is an include folder on disk.
type diskFolder string

func openToolkit(dir string) (diskFolder, error) {
	if folder, ok := IncludeFolder(dir, mainHeader); ok {
		return diskFolder(folder), nil
	}
	return "", fmt.Errorf("%s is no CUDA toolkit: there is no %s in it or in its folder include", dir, mainHeader)
}

// IncludeFolder returns which has a header: dir or its folder include.
func IncludeFolder(dir, header string) (folder string, ok bool) {
	for _, folder := range []string{dir, filepath.Join(dir, "include")} {
		if diskFolder(folder).has(header) {
			return folder, true
		}
	}
	return "", false
}

func (d diskFolder) path(name string) string {
	return filepath.Join(string(d), filepath.FromSlash(name))
}

func (d diskFolder) has(name string) bool {
	info, err := os.Stat(d.path(name))
	return err == nil && info.Mode().IsRegular()
}

func (d diskFolder) read(name string) ([]byte, error) { return os.ReadFile(d.path(name)) }

func say(w io.Writer, format string, args ...any) {
	if w != nil {
		fmt.Fprintf(w, format+"\n", args...)
	}
}
