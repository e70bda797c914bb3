// Package replace writes files whole.
package replace

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// File is the new content of a file.
type File struct {
	Name string
	Data []byte
}

// Files writes all contents beside their files, with a mode, and then puts them in their places, in this order. Each file has
// either its old content or its new one, whatever happens, and if one content cannot be written, no file is replaced. A file
// that has its content already stays.
func Files(mode fs.FileMode, all ...File) error {
	staged := make([]string, len(all))
	defer func() {
		for _, tmp := range staged {
			os.Remove(tmp) // "" or gone already, unless there was an error
		}
	}()
	for i, f := range all {
		old, err := os.ReadFile(f.Name)
		if err == nil && bytes.Equal(old, f.Data) {
			continue
		}
		if staged[i], err = f.stage(mode); err != nil {
			return err
		}
	}
	for i, f := range all {
		if staged[i] == "" {
			continue
		}
		if err := os.Rename(staged[i], f.Name); err != nil {
			return err
		}
	}
	return nil
}

// stage writes the content to a file beside the one that it is for.
func (f *File) stage(mode fs.FileMode) (tmp string, err error) {
	t, err := os.CreateTemp(filepath.Dir(f.Name), "."+filepath.Base(f.Name)+"-*")
	if err != nil {
		return "", err
	}
	_, err = t.Write(f.Data)
	return t.Name(), errors.Join(err, t.Close(), os.Chmod(t.Name(), mode))
}
