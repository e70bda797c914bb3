package sim

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/internal/trust"
)

// EnvDir is the environment variable that names the cache directory of [Build]. Build uses a
// directory only if it belongs to the user and nobody else can write to it, and removes only what
// it has made itself from there.
const EnvDir = "CUDABIND_SIMDRIVER"

// unused is the time after which an unused library is removed from the cache.
const unused = 30 * 24 * time.Hour

// kept returns the path of the library in the cache, or "" if there is no cache.
func (l *library) kept() string {
	dir := os.Getenv(EnvDir)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "" // for example, in a container without a home directory
		}
		dir = filepath.Join(cache, "cudabind", "simdriver")
	}
	key, err := l.key()
	if err != nil {
		return "" // compiling will return the reason
	}
	return filepath.Join(dir, key+".so")
}

// key hashes everything that the library is compiled from.
func (l *library) key() (string, error) {
	h := sha256.New()
	cc := command.CC("-v") // prints version and target
	version, err := cc.CombinedOutput()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%q %q %q %q\n", cc.Args, version, append(l.flags, l.on.libs...), l.script)
	for _, pattern := range []string{l.source + "/*.[ch]", l.protos + "/*.h"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%s %d\n%s\n", filepath.Base(file), len(text), text)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// openCache opens the directory of kept if nobody else can write to it: what is in there will run.
func openCache(kept string) (*os.Root, error) {
	dir := filepath.Dir(kept)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = trust.Private(info, dir)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// take copies a library from the cache.
func take(kept, made string) error {
	root, err := openCache(kept)
	if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.Base(kept)
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if err := trust.Private(info, kept); err != nil {
		return err
	}
	if !ours(root, name) {
		return fmt.Errorf("%s is damaged", kept)
	}
	if now := time.Now(); now.Sub(info.ModTime()) > 24*time.Hour {
		_ = root.Chtimes(name, now, now) // it is in use
	}
	return copyFile(kept, made, 0o777)
}

// keep adds a library to the cache, atomically: other processes may do the same. A failure
// only makes the next build slower.
func keep(made, kept string) {
	dir := filepath.Dir(kept)
	if os.MkdirAll(filepath.Dir(dir), 0o777) != nil {
		return
	}
	_ = os.Mkdir(dir, 0o700)
	root, err := openCache(kept)
	if err != nil {
		return
	}
	defer root.Close()
	temp, err := os.MkdirTemp(dir, ".keep-")
	if err != nil {
		return
	}
	defer os.RemoveAll(temp)
	whole := filepath.Join(temp, filepath.Base(kept))
	if copyFile(made, whole, 0o600) == nil && os.Rename(whole, kept) == nil {
		trim(root)
	}
}

var keptName = regexp.MustCompile(`^[0-9a-f]{64}\.so$`)

// trim removes libraries of this package that were not used for long, and nothing else: the user
// may have named a directory that holds more.
func trim(root *os.Root) {
	entries, _ := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && keptName.MatchString(e.Name()) && time.Since(info.ModTime()) > unused && ours(root, e.Name()) {
			_ = root.Remove(e.Name())
		}
	}
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(to)
	}
	return err
}
