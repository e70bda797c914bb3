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
	"github.com/cudabind/cudabind/internal/trust"
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
	if err := t.private(p); err != nil {
		return err
	}
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

// private returns an error if others could change the folder of a library, or one above it up to
// cudabind: programs load nothing from there.
func (t *tool) private(p pin) error {
	for dir := t.dir(p); len(dir) >= len(filepath.Dir(t.root)); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil {
			err = trust.Private(info, dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
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

func isLicense(file string) bool { return strings.HasPrefix(strings.ToLower(file), "license") }

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
		} else if !isLicense(base) || f.FileInfo().IsDir() {
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
	root, err := os.OpenRoot(t.root)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing was downloaded to %s", t.root)
	}
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range names {
		if !namePattern.MatchString(name) {
			return fmt.Errorf("%q is not the name of a library", name)
		}
		pattern := "*+cu*"
		if major != "" {
			pattern = "*+cu" + major
		}
		folders, err := fs.Glob(root.FS(), name+"/"+pattern)
		if err != nil {
			return err
		}
		if len(folders) == 0 {
			return fmt.Errorf("there is nothing to remove of %s: see libs list", name)
		}
		for _, folder := range folders {
			if err := t.removeFolder(root, folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeFolder moves the folder away before it deletes it: no program finds half of it.
func (t *tool) removeFolder(root *os.Root, folder string) error {
	dir := filepath.Join(t.root, folder)
	if other := notOurs(root, folder); other != "" {
		return fmt.Errorf("%s is not removed: get has not made %s", dir, filepath.Join(t.root, other))
	}
	tmp, err := os.MkdirTemp(t.root, ".tmp-remove-*")
	if err != nil {
		return err
	}
	tmp = filepath.Base(tmp)
	if err := root.Rename(folder, filepath.Join(tmp, "folder")); err != nil {
		return errors.Join(err, root.RemoveAll(tmp))
	}
	fmt.Fprintln(t.stdout, "removed", dir)
	return root.RemoveAll(tmp)
}

// notOurs returns the first of a folder and its files that get has not made for this user, "" for none.
func notOurs(root *os.Root, folder string) string {
	info, err := root.Lstat(folder)
	version, _, _ := strings.Cut(path.Base(folder), "+cu")
	if err != nil || !info.IsDir() || !trust.Owned(info) || !numberPattern.MatchString(version) {
		return folder
	}
	entries, err := fs.ReadDir(root.FS(), folder)
	if err != nil {
		return folder
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || !info.Mode().IsRegular() || !trust.Owned(info) || !isLibrary(e.Name()) && !isLicense(e.Name()) {
			return path.Join(folder, e.Name())
		}
	}
	return ""
}
