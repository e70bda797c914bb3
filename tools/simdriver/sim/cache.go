package sim

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cudabind/cudabind/internal/command"
)

// EnvDir is the environment variable that names the cache directory of [Build].
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

// take copies a library from the cache.
func take(kept, made string) error {
	info, err := os.Stat(kept)
	if err != nil {
		return err
	}
	if now := time.Now(); now.Sub(info.ModTime()) > 24*time.Hour {
		_ = os.Chtimes(kept, now, now) // it is in use
	}
	return copyFile(kept, made, 0o777)
}

// keep adds a library to the cache, atomically: other processes may do the same. A failure
// only makes the next build slower.
func keep(made, kept string) {
	dir := filepath.Dir(kept)
	if os.MkdirAll(dir, 0o777) != nil {
		return
	}
	temp, err := os.MkdirTemp(dir, ".keep-")
	if err != nil {
		return
	}
	defer os.RemoveAll(temp)
	whole := filepath.Join(temp, filepath.Base(kept))
	if copyFile(made, whole, 0o666) == nil && os.Rename(whole, kept) == nil {
		trim(dir)
	}
}

// trim removes libraries that were not used for long.
func trim(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unused {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
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
