package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// listFiles returns the files that are or may be committed: those that git
// tracks and those it does not ignore, slash-separated, relative to repo.
func listFiles(repo string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = repo
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return nil, fmt.Errorf("git ls-files in %s: %w", repo, err)
	}
	files := slices.DeleteFunc(strings.Split(string(out), "\x00"), func(name string) bool {
		return name == "" || path.Base(name) == "go.sum" // sums, no text
	})
	if len(files) == 0 {
		return nil, fmt.Errorf("git knows no files in %s", repo)
	}
	slices.Sort(files)
	return slices.Compact(files), nil // a file in conflict is listed more than once
}

// readText returns what there is to read in a file: nothing if it is binary,
// deleted but still tracked, or no regular file.
func readText(name string) ([]byte, error) {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	text, err := os.ReadFile(name)
	if err != nil || isBinary(text) {
		return nil, err
	}
	return text, nil
}

// isBinary asks what git asks: is there a NUL near the beginning?
func isBinary(text []byte) bool {
	return bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0
}
