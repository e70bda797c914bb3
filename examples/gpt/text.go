package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const mostText = 64 << 20 // bytes

// readText returns the contents of a file, or of the text files in a folder, in the order of their
// names. Without a name these are the sources of the Go distribution.
func readText(name string) ([]byte, error) {
	suffix := ""
	if name == "" {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return nil, fmt.Errorf("-text is not set, and the sources of Go are not found: %w", err)
		}
		name, suffix = filepath.Join(strings.TrimSpace(string(root)), "src"), ".go"
	}
	name, err := filepath.EvalSymlinks(name) // WalkDir does not follow a link
	if err != nil {
		return nil, err
	}
	var text []byte
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, suffix) {
			return err
		}
		data, err := readHead(path)
		if err != nil {
			return err
		}
		if path == name || utf8.Valid(data) { // a folder may have other files, too
			text = append(text, data...)
		}
		if len(text) > mostText {
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && len(text) == 0 {
		err = errors.New(name + " has no text")
	}
	return text[:min(len(text), mostText)], err
}

// readHead returns the first bytes of a file, mostText at most. A part of a character at their end is left out.
func readHead(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostText))
	for range utf8.UTFMax - 1 {
		if r, n := utf8.DecodeLastRune(data); len(data) > mostText-utf8.UTFMax && r == utf8.RuneError && n == 1 {
			data = data[:len(data)-1]
		}
	}
	return data, err
}
