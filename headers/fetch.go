package headers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
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
	dir, err = r.dir()
	if err != nil {
		return "", err
	}
	missing, err := r.missing(dir)
	if err != nil {
		return "", err
	}
	if len(missing) == 0 {
		return dir, nil
	}
	files, err := r.download(ctx, missing, progress)
	if err == nil {
		dir, err = r.install(files)
	}
	if err != nil {
		return "", fmt.Errorf("CUDA %s: %w", r.Version, err)
	}
	return dir, nil
}

// download gets the headers of packages.
func (r Release) download(ctx context.Context, packages []Package, progress io.Writer) (map[string][]byte, error) {
	var requirements []string
	for _, p := range packages {
		say(progress, "CUDA %s: downloading %s %s", r.Version, p.Wheel, p.WheelVersion)
		requirements = append(requirements, p.requirement())
	}
	links := locate(ctx, requirements...)
	files := map[string][]byte{}
	for _, p := range packages {
		w, err := open(ctx, links[p.Wheel], progress, p.requirement(), p.Platform)
		if err != nil {
			return nil, err
		}
		if w.whole && w.sha256 != p.SHA256 {
			return nil, fmt.Errorf("%s is not the pinned file: its sha256 is %s, not %s; "+
				"the download is damaged or pip was led elsewhere", w.name, w.sha256, p.SHA256)
		}
		a, err := openArchive(w, p.Headers[0].Path)
		if err != nil {
			return nil, err
		}
		if err := p.load(a, files); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return files, nil
}

func (p Package) requirement() string { return p.Wheel + "==" + p.WheelVersion }

// FetchAll is [Fetch] for several releases, a few at a time. The folders are in
// the order of the releases.
func FetchAll(ctx context.Context, releases []Release, progress io.Writer) (dirs []string, err error) {
	const atOnce = 8
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, atOnce)
		errs  = make([]error, len(releases))
	)
	dirs = make([]string, len(releases))
	if progress != nil {
		progress = &lockedWriter{w: progress}
	}
	for i, r := range releases {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			dirs[i], errs[i] = r.Fetch(ctx, progress)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err // the others are likely to say the same
		}
	}
	return dirs, nil
}

// lockedWriter lets several goroutines write.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
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
