package headers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	dir, err = r.Find()
	if !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	say(progress, "CUDA %s: downloading %s %s", r.Version, r.Wheel, r.WheelVersion)
	dir, err = r.download(ctx)
	if err != nil {
		return "", fmt.Errorf("CUDA %s: %w", r.Version, err)
	}
	return dir, nil
}

func (r Release) download(ctx context.Context) (dir string, err error) {
	w, err := download(ctx, r.Wheel+"=="+r.WheelVersion, r.Platform)
	if err != nil {
		return "", err
	}
	if got := sum(w.data); got != r.SHA256 {
		return "", fmt.Errorf("%s is not the pinned file: its sha256 is %s, not %s; "+
			"the download is damaged or pip was led elsewhere", w.name, got, r.SHA256)
	}
	a, err := openArchive(w)
	if err != nil {
		return "", err
	}
	files, err := r.load(a)
	if err != nil {
		return "", err
	}
	return r.install(files)
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
	main, err := toolkit.read(mainHeader)
	if err != nil {
		return "", err
	}
	if err := checkVersion(main, r.Version); err != nil {
		return "", fmt.Errorf("%s: %w", toolkit.path(mainHeader), err)
	}
	files, err := r.load(toolkit)
	if different := (*differentError)(nil); errors.As(err, &different) {
		return "", fmt.Errorf("%s is of CUDA %s, but of another patch than the pinned %s; "+
			"gen -headers %s generates from this folder as it is",
			toolkit.path(different.path), r.Version, r.WheelVersion, toolkit)
	}
	if err != nil {
		return "", fmt.Errorf("CUDA %s: %w", r.Version, err)
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
	for _, folder := range []diskFolder{diskFolder(dir), diskFolder(filepath.Join(dir, "include"))} {
		if folder.has(mainHeader) {
			return folder, nil
		}
	}
	return "", fmt.Errorf("%s is no CUDA toolkit: there is no %s in it or in its folder include", dir, mainHeader)
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
