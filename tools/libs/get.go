package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cudabind/cudabind/internal/pip"
)

var pipClient = pip.Client{
	What:    "the libraries",
	Instead: "install the CUDA toolkit or NVIDIA's packages for your system",
}

// get installs libraries and what they need, and prints their folders.
func (t *tool) get(ctx context.Context, names []string, major string) error {
	var wanted []pin
	for _, name := range names {
		p, err := find(t.pins, name, major)
		if err != nil {
			return err
		}
		wanted = append(wanted, p)
	}
	for _, p := range wanted {
		if err := t.install(ctx, p); err != nil {
			return fmt.Errorf("%s of CUDA %s: %w", p.Name, p.CUDA, err)
		}
		fmt.Fprintln(t.stdout, t.dir(p))
	}
	return nil
}

// install puts a library in its folder, which appears whole or not at all.
func (t *tool) install(ctx context.Context, p pin) error {
	if t.installed(p) {
		return nil
	}
	for _, name := range p.Needs {
		need, err := find(t.pins, name, p.major())
		if err != nil {
			return err
		}
		if err := t.install(ctx, need); err != nil {
			return fmt.Errorf("%s, which it needs: %w", name, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(t.dir(p)), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(t.root, ".tmp-"+p.Name+"-*") // on the disk of the libraries: they are large
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	wheel, err := t.download(ctx, p, tmp)
	if err != nil {
		return err
	}
	staged := filepath.Join(tmp, "staged") // MkdirTemp's own folder is closed to other users
	if err := os.Mkdir(staged, 0o755); err != nil {
		return err
	}
	if err := unpack(wheel, staged); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(wheel), err)
	}
	if err := t.linkNeeds(p, staged); err != nil {
		return err
	}
	if err := os.Rename(staged, t.dir(p)); err != nil && !t.installed(p) { // unless another process was faster
		return err
	}
	return nil
}

func (t *tool) installed(p pin) bool {
	info, err := os.Stat(t.dir(p))
	return err == nil && info.IsDir()
}

// download returns the pinned wheel, which pip puts below tmp.
func (t *tool) download(ctx context.Context, p pin, tmp string) (wheel string, err error) {
	f, ok := p.Files[t.system]
	if !ok {
		return "", fmt.Errorf("there are wheels for linux/amd64 and linux/arm64 alone, not for %s", t.system)
	}
	dir := filepath.Join(tmp, "wheel")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	fmt.Fprintf(t.stderr, "%s of CUDA %s: downloading %s %s (%d MB)\n", p.Name, p.CUDA, p.Wheel, p.Version, f.MB)
	wheel, err = pipClient.Download(ctx, dir, []string{f.Platform}, p.Wheel+"=="+p.Version)
	if err != nil {
		return "", err
	}
	sum, err := sumOf(wheel)
	if err == nil && sum != f.SHA256 {
		err = fmt.Errorf("%s is not the pinned file: its sha256 is %s, not %s; the download is damaged or pip was led elsewhere",
			filepath.Base(wheel), sum, f.SHA256)
	}
	return wheel, err
}

func sumOf(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func isLibrary(file string) bool {
	return (strings.Contains(file, ".so.") || strings.HasSuffix(file, ".so")) && !strings.Contains(file, ".alt.")
}

// unpack writes the libraries of a wheel, and its licence, to dir.
func unpack(wheel, dir string) error {
	r, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer r.Close()
	libraries := 0
	for _, f := range r.File {
		base := path.Base(f.Name)
		if isLibrary(base) {
			libraries++
		} else if !strings.HasPrefix(strings.ToLower(base), "license") || f.FileInfo().IsDir() {
			continue
		}
		if err := unpackFile(f, filepath.Join(dir, base)); err != nil {
			return err
		}
	}
	if libraries == 0 {
		return errors.New("there is no library in it")
	}
	return nil
}

func unpackFile(f *zip.File, to string) error {
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// linkNeeds puts the libraries that p needs into dir: NVIDIA's libraries look for
// others in their own folder.
func (t *tool) linkNeeds(p pin, dir string) error {
	for _, name := range p.Needs {
		need, err := find(t.pins, name, p.major())
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(t.dir(need))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !isLibrary(e.Name()) {
				continue
			}
			err := os.Link(filepath.Join(t.dir(need), e.Name()), filepath.Join(dir, e.Name()))
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return nil
}

// remove deletes downloaded libraries of a major version of CUDA, "" for all.
func (t *tool) remove(names []string, major string) error {
	for _, name := range names {
		if !namePattern.MatchString(name) {
			return fmt.Errorf("%q is not the name of a library", name)
		}
		pattern := "*"
		if major != "" {
			pattern = "*+cu" + major
		}
		folders, err := fs.Glob(os.DirFS(t.root), name+"/"+pattern)
		if err != nil {
			return err
		}
		if len(folders) == 0 {
			return fmt.Errorf("there is nothing to remove of %s: see libs list", name)
		}
		for _, folder := range folders {
			if err := t.removeFolder(filepath.Join(t.root, folder)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeFolder moves the folder away before it deletes it: no program finds half of it.
func (t *tool) removeFolder(dir string) error {
	tmp, err := os.MkdirTemp(t.root, ".tmp-remove-*")
	if err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(tmp, "folder")); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	fmt.Fprintln(t.stdout, "removed", dir)
	return os.RemoveAll(tmp)
}
