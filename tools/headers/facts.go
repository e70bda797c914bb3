package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
)

// facts is updateFacts, but for tests that have no real headers.
var facts = updateFacts

// updateFacts writes the table that says which CUDA version introduced each
// symbol, from the headers of every release in the manifest of the source tree.
func updateFacts(ctx context.Context, root string, stderr io.Writer) error {
	data, err := os.ReadFile(filepath.Join(root, "headers", "manifest.json"))
	if err != nil {
		return err
	}
	releases, err := headers.ParseManifest(data)
	if err != nil {
		return err
	}
	dirs, err := headers.FetchAll(ctx, releases, stderr)
	if err != nil {
		return err
	}
	var table strings.Builder
	table.WriteString(model.SinceHead)
	for _, name := range model.APIs() {
		var apis []*model.API
		for _, dir := range dirs {
			a, err := parse.Parse(os.DirFS(dir), name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			apis = append(apis, a)
		}
		table.WriteString(model.Introduced(apis))
	}
	file := filepath.Join(root, "gen", "model", "since.txt")
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, []byte(table.String())) {
		return nil
	}
	return replaceFile(file, []byte(table.String()))
}
