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

// EnvDir is the variable that names the folder of built libraries.
const EnvDir = "CUDABIND_SIMDRIVER"

// unused is how long a library is kept that no program takes.
const unused = 30 * 24 * time.Hour

// kept returns the file that keeps the library, "" where there can be none.
func (l *library) kept() string {
	dir := os.Getenv(EnvDir)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "" // as in a container without a home: build each time
		}
		dir = filepath.Join(cache, "cudabind", "simdriver")
	}
	key, err := l.key()
	if err != nil {
		return "" // compiling tells why
	}
	return filepath.Join(dir, key+".so")
}

// key is a hash of all that the library is made of.
func (l *library) key() (string, error) {
	h := sha256.New()
	cc := command.CC("-v") // its version and its target
	version, err := cc.CombinedOutput()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%q %q %q %q\n", cc.Args, version, l.flags, l.script)
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

// take copies a library that is kept.
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

// keep keeps a library for other programs, which may do the same now: they find
// it whole or not at all. Where it cannot be kept, the next build takes longer.
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
	whole := filepath.Join(temp, file)
	if copyFile(made, whole, 0o666) == nil && os.Rename(whole, kept) == nil {
		trim(dir)
	}
}

// trim removes what no program has taken for long.
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
