package sim

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cudabind/cudabind/internal/trust"
)

// mark ends each library that this package makes. It tells a whole one of ours from other files,
// and loaders ignore it.
const mark = "\nsimulated library of cudabind\n"

// sign ends a library by the mark.
func sign(file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(mark)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// ours tells whether a file of the folder is a library that this package has made for this user.
func ours(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || !trust.Owned(info) || info.Size() < int64(len(mark)) {
		return false
	}
	f, err := root.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	end := make([]byte, len(mark))
	_, err = f.ReadAt(end, info.Size()-int64(len(mark)))
	return err == nil && string(end) == mark
}

// place moves a library to target, but not over what this package has not made. It returns target.
func place(made, target string) (string, error) {
	if err := mayReplace(target); err != nil {
		return "", err
	}
	if err := os.Rename(made, target); err != nil { // atomic, and safe for programs that have the old file open
		return "", err
	}
	return target, nil
}

// mayReplace returns an error if target is a file that this package has not made, or a link to
// another place than such a file beside it.
func mayReplace(target string) error {
	dir, name := filepath.Split(target)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Lstat(name); os.IsNotExist(err) {
		return nil
	}
	if to, err := root.Readlink(name); err == nil {
		name = to
	}
	if filepath.Base(name) != name || !ours(root, name) {
		return fmt.Errorf("%s is not a simulated library that you have built: remove it, or choose another folder", target)
	}
	return nil
}
