package main

import (
	"errors"
	"fmt"
	"go/version"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/mod/modfile"
)

// minGo is the language version that the emitted packages need: cgo's noescape
// and nocallback came with it.
const minGo = "1.24"

// importPath is the import path of the package in dir, from the go.mod above
// it.
func importPath(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for root := abs; ; root = filepath.Dir(root) {
		file := filepath.Join(root, "go.mod")
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			if root == filepath.Dir(root) {
				return "", fmt.Errorf("%s is in no module: run go mod init above it, or give -import", dir)
			}
			continue
		}
		if err != nil {
			return "", err
		}
		mod, err := modfile.ParseLax(file, data, nil)
		if err != nil {
			return "", err
		}
		if mod.Module == nil {
			return "", fmt.Errorf("%s has no module line", file)
		}
		if mod.Go == nil || version.Compare("go"+mod.Go.Version, "go"+minGo) < 0 {
			return "", fmt.Errorf("%s: the bindings need go %s or newer: run go get go@%s", file, minGo, minGo)
		}
		rel, err := filepath.Rel(root, abs)
		if err != nil {
			return "", err
		}
		return path.Join(mod.Module.Mod.Path, filepath.ToSlash(rel)), nil
	}
}
