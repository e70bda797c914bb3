package headers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cudabind/cudabind/internal/trust"
)

// writeFile is replaced by tests to fill the disk.
var writeFile = os.WriteFile

// differentError is a header that is not the pinned one.
type differentError struct{ path, got, want string }

func (e *differentError) Error() string {
	return fmt.Sprintf("%s is not the pinned one: its sha256 is %s, not %s", e.path, e.got, e.want)
}

// load adds the pinned headers of a folder to files, and checks their sums.
func (p Package) load(folder includeFolder, files map[string][]byte) error {
	for _, h := range p.Headers {
		data, err := folder.read(h.Path)
		if err != nil {
			return fmt.Errorf("%w (the pinned sha256 is %s)", err, h.SHA256)
		}
		if got := sum(data); got != h.SHA256 {
			return &differentError{h.Path, got, h.SHA256}
		}
		files[h.Path] = data
	}
	return nil
}

// install puts the loaded headers in their place. They are written beside it
// first, so that whatever stands there is whole at all times.
func (r Release) install(files map[string][]byte) (dir string, err error) {
	dir, err = r.dir()
	if err != nil {
		return "", err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(parent, ".tmp-"+r.Version+"-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)

	staged := filepath.Join(tmp, r.Version) // MkdirTemp's own folder is closed to other users
	for name, data := range files {
		if err := writeHeader(filepath.Join(staged, filepath.FromSlash(name)), data); err != nil {
			return "", err
		}
	}
	if err := r.place(staged, dir, files); err != nil {
		return "", err
	}
	return dir, nil
}

func writeHeader(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return writeFile(name, data, 0o644)
}

// place moves the staged folder to dir. If dir is there already, another
// process was faster, or it is damaged or lacks a package: then it is mended
// file by file, if it is a folder of the user's and not a link. It is never taken away, since
// others may be reading it.
func (r Release) place(staged, dir string, files map[string][]byte) error {
	renamed := os.Rename(staged, dir)
	if renamed == nil {
		return nil
	}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return renamed
	}
	if r.verify(dir) == nil {
		return nil
	}
	if err != nil || !info.IsDir() || !trust.Owned(info) {
		return fmt.Errorf("%s is not a folder of yours: remove it and try again", dir)
	}
	parent := filepath.Dir(dir)
	root, err := os.OpenRoot(parent) // no link leads out of it
	if err != nil {
		return err
	}
	defer root.Close()
	if staged, err = filepath.Rel(parent, staged); err != nil {
		return err
	}
	for name := range files {
		name = filepath.FromSlash(name)
		to := filepath.Join(filepath.Base(dir), name)
		err := root.MkdirAll(filepath.Dir(to), 0o755)
		if err == nil {
			err = root.Rename(filepath.Join(staged, name), to)
		}
		if err != nil {
			return fmt.Errorf("%s cannot be mended, remove it and try again: %w", dir, err)
		}
	}
	return r.verify(dir)
}
