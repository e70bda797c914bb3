package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
)

// facts is factsOf, but for tests that have no real headers.
var facts = factsOf

// factsOf makes the table that says which CUDA version introduced each symbol, from the headers of every release, oldest
// first.
func factsOf(ctx context.Context, releases []headers.Release, stderr io.Writer) (string, error) {
	dirs, err := headers.FetchAll(ctx, releases, stderr)
	if err != nil {
		return "", err
	}
	var table strings.Builder
	table.WriteString(model.SinceHead)
	for _, name := range model.APIs() {
		if model.RowOf(name).Fetch != "" {
			continue // its headers are fetched for the versions that are generated, and say nothing of those before
		}
		var apis []*model.API
		for i, dir := range dirs {
			a, err := parse.Parse(os.DirFS(dir), name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("CUDA %s: %w", releases[i].Version, err)
			}
			apis = append(apis, a)
		}
		table.WriteString(model.Introduced(apis))
	}
	return table.String(), nil
}
